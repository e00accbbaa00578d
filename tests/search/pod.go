package search

import (
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// pod is one netns with one interface.
type pod struct {
	m     *machine
	name  string
	key   detector.Key
	netns uint64
	iface detector.Interface
	// slow is how much later it answers. quiet: it says nothing by itself. l3: its interface has no layer 2, so that nothing answers probes
	// and its kernel is scanned instead.
	slow      time.Duration
	quiet, l3 bool
	given     detector.Given
	vm        string        // it has the labels of that virtual machine
	has       bool          // it has its address
	since     time.Duration // that is so
	muted     time.Duration // until when it answers nothing
	gone      bool          // with its interface
	dark      bool          // it is gone, and nobody knows
}

func (m *machine) pod(name string) *pod {
	for _, p := range m.pods {
		if p.name == name && !p.gone {
			return p
		}
	}
	return nil
}

// begin makes a pod with an address.
func (m *machine) begin(e Event) {
	ip, err := netip.ParseAddr(e.arg(1))
	if err != nil || m.off || m.pod(e.arg(0)) != nil {
		return
	}
	m.netns++
	p := &pod{
		m: m, name: e.arg(0), key: detector.Key{Network: "default", IP: ip}, netns: m.netns<<8 | uint64(m.boots),
		iface: detector.Interface{Ifindex: uint32(m.netns) + 10, Generation: uint32(m.netns)},
		quiet: e.option("quiet") != "", l3: e.option("l3") != "",
	}
	p.slow, _ = time.ParseDuration(e.option("slow"))
	p.given = map[string]detector.Given{"yes": detector.GivenYes, "no": detector.GivenNo}[e.option("given")]
	p.vm = e.option("vm")
	m.pods = append(m.pods, p)
	p.take()
}

// link is the pod's interface as a scan that begins now finds it. listed says that the agent found it when it began.
func (p *pod) link(listed bool) *links.Interface {
	view := netns.View{Cookie: p.netns, Taken: p.m.clock(), Peer: "eth0"}
	if p.has || p.dark {
		view.Addresses = []netns.Address{{IP: p.key.IP, Where: netns.OnPeer, Valid: true}}
	}
	name := fmt.Sprint("veth", p.iface.Ifindex)
	of := here
	of.Name = p.m.label + "-" + p.name
	return &links.Interface{
		Name: name, FirstName: name, Index: int(p.iface.Ifindex), Generation: p.iface.Generation, Listed: listed, Up: true,
		State: links.Attached, Seen: true, L3: p.l3, Netns: of, View: view,
	}
}

// here is a netns that exists: that of this process.
var here = func() netns.Ref {
	file := "/proc/self/ns/net"
	info, err := os.Stat(file)
	if err != nil {
		panic(err)
	}
	return netns.Ref{Path: file, Inode: info.Sys().(*syscall.Stat_t).Ino}
}()

// known is what the runtime and CNI's result say of the pod.
func (p *pod) known() pods.Change {
	c := pods.Change{Cookie: p.netns, Pod: detector.Pod{Namespace: "search", Name: p.m.label + "-" + p.name, UID: fmt.Sprint(p.m.boot, p.netns)}}
	c.Sandbox.VM.UID = p.vm
	given := p.key.IP
	switch p.given {
	case detector.GivenUnknown:
		return c
	case detector.GivenNo:
		given = netip.MustParseAddr("10.1.0.1")
	}
	c.Result = &books.Result{HostEnds: []string{fmt.Sprint("veth", p.iface.Ifindex)}, Addresses: []netip.Prefix{netip.PrefixFrom(given, 24)}}
	return c
}

// take gives the pod its address.
func (p *pod) take() {
	if p.has || p.gone || p.dark {
		return
	}
	p.has, p.since = true, p.m.w.now
	p.m.w.truth.begins(p)
	since := p.since
	p.scanned()
	if !p.quiet {
		p.m.after(p.m.w.between(time.Millisecond, 60*time.Millisecond), func() { p.sends(bpf.Gratuitous, since, [6]byte{}) })
		p.chatter(since)
	}
}

// sends is a packet of the pod with its address, if it still has it.
func (p *pod) sends(kind bpf.Kind, since time.Duration, to [6]byte) {
	if a := p.m.agent; a != nil && p.has && p.since == since {
		a.record(p, kind, to)
	}
}

// scanned has the agent scan the netns soon, because the kernel says that something has changed.
func (p *pod) scanned() {
	p.m.after(p.m.w.between(time.Millisecond, 30*time.Millisecond), func() {
		if p.m.agent != nil {
			p.m.agent.scan(p)
		}
	})
}

// chatter has a pod send data from time to time. The observer passes one packet in 30 s.
func (p *pod) chatter(since time.Duration) {
	p.m.after(p.m.w.between(30*time.Second, 90*time.Second), func() {
		if !p.has || p.since != since {
			return
		}
		p.sends(bpf.Data, since, [6]byte{})
		p.chatter(since)
	})
}

// lose takes the address from the pod.
func (p *pod) lose(told bool) {
	if p.has {
		p.has = false
		p.m.w.truth.ends(p, told)
	}
}

// drop takes the address from the pod, which its kernel says.
func (p *pod) drop() {
	p.lose(true)
	p.scanned()
}

// vanish takes the address from the pod, and its kernel lists it still: that of one without layer 2 has it then.
func (p *pod) vanish() {
	if !p.l3 {
		p.dark = true
		p.lose(false)
	}
}

// end ends the pod with its interface.
func (p *pod) end() {
	if p.gone {
		return
	}
	p.lose(!p.dark)
	p.gone = true
	p.m.after(p.m.w.between(time.Millisecond, 300*time.Millisecond), func() {
		if a := p.m.agent; a != nil {
			a.input(func() {
				a.Update(links.Event{Kind: links.Removed, Interface: p.link(false), Reason: "its interface is gone"})
			})
		}
	})
}

// asked is a probe that arrives at the pod.
func (p *pod) asked(key detector.Key, source [6]byte) {
	w := p.m.w
	if key != p.key || !p.has || w.now < p.muted || p.l3 {
		return
	}
	since := p.since
	p.m.after(p.slow+w.between(20*time.Microsecond, 2*time.Millisecond), func() {
		if w.now >= p.muted {
			p.sends(bpf.Answer, since, source)
		}
	})
}
