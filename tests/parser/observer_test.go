package parser

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

// observer is a program that gets frames by BPF_PROG_TEST_RUN, or through a veth: only on that way the
// kernel moves the outer tag into the metadata of a packet.
type observer struct {
	*lab.T
	name        string
	differences int

	*bpf.Observer
	program *ebpf.Program
	ifindex int
	// interfaces and epoch are maps of the program: what it knows is forgotten between two frames.
	interfaces, epoch *ebpf.Map
	entry             []byte
	generation        uint32
	// socket sends from the other end of the veth, 0 for BPF_PROG_TEST_RUN.
	socket int
}

func newObserver(t *lab.T, n *lab.Node, name string) *observer {
	t.Helper()
	o := &observer{T: t, name: name, ifindex: 1}
	mode := bpf.TC
	if name == "xdp" {
		mode = bpf.XDP
	}
	var err error
	o.Observer, err = bpf.Load(bpf.Options{Mode: mode, SolicitMAC: [3]byte(ourMAC[:3])})
	t.Do(err)
	t.Cleanup(func() { t.Do(o.Close()) })
	sandbox, err := n.AddSandbox(name)
	t.Do(err)
	t.Do(sandbox.Exec(func() error {
		if name == "veth" {
			if err := o.addVeth(); err != nil {
				return err
			}
		}
		_, err := o.Attach(o.ifindex, bpf.AttachOptions{Generation: 1, CreateQdisc: true})
		return err
	}))
	o.find(sandbox.Netlink())
	return o
}

// addVeth makes a pair of veths in this netns, and a socket that sends from one to the other.
func (o *observer) addVeth() error {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "observed", Index: 77}, PeerName: "sender"}
	if err := netlink.LinkAdd(veth); err != nil {
		return err
	}
	o.ifindex = 77
	sender, err := netlink.LinkByName("sender")
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.LinkSetUp(veth), netlink.LinkSetUp(sender)); err != nil {
		return err
	}
	o.socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	o.Cleanup(func() { unix.Close(o.socket) })
	return unix.Bind(o.socket, &unix.SockaddrLinklayer{Ifindex: sender.Attrs().Index})
}

// find opens the program that is attached, and its maps.
func (o *observer) find(nl *netlink.Handle) {
	o.Helper()
	link, err := nl.LinkByIndex(o.ifindex)
	o.Do(err)
	id := ebpf.ProgramID(0)
	if xdp := link.Attrs().Xdp; xdp != nil && xdp.Attached {
		id = ebpf.ProgramID(xdp.ProgId)
	} else {
		filters, err := nl.FilterList(link, netlink.HANDLE_MIN_INGRESS)
		o.Do(err)
		for _, f := range filters {
			if f, ok := f.(*netlink.BpfFilter); ok {
				id = ebpf.ProgramID(f.Id)
			}
		}
	}
	o.program, err = ebpf.NewProgramFromID(id)
	o.Do(err)
	o.Cleanup(func() { o.program.Close() })
	info, err := o.program.Info()
	o.Do(err)
	ids, _ := info.MapIDs()
	for _, id := range ids {
		m, err := ebpf.NewMapFromID(id)
		o.Do(err)
		o.Cleanup(func() { m.Close() })
		info, err := m.Info()
		o.Do(err)
		switch {
		case info.Name == "interfaces":
			o.interfaces, o.entry = m, make([]byte, m.ValueSize())
		case strings.HasSuffix(info.Name, ".bss"):
			o.epoch = m
		}
	}
	if o.interfaces == nil || o.epoch == nil || o.epoch.ValueSize() != 20 {
		o.Fatal("the maps of the program are not those that this test knows")
	}
}

// forget makes the interface a new one: nothing is known of it, and its buckets are full.
func (o *observer) forget() {
	o.Helper()
	o.generation++
	binary.LittleEndian.PutUint32(o.entry, o.generation) // struct interface begins with it
	epoch := make([]byte, o.epoch.ValueSize())
	binary.LittleEndian.PutUint64(epoch, 1<<30+uint64(o.generation)) // it is the first variable
	o.Do(o.interfaces.Put(uint32(o.ifindex), o.entry), o.epoch.Put(uint32(0), epoch))
}

// observe gives frames to the program and returns what its records say about each; nil is a frame that
// the kernel does not take.
func (o *observer) observe(frames [][]byte) []*[]said {
	o.Helper()
	all := make([]*[]said, len(frames))
	first := o.generation + 1
	for i, frame := range frames {
		o.forget()
		if o.give(frame) {
			all[i] = &[]said{}
		}
		if o.socket != 0 {
			o.read(first, all) // a veth may take its time
		}
	}
	if o.socket == 0 {
		o.read(first, all)
	}
	return all
}

// read takes records until that of a last frame of its own. The first frame had the first generation.
func (o *observer) read(first uint32, all []*[]said) {
	o.Helper()
	last := netip.AddrFrom4([4]byte{10, 255, 255, 254})
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 99}
	frame, err := lab.Announcement(last, mac, 0)
	o.Do(err)
	if !o.give(frame) {
		o.Fatal("the kernel does not take an ordinary frame")
	}
	for {
		var r bpf.Record
		o.Do(o.Read(&r))
		if r.IP == last && r.MAC == [6]byte(mac) {
			return
		}
		i := r.Generation - first
		if i >= uint32(len(all)) || all[i] == nil {
			o.Fatalf("the record %+v is of no frame", r)
		}
		*all[i] = append(*all[i], said{r.Kind, r.IP, r.MAC, r.VLAN})
	}
}

// give gives one frame to the program, and reports whether the kernel takes it.
func (o *observer) give(frame []byte) bool {
	o.Helper()
	var err error
	if o.socket != 0 {
		_, err = unix.Write(o.socket, frame)
		if errors.Is(err, unix.EMSGSIZE) {
			return false
		}
	} else {
		_, err = o.program.Run(&ebpf.RunOptions{Data: frame})
	}
	// Frames without a payload, and in newer kernels those with a cut IP header.
	if errors.Is(err, unix.EINVAL) {
		return false
	}
	o.Do(err)
	return true
}
