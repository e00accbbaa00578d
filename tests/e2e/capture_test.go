package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket/pcapgo"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// marker is in the payload of packets, which must not be kept.
const marker = "what pods say to each other must not be kept"

// Two pods on two nodes have one address of each family. The archive has what both sent, for tshark; no payload.
func TestCapture(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(2)
	n := agents[0].Node
	ip, ip6 := n.RoutedIPv4(10), n.RoutedIPv6(10)
	started := time.Now()
	var pods []*lab.Pod
	for i, a := range agents {
		pods = append(pods, l.Pod(a.Node, fmt.Sprint("pod", i), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip, ip6}}))
	}
	var id string
	for _, a := range agents {
		w := l.Watch(a)
		for _, ip := range []netip.Addr{ip, ip6} {
			e, err := w.WaitConfirmed(ip, patience)
			l.Do(err)
			if ip.Is4() {
				id = e.Conflict.ID
			}
		}
		if n := capturedBy(l, a); n == 0 {
			t.Errorf("the agent on %s captures nothing during a conflict", a.Node.ShortName())
		}
	}
	for _, p := range pods {
		conn, err := p.DialUDP(ip, netip.AddrPortFrom(lab.ExternalAddr(ip), 9))
		l.Do(err)
		for range 30 {
			if _, err := conn.Write([]byte(strings.Repeat(marker, 10))); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Log(err) // an answer may say that nobody is there
			}
		}
		l.Do(conn.Close())
	}

	dir := t.TempDir()
	file := filepath.Join(dir, "capture.tar.gz")
	out := dupip(t, nil, "capture", ip.String(), "-o", file, "--api-socket", agents[1].Socket)
	t.Logf("%s", out.stdout)
	line := regexp.MustCompile(`^` + regexp.QuoteMeta(file) + `: (\d+) frames \((\d+) of \S*pod\d on \S+, (\d+) of \S*pod\d on \S+\), the history of ` +
		regexp.QuoteMeta(ip.String()) + `, its routes and books, the versions of 2 nodes\.\n$`)
	said := line.FindStringSubmatch(out.stdout)
	if out.code != 0 || said == nil {
		t.Fatalf("it printed %q, exit code %d: %s", out.stdout, out.code, out.stderr)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file's mode is %v, %v", info.Mode(), err)
	}
	files := unpack(l, file)
	for name, data := range files {
		if bytes.Contains(data, []byte(marker[:8])) {
			t.Errorf("%s has payload of a pod", name)
		}
	}
	for name, want := range map[string]string{
		"explain.txt": "confirmed", "explain.json": `"stories"`, "nodes.json": `"version"`, "README.txt": "Nothing is missing.",
	} {
		if !strings.Contains(string(files[name]), want) {
			t.Errorf("%s has no %s:\n%s", name, want, files[name])
		}
	}
	frames := filepath.Join(dir, "frames.pcapng")
	l.Do(os.WriteFile(frames, files["frames.pcapng"], 0o600))
	checkFrames(l, frames, ip, started, said[1:], pods...)

	// By the id of the conflict, to standard output; the other address.
	byID := dupip(t, nil, "capture", id, "-o", "-", "--api-socket", agents[0].Socket)
	if byID.code != 0 || !strings.HasPrefix(byID.stderr, "-: ") || !bytes.HasPrefix([]byte(byID.stdout), []byte{0x1f, 0x8b}) {
		t.Errorf("by id: exit code %d, %s", byID.code, byID.stderr)
	}
	file6 := filepath.Join(dir, "six.tar.gz")
	if out := dupip(t, nil, "capture", ip6.String(), "-o", file6, "--api-socket", agents[0].Socket); out.code != 0 {
		t.Fatalf("for %v: %s", ip6, out.stderr)
	}
	l.Do(os.WriteFile(frames, unpack(l, file6)["frames.pcapng"], 0o600))
	if got := tshark(l, frames, "icmpv6.type == 136 && icmpv6.nd.na.target_address == "+ip6.String(), "eth.src"); !slices.Equal(unique(got), macsOf(l, pods...)) {
		t.Errorf("neighbour advertisements of %v, want those of both pods", unique(got))
	}

	for args, want := range map[string]string{
		ip.String() + " -o " + file:    file + " is there already: name another file with -o",
		"10.99.99.99 -o " + dir + "/x": `nothing is known of 10.99.99.99: "dupip explain 10.99.99.99" says where it was looked for`,
		"00000000-1 -o " + dir + "/x":  "no conflict has the id 00000000-1",
		"web -o " + dir + "/x":         `"web": neither an IP address nor the id of a conflict`,
		ip.String() + " -o /nowhere/x": "open /nowhere/x: no such file or directory; name another file with -o, or - for standard output",
	} {
		out := dupip(t, nil, append(append([]string{"capture"}, strings.Fields(args)...), "--api-socket", agents[0].Socket)...)
		if out.code != 1 || !strings.Contains(out.stderr, want) {
			t.Errorf("capture %s: exit code %d, %s; want %s", args, out.code, out.stderr, want)
		}
	}
	if _, err := os.Stat(dir + "/x"); err == nil {
		t.Error("a failed command left a file")
	}

	// When the conflict has ended nothing is captured any more, and the frames are still there.
	l.Do(pods[1].Netlink().LinkDel(linkOf(l, pods[1])))
	ended(l, agents[0], ip)
	ended(l, agents[0], ip6)
	for _, a := range agents {
		l.Eventually("the end of the capture", func() error {
			if n := capturedBy(l, a); n != 0 {
				return fmt.Errorf("%d addresses are captured on %s", n, a.Node.ShortName())
			}
			return nil
		})
	}
	later := dupip(t, nil, "capture", ip.String(), "-o", filepath.Join(dir, "later"), "--api-socket", agents[0].Socket)
	if later.code != 0 || strings.Count(later.stdout, "-pod") != 2 {
		t.Errorf("after the end: %s%s", later.stdout, later.stderr)
	}
}

// The command names pods; one of the nodes asked has no holder. Without -o the file has a name of its own, in the folder of the
// command. A conflict that has ended has frames, too.
func testCaptureNames(t *testing.T, s *shown) {
	dir := t.TempDir()
	run := func(ip netip.Addr) (stdout, name string) {
		t.Helper()
		out := dupip(t, func(c *exec.Cmd) { c.Dir = dir }, "capture", ip.String(), "--api-socket", s.third.Socket)
		name, _, _ = strings.Cut(out.stdout, ": ")
		if !regexp.MustCompile(`^dupip-` + regexp.QuoteMeta(ip.String()) + `-\d{8}T\d{6}Z\.tar\.gz$`).MatchString(name) {
			t.Fatalf("%v: it printed %q, exit code %d: %s", ip, out.stdout, out.code, out.stderr)
		}
		return out.stdout, filepath.Join(dir, name)
	}
	text, name := run(s.across)
	first, second := s.first.agent.Node.ShortName(), s.second.agent.Node.ShortName()
	t.Logf("%s%v", text, tshark(s.T, writeFrames(s.T, name), "arp"))
	for _, want := range []string{" of shop/web on " + first, " of stage/web on " + second, "the versions of 3 nodes."} {
		if !strings.Contains(text, want) {
			t.Errorf("it printed %q, without %q", text, want)
		}
	}
	if text, name = run(s.past); strings.Count(text, " on "+first) != 2 || len(tshark(s.T, writeFrames(s.T, name), "arp.opcode == 2")) < 4 {
		t.Errorf("of a conflict that has ended it printed %q", text)
	}
}

// writeFrames writes the frames of an archive into a file beside it.
func writeFrames(l *lab.T, archive string) string {
	l.Helper()
	name := archive + ".pcapng"
	l.Do(os.WriteFile(name, unpack(l, archive)["frames.pcapng"], 0o600))
	return name
}

// checkFrames checks what tshark and gopacket read.
func checkFrames(l *lab.T, file string, ip netip.Addr, started time.Time, said []string, pods ...*lab.Pod) {
	l.Helper()
	macs := macsOf(l, pods...)
	if got := unique(tshark(l, file, "", "eth.src")); !slices.Equal(got, macs) {
		l.Errorf("tshark reads the MACs %v, want %v", got, macs)
	}
	answers := "arp.opcode == 2 && arp.src.proto_ipv4 == " + ip.String()
	if got := unique(tshark(l, file, answers+" && eth.dst == arp.dst.hw_mac", "arp.src.hw_mac")); !slices.Equal(got, macs) {
		l.Errorf("ARP answers of %v, want %v", got, macs)
	}
	if got := tshark(l, file, "udp.dstport == 9", "frame.len", "frame.cap_len", "ip.src"); len(got) < 2 {
		l.Errorf("the packets with payload are not there: %v", got)
	} else if want := fmt.Sprintf("%d\t42\t%v", 42+10*len(marker), ip); slices.ContainsFunc(got, func(s string) bool { return s != want }) {
		l.Errorf("packets with payload are %q, want %q", got, want)
	}
	if got := tshark(l, file, "_ws.malformed || (frame.cap_len < 42)", "frame.number"); len(got) > 0 {
		l.Errorf("malformed: %v", got)
	}
	var before, count float64
	for _, text := range tshark(l, file, "", "frame.time_epoch") {
		at, err := strconv.ParseFloat(text, 64)
		l.Do(err)
		if at < before || at < seconds(started) || at > seconds(time.Now()) {
			l.Errorf("a frame at %s after one at %f, in a test that began at %f", text, before, seconds(started))
		}
		before, count = at, count+1
	}
	if fmt.Sprint(count) != said[0] {
		l.Errorf("tshark reads %v frames, dupip says %s", count, said[0])
	}
	l.Logf("tshark:\n%s", strings.Join(tshark(l, file, ""), "\n"))

	f, err := os.Open(file)
	l.Do(err)
	defer f.Close()
	r, err := pcapgo.NewNgReader(f, pcapgo.NgReaderOptions{WantMixedLinkType: true, ErrorOnMismatchingLinkType: true})
	l.Do(err)
	perHolder := make(map[int]int)
	for {
		_, info, err := r.ReadPacketData()
		if errors.Is(err, io.EOF) {
			break
		}
		l.Do(err)
		perHolder[info.InterfaceIndex]++
	}
	for i := range 2 {
		in, err := r.Interface(i)
		l.Do(err)
		if fmt.Sprint(perHolder[i]) != said[1+i] || !strings.Contains(in.Name, "/cali") || !strings.Contains(in.Comment, "conflict ") || in.TimestampResolution.Exponent() != 9 {
			l.Errorf("gopacket reads %d frames of %+v, dupip says %s", perHolder[i], in, said[1+i])
		}
	}
}

// An agent with --capture=off captures nothing, and the command says so.
func TestCaptureOff(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	on, off := l.Node(""), l.Node("")
	first, err := on.StartAgent(on.ClusterFlags()...)
	l.Do(err)
	second, err := off.StartAgent(append(off.ClusterFlags(), "--capture=off")...)
	l.Do(err)
	for _, a := range []*lab.Agent{first, second} {
		l.Do(a.WaitReady(within(l, 2*patience)))
	}
	l.WaitCluster(first, second)
	ip := on.RoutedIPv4(10)
	for i, n := range []*lab.Node{on, off} {
		l.Pod(n, fmt.Sprint("pod", i), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
	}
	for _, a := range []*lab.Agent{first, second} {
		_, err := l.Watch(a).WaitConfirmed(ip, patience)
		l.Do(err)
	}
	if a, b := capturedBy(l, first), capturedBy(l, second); a == 0 || b != 0 {
		t.Errorf("%d and %d addresses are captured, want one and none", a, b)
	}
	out := dupip(t, nil, "capture", ip.String(), "-o", filepath.Join(t.TempDir(), "x"), "--api-socket", first.Socket)
	if want := "Missing: on node " + off.ShortName() + ", no packets are captured (--capture=off).\n"; out.code != 0 ||
		!strings.Contains(out.stdout, "-pod0 on "+on.ShortName()+")") || strings.Contains(out.stdout, "pod1") || !strings.HasSuffix(out.stdout, want) {
		t.Errorf("it printed %q, want %q: %s", out.stdout, want, out.stderr)
	}
}

// An agent that is alone has frames of its node, by XDP, too.
func TestCaptureAlone(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	a := l.Agent(l.Node(""), "--attach", "xdp")
	ip := a.Node.IPv4(10)
	var pods []*lab.Pod
	for i := range 2 {
		pods = append(pods, l.Pod(a.Node, fmt.Sprint("pod", i), lab.PodOptions{Addrs: []netip.Addr{ip}}))
	}
	e, err := l.Watch(a).WaitConfirmed(ip, patience)
	l.Do(err)
	name := filepath.Join(t.TempDir(), "f")
	out := dupip(t, nil, "capture", e.Conflict.ID, "-o", name, "--api-socket", a.Socket)
	if out.code != 0 || strings.Count(out.stdout, "-pod") != 2 || !strings.HasSuffix(out.stdout, "the versions of 1 node.\n") {
		t.Fatalf("it printed %q, exit code %d: %s", out.stdout, out.code, out.stderr)
	}
	if got := unique(tshark(l, writeFrames(l, name), "arp.opcode == 2", "arp.src.hw_mac")); !slices.Equal(got, macsOf(l, pods...)) {
		t.Errorf("ARP answers of %v, want those of both pods", got)
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }

// linkOf is a pod's first interface.
func linkOf(l *lab.T, p *lab.Pod) netlink.Link {
	l.Helper()
	link, err := p.Netlink().LinkByName(p.Interface)
	l.Do(err)
	return link
}

// macsOf returns the MACs of pods, in order.
func macsOf(l *lab.T, pods ...*lab.Pod) (list []string) {
	l.Helper()
	for _, p := range pods {
		mac, err := p.MAC(p.Interface)
		l.Do(err)
		list = append(list, mac.String())
	}
	slices.Sort(list)
	return list
}

func unique(list []string) []string {
	list = slices.Clone(list)
	slices.Sort(list)
	return slices.Compact(list)
}
