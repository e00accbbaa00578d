package wire

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/arp"
	"github.com/mdlayher/ethernet"
	"github.com/mdlayher/packet"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

var (
	vip, vip6   = netip.MustParseAddr("10.0.0.7"), netip.MustParseAddr("fd00::7")
	own, others = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.9")
)

// ip runs the ip command, in the netns of a pod unless that is nil.
func ip(t *testing.T, pod *ownnetns.Pod, args string) {
	t.Helper()
	cmd := exec.Command("ip", strings.Fields(args)...)
	if pod != nil {
		cmd = exec.Command("nsenter", append([]string{"--net=" + pod.Path(), "ip"}, strings.Fields(args)...)...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", args, err, out)
	}
}

// segment makes a veth pair: up0 here, and up1 in a netns that has the addresses, too.
func segment(t *testing.T) (far *ownnetns.Pod) {
	t.Helper()
	far = ownnetns.NewPod(t)
	ip(t, nil, "link add up0 type veth peer name up1 netns "+strconv.Itoa(far.Pid))
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "up0").Run() })
	for _, a := range []string{"10.0.0.1/24", "10.0.0.7/32", "fd00::7/128 nodad"} {
		ip(t, nil, "addr add "+a+" dev up0")
	}
	for _, a := range []string{"10.0.0.2/24", "10.0.0.7/32", "fd00::7/128 nodad"} {
		ip(t, far, "addr add "+a+" dev up1")
	}
	ip(t, nil, "link set up0 up")
	ip(t, far, "link set up1 up")
	return far
}

// listening returns a Wire on up0.
func listening(t *testing.T, own ...netip.Addr) *Wire {
	t.Helper()
	w := New(slog.New(slog.DiscardHandler))
	t.Cleanup(func() { w.Close() })
	w.Follow([]string{"up0"}, own)
	return w
}

// awaits waits until an address is heard from a MAC, and calls again until then. Others may be heard meanwhile.
func (w *Wire) awaits(t *testing.T, what netip.Addr, mac net.HardwareAddr, again func()) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); {
		again()
		for wait := time.After(200 * time.Millisecond); ; {
			select {
			case h := <-w.heard:
				if h.IP == what && h.Device == "up0" && (mac == nil || h.MAC == detector.MAC(mac)) {
					return
				}
				continue
			case <-wait:
			}
			break
		}
	}
	t.Fatalf("%s is not heard", what)
}

func macOf(t *testing.T, device string) net.HardwareAddr {
	t.Helper()
	i, err := net.InterfaceByName(device)
	if err != nil {
		t.Fatal(err)
	}
	return i.HardwareAddr
}

// Who else has an address of the node answers, also after the device was made anew; neighbour entries stay as they are.
func TestAsk(t *testing.T) {
	far := segment(t)
	w := listening(t)
	ask := func(a netip.Addr) func() {
		return func() {
			w.Follow([]string{"up0"}, nil) // the link-local address comes later
			if err := w.Ask("up0", a); err != nil && a.Is4() {
				t.Fatal(err)
			}
		}
	}
	for range 2 {
		w.awaits(t, vip, nil, ask(vip))
		w.awaits(t, vip6, nil, ask(vip6))
		for _, pod := range []*ownnetns.Pod{nil, far} {
			cmd := exec.Command("ip", "neigh", "show", "to", vip.String())
			if pod != nil {
				cmd = exec.Command("nsenter", "--net="+pod.Path(), "ip", "neigh", "show", "to", vip.String())
			}
			if out, err := cmd.Output(); err != nil || len(out) != 0 {
				t.Errorf("a neighbour entry: %s (%v)", out, err)
			}
		}
		ip(t, nil, "link del up0")
		far.Delete()
		far = segment(t)
	}
}

// A socket that cannot be read any more is opened again at the next look, and meanwhile nobody asks by it.
func TestSocketFails(t *testing.T) {
	segment(t)
	w := listening(t)
	for _, end := range []func(*port){func(p *port) { p.arp.Close() }, func(p *port) { p.ndp.Load().Close() }} {
		w.awaits(t, vip6, nil, func() {
			w.Follow([]string{"up0"}, nil)
			_ = w.Ask("up0", vip6)
		})
		p := w.ports["up0"]
		end(p)
		for deadline := time.Now().Add(30 * time.Second); !p.ended.Load() && time.Now().Before(deadline); {
			time.Sleep(10 * time.Millisecond)
		}
		if err := w.Ask("up0", vip); err == nil {
			t.Error("asked by a socket that cannot be read")
		}
		w.Follow([]string{"up0"}, nil)
		if err := w.Ask("up0", vip); err != nil {
			t.Error(err)
		}
	}
}

// While the kernel takes its time for a device, nobody waits.
func TestKernelIsSlow(t *testing.T) {
	segment(t)
	w := listening(t)
	w.following.Lock() // as Follow does meanwhile
	defer w.following.Unlock()
	w.Listen([]string{"up0"}, nil)
	if err := w.Ask("up0", vip); err != nil || len(w.Devices()) != 1 {
		t.Errorf("%v, %v", err, w.Devices())
	}
}

func TestNothingToAsk(t *testing.T) {
	segment(t)
	w := listening(t)
	if err := w.Ask("up9", vip); err == nil {
		t.Error("asked on a device that is not listened on")
	}
	ip(t, nil, "tuntap add tun0 mode tun")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "tun0").Run() })
	w.Follow([]string{"up0", "tun0", "none"}, nil)
	if err := w.Ask("tun0", vip); err == nil {
		t.Error("asked on a device without Ethernet")
	}
	if d := w.Devices(); len(d) != 3 || d[0].Name != "none" || d[0].Err == nil || d[1].Err == nil || d[2].Name != "up0" || d[2].Err != nil {
		t.Errorf("%v", d)
	}
	refused := 0
	for range questionsBurst + 20 {
		if err := w.Ask("up0", vip); errors.Is(err, ErrTooMany) {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if refused == 0 {
		t.Error("questions have no bound")
	}
	w.Follow(nil, nil)
	if err := w.Ask("up0", vip); err == nil || len(w.ports) != 0 {
		t.Error("still listening")
	}
	var many []string
	for i := range maxPorts + 5 {
		many = append(many, fmt.Sprint("many", i))
	}
	if w.Follow(many, nil); len(w.ports) != maxPorts {
		t.Errorf("%d devices", len(w.ports))
	}
}

// frame is an ARP packet of a MAC that is made up.
func frame(t *testing.T, op arp.Operation, sender, target netip.Addr, mac net.HardwareAddr, vlan uint16) []byte {
	t.Helper()
	p, err := arp.NewPacket(op, mac, sender, make(net.HardwareAddr, 6), target)
	if err != nil {
		t.Fatal(err)
	}
	payload, err := p.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	f := ethernet.Frame{Destination: ethernet.Broadcast, Source: mac, EtherType: ethernet.EtherTypeARP, Payload: payload}
	if vlan != 0 {
		f.VLAN = &ethernet.VLAN{ID: vlan}
	}
	data, err := f.MarshalBinary()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Heard are answers, announcements, and requests from the node's own addresses; nothing else, and nothing with a tag.
func TestHeard(t *testing.T) {
	testneeds.Root(t)
	ip(t, nil, "link add up0 type veth peer name up1")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", "up0").Run() })
	ip(t, nil, "link set up0 up")
	ip(t, nil, "link set up1 up")
	w := listening(t, own)
	device, err := net.InterfaceByName("up1")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(device, packet.Raw, int(ethernet.EtherTypeARP), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	send := func(data []byte) {
		if _, err := conn.WriteTo(data, &packet.Addr{HardwareAddr: ethernet.Broadcast}); err != nil {
			t.Fatal(err)
		}
	}
	source := func(n byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, n} }
	zero := netip.IPv4Unspecified()
	for i, unheard := range [][]byte{
		frame(t, arp.OperationRequest, others, own, source(1), 0),   // an ordinary question
		frame(t, arp.OperationRequest, zero, own, source(2), 0),     // a probe
		frame(t, arp.OperationReply, others, own, source(3), 100),   // in a VLAN that the node does not have
		frame(t, arp.OperationRequest, own, others, source(4), 100), // the same
		append(frame(t, arp.OperationReply, others, own, source(5), 0)[:20], make([]byte, 30)...),
	} {
		last := source(byte(100 + i))
		w.awaits(t, others, last, func() {
			send(unheard)
			send(frame(t, arp.OperationReply, others, own, last, 0))
		})
	}
	for n, data := range [][]byte{
		frame(t, arp.OperationReply, others, own, source(11), 0),
		frame(t, arp.OperationRequest, others, others, source(12), 0),
		frame(t, arp.OperationRequest, own, others, source(13), 0),
	} {
		want := others
		if n == 2 {
			want = own
		}
		w.awaits(t, want, source(byte(11+n)), func() { send(data) })
	}
	for len(w.heard) > 0 {
		if h := <-w.heard; h.MAC[5] < 10 {
			t.Errorf("heard %+v", h)
		}
	}
	// A node that has another address now hears its own.
	w.Follow([]string{"up0"}, []netip.Addr{vip6, others})
	w.awaits(t, others, source(14), func() { send(frame(t, arp.OperationRequest, others, own, source(14), 0)) })
	if mac := macOf(t, "up0"); len(mac) != 6 {
		t.Error(mac)
	}
}
