package route

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/internal/testneeds"
)

func ip(t *testing.T, command string) {
	t.Helper()
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", command, err, out)
	}
}

func sysctl(t *testing.T, path, value string) {
	t.Helper()
	must(t, os.WriteFile(filepath.Join("/proc/sys/net", path), []byte(value), 0))
}

// TestWhichRoute: what a route is for, where it is, and who has made it.
func TestWhichRoute(t *testing.T) {
	testneeds.Root(t)
	veth(t, "vetha", 0)
	ip(t, "link set vetha up")
	ip(t, "addr add 192.0.2.1/24 dev vetha")
	ip(t, "route add local 10.60.1.0/24 dev vetha table local proto 66")
	ip(t, "route add 10.60.2.7 dev vetha proto static")
	ip(t, "route add 10.60.3.0/24 via 192.0.2.9 table 77 proto bird")
	ip(t, "rule add to 10.60.3.0/24 lookup 77 priority 77")
	ip(t, "route add local fd60::/64 dev vetha table local")
	t.Cleanup(func() { ip(t, "rule del priority 77") })
	for to, want := range map[string]string{
		"10.60.1.9": "10.60.1.0/24 255 66 vetha", "10.60.2.7": "10.60.2.7/32 254 static vetha", "10.60.3.1": "10.60.3.0/24 77 bird vetha", "192.0.2.1": "192.0.2.1/32 255 kernel vetha",
		"fd60::7": "fd60::/64 255 boot vetha", "192.0.2.9": "192.0.2.0/24 254 kernel vetha",
	} {
		routes, err := To(netip.MustParseAddr(to))
		must(t, err)
		r := routes[0]
		got := fmt.Sprint(r.Prefix, " ", r.Table, " ", r.Protocol, " ", r.Device.Name)
		if got != want {
			t.Errorf("%s: %q, want %q", to, got, want)
		}
	}
	var list []string
	whole, err := Tables(func(e Entry) { list = append(list, fmt.Sprint(e.Prefix, e.Local, e.Gateway)) })
	must(t, err)
	for _, want := range []string{"10.60.1.0/24 true invalid IP", "10.60.2.7/32 false invalid IP", "10.60.3.0/24 false 192.0.2.9", "fd60::/64 true invalid IP"} {
		if !whole || !slices.Contains(list, want) {
			t.Errorf("no %q in %q", want, list)
		}
	}
}

// asks reports whether somebody on the segment of a device gets an answer when it asks for an address: as the pod there sees it.
func asks(t *testing.T, pid int, to string) bool {
	t.Helper()
	found := make(chan bool)
	go func() {
		runtime.LockOSThread() // the thread ends with the goroutine
		defer close(found)
		ns, err := netns.GetFromPid(pid)
		if err != nil || netns.Set(ns) != nil {
			return
		}
		ns.Close()
		conn, err := net.Dial("udp", net.JoinHostPort(to, "9"))
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.Write([]byte("?"))
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return
		}
		defer h.Close()
		for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
			list, err := h.NeighList(0, netlink.FAMILY_ALL)
			i := slices.IndexFunc(list, func(n netlink.Neigh) bool { return n.IP.Equal(net.ParseIP(to)) })
			switch {
			case err != nil || i < 0:
			case list[i].State&(netlink.NUD_REACHABLE|netlink.NUD_DELAY|netlink.NUD_STALE) != 0:
				found <- true
				return
			case list[i].State&netlink.NUD_FAILED != 0:
				return
			}
		}
	}()
	return <-found
}

// TestProxies: what is said of proxies is what the kernel does.
func TestProxies(t *testing.T) {
	testneeds.Root(t)
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "up0"
	v := netlink.NewVeth(attrs)
	v.PeerName, v.PeerNamespace = "eth0", netlink.NsPid(pod.Pid)
	add(t, v, "192.0.2.1/24", "2001:db8::1/64")
	inside := func(command string) {
		t.Helper()
		args := append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", pod.Pid)}, strings.Fields(command)...)
		if out, err := exec.Command("nsenter", args...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	inside("ip link set eth0 up")
	inside("ip addr add 192.0.2.2/24 dev eth0")
	inside("ip addr add 2001:db8::2/64 dev eth0 nodad")
	// Answers and failures come sooner.
	for _, family := range []string{"ipv4", "ipv6"} {
		sysctl(t, family+"/neigh/up0/proxy_delay", "0")
		inside("sysctl -qw net." + family + ".neigh.eth0.retrans_time_ms=300")
	}
	veth(t, "other", 0)
	ip(t, "route add 192.0.2.77 dev other")
	ip(t, "route add 2001:db8::77 dev other")
	sysctl(t, "ipv4/ip_forward", "1")
	sysctl(t, "ipv6/conf/all/forwarding", "1")
	none, pods := func(int) bool { return false }, func(index int) bool { return index == v.Index }
	check := func(what, to, want string) {
		t.Helper()
		routes, err := To(netip.MustParseAddr(to))
		must(t, err)
		p, err := ListProxies()
		must(t, err)
		device, by := p.For(netip.MustParseAddr(to), routes, none)
		if got := strings.TrimSpace(device + " " + by); got != want {
			t.Errorf("%s: %s is %q, want %q", what, to, got, want)
		}
		inside("ip neigh flush dev eth0")
		if got := asks(t, pod.Pid, to); got != (want != "") {
			t.Errorf("%s: the kernel answers for %s: %t", what, to, got)
		}
		if device, _ := p.For(netip.MustParseAddr(to), routes, pods); device != "" {
			t.Errorf("%s: on %s, which leads to a pod", what, device)
		}
	}
	const to, six = "192.0.2.77", "2001:db8::77"
	check("nothing", to, "")
	ip(t, "neigh add proxy "+to+" dev up0")
	check("an entry", to, "up0 proxy")
	check("of another address", "192.0.2.78", "")
	ip(t, "route del 192.0.2.77 dev other")
	check("an entry, and the route leads there", to, "")
	ip(t, "route add 192.0.2.77 dev other")
	sysctl(t, "ipv4/conf/up0/forwarding", "0")
	check("an entry of a node that is no router", to, "")
	sysctl(t, "ipv4/conf/up0/forwarding", "1")
	ip(t, "neigh del proxy "+to+" dev up0")
	sysctl(t, "ipv4/conf/up0/proxy_arp", "1")
	check("proxy_arp", to, "up0 proxy_arp")
	check("proxy_arp, and the route leads there", "192.0.2.78", "")
	sysctl(t, "ipv4/conf/up0/proxy_arp", "0")
	sysctl(t, "ipv4/conf/other/proxy_arp", "1")
	check("proxy_arp of a device without a subnet", to, "")
	sysctl(t, "ipv4/conf/other/proxy_arp", "0")
	sysctl(t, "ipv4/conf/default/proxy_arp", "1")
	check("proxy_arp of devices to come", to, "")
	sysctl(t, "ipv4/conf/default/proxy_arp", "0")
	sysctl(t, "ipv4/conf/all/proxy_arp", "1")
	check("proxy_arp of all", to, "up0 proxy_arp all")
	veth(t, "second", 0)
	ip(t, "addr add 192.0.2.9/25 dev second")
	routes, err := To(netip.MustParseAddr(to))
	must(t, err)
	for range 20 { // else a finding would change with each look
		p, err := ListProxies()
		must(t, err)
		if device, _ := p.For(netip.MustParseAddr(to), routes, none); device != "up0" {
			t.Fatalf("of two devices %s is named, and up0 before", device)
		}
	}
	ip(t, "link del second")
	sysctl(t, "ipv4/conf/all/proxy_arp", "0")
	ip(t, "neigh add proxy "+six+" dev up0")
	check("an IPv6 entry", six, "")
	sysctl(t, "ipv6/conf/up0/proxy_ndp", "1")
	check("an IPv6 entry that is used", six, "up0 proxy")
	ip(t, "neigh del proxy "+six+" dev up0")
	check("proxy_ndp alone", six, "")
}

// TestWatch: each change that decides where packets go is told, and a flood as one.
func TestWatch(t *testing.T) {
	testneeds.Root(t)
	veth(t, "vetha", 0)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	changed, err := Watch(ctx)
	must(t, err)
	quiet := func() (told int) {
		for {
			select {
			case <-changed:
				told++
			case <-time.After(500 * time.Millisecond):
				return told
			}
		}
	}
	quiet()
	for _, command := range []string{
		"ip addr add 192.0.2.1/24 dev vetha", "ip route add 10.60.2.7 dev vetha", "ip route del 10.60.2.7", "ip rule add from 192.0.2.9 lookup 77 priority 77",
		"ip rule del priority 77", "ip -6 route add fd60::/64 dev vetha", "sysctl -w net.ipv4.conf.vetha.proxy_arp=1", "ip neigh add proxy 192.0.2.7 dev vetha", "ip neigh del proxy 192.0.2.7 dev vetha",
	} {
		words := strings.Fields(command)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		select {
		case <-changed:
		case <-time.After(30 * time.Second):
			t.Errorf("not told: %s", command)
		}
		quiet()
	}
	var flood strings.Builder
	for n := range 5000 {
		fmt.Fprintf(&flood, "route add 10.61.%d.%d dev vetha\n", n>>8, n&255)
	}
	batch := exec.Command("ip", "-batch", "-")
	batch.Stdin = strings.NewReader(flood.String())
	if out, err := batch.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if told := quiet(); told == 0 || told > 2 {
		t.Errorf("5,000 routes, of which nobody read, were told %d times", told)
	}
}

// BenchmarkTables lists as many routes as a node with a part of the internet's.
func BenchmarkTables(b *testing.B) {
	testneeds.Root(b)
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		b.Fatalf("%v: %s", err, out)
	}
	var routes strings.Builder
	for n := range 50_000 {
		fmt.Fprintf(&routes, "route add 10.%d.%d.%d dev lo\n", 64+n>>16, n>>8&255, n&255)
	}
	for _, word := range []string{"add", "del"} {
		batch := exec.Command("ip", "-batch", "-")
		batch.Stdin = strings.NewReader(strings.ReplaceAll(routes.String(), "add", word))
		if out, err := batch.CombinedOutput(); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
		for word == "add" && b.Loop() {
			if _, err := Tables(func(Entry) {}); err != nil {
				b.Fatal(err)
			}
		}
	}
}
