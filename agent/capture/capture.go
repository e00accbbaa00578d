// Package capture keeps what the holders of suspected addresses sent: the headers of a few packets of each, from the
// suspicion on. It decides what is captured and for how long; package bpf captures. Nothing is stored on disk.
//
// What pods can choose decides neither its memory nor the time of the program: 1,000 holders of 64 frames, 64 holders at
// one interface.
package capture

import (
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// maxHolders bounds the holders whose frames are kept, maxOfInterface those at one interface, and maxShown those of one
	// address in a document.
	maxHolders     = 1_000
	maxOfInterface = 64
	maxShown       = 32
)

// Options configures [New].
type Options struct {
	Log *slog.Logger
	// Node is the NodeID of this node, whose holders it is about.
	Node string
	// Capture and Release begin and end the capture of packets, and CountLost counts those that were lost: the methods of
	// [bpf.Observer].
	Capture, Release func([]bpf.Address) error
	CountLost        func([]bpf.Address) int
	// Time converts a time of the observer's clock.
	Time func(time.Duration) time.Time
	// VLANs returns the tags that packets of a network have on the interface of a holder, none if that is unknown.
	VLANs func(h detector.Holder, network string) []bpf.VLAN
}

var tooManyHolders = bounds.New("too many holders to capture the packets of")

// Set has the frames of holders on this node. It is not safe for concurrent use.
type Set struct {
	Options
	list []*capture // the oldest first
	open map[bpf.Address]*capture
}

// capture has the frames of one holder in one conflict.
type capture struct {
	conflict     string // its id
	key          detector.Key
	holder       detector.Holder
	since, until time.Time
	frames       []document.Frame
	lost         int

	addresses []bpf.Address // what is captured now
	of        [bpf.FrameKinds]int
}

// New returns a Set without frames.
func New(opts Options) *Set {
	return &Set{Options: opts, open: make(map[bpf.Address]*capture)}
}

// Update takes a step of a conflict: its holders on this node are captured until they or the conflict end. The frames of a
// suspicion that fades are dropped: it was no conflict.
func (s *Set) Update(e detector.Event) {
	ended := e.Kind == detector.EventResolved || e.Kind == detector.EventFaded
	for _, c := range s.list {
		if !c.isOf(&e.Conflict) {
			continue
		}
		holds := slices.ContainsFunc(e.Conflict.Holders, func(b detector.Binding) bool { return b.Holder.ID == c.holder.ID })
		if ended || !holds {
			s.stop(c)
			if c.until.IsZero() {
				c.until = e.At
			}
		}
	}
	switch {
	case e.Kind == detector.EventFaded:
		s.list = slices.DeleteFunc(s.list, func(c *capture) bool { return c.isOf(&e.Conflict) })
	case !ended:
		for i := range e.Conflict.Holders {
			if b := &e.Conflict.Holders[i]; b.Holder.ID.Node == s.Node {
				s.follow(&e.Conflict, b, e.At)
			}
		}
	}
}

func (c *capture) isOf(conflict *detector.Conflict) bool {
	return c.conflict == conflict.ID && c.key == conflict.Key
}

// follow captures a holder, unless enough of its frames are there.
func (s *Set) follow(conflict *detector.Conflict, b *detector.Binding, now time.Time) {
	i := slices.IndexFunc(s.list, func(c *capture) bool { return c.isOf(conflict) && c.holder.ID == b.Holder.ID })
	var c *capture
	if i >= 0 {
		if c = s.list[i]; c.holder.Interface != b.Holder.Interface {
			s.stop(c)
		}
		c.holder, c.until = b.Holder, time.Time{}
		if len(c.addresses) > 0 || c.full() {
			return
		}
	}
	addresses := s.addressesOf(b)
	if len(addresses) == 0 || c == nil && !s.makeRoom() {
		return
	}
	if err := s.Capture(addresses); err != nil {
		if !errors.Is(err, os.ErrClosed) {
			s.Log.Warn("capturing the packets of a suspected address failed; \"dupip capture\" will lack them", "ip", b.Key.IP, "interface", b.Holder.InterfaceName, "error", err)
		}
		_ = s.Release(addresses) // some may be
		return
	}
	if c == nil {
		c = &capture{conflict: conflict.ID, key: b.Key, holder: b.Holder, since: now}
		s.list = append(s.list, c)
	}
	c.addresses = addresses
	for _, a := range addresses {
		s.open[a] = c
	}
}

// addressesOf returns what to capture of a holder; nothing if its interface is unknown, as that of the node itself, or has
// too many already. What is captured for another holder stays that one's.
func (s *Set) addressesOf(b *detector.Binding) (list []bpf.Address) {
	ref, n := b.Holder.Interface, 0
	for _, c := range s.list {
		if c.holder.Interface == ref && len(c.addresses) > 0 {
			n++
		}
	}
	if n >= maxOfInterface {
		tooManyHolders.Exceeded(1)
		return nil
	}
	for _, vlan := range s.VLANs(b.Holder, b.Key.Network) {
		if a := (bpf.Address{Ifindex: ref.Ifindex, Generation: ref.Generation, IP: b.Key.IP, VLAN: vlan}); s.open[a] == nil {
			list = append(list, a)
		}
	}
	return list
}

// makeRoom drops the frames of the oldest holder that has ended, if there are too many. It reports false if none has ended.
func (s *Set) makeRoom() bool {
	if len(s.list) < maxHolders {
		return true
	}
	i := slices.IndexFunc(s.list, func(c *capture) bool { return !c.until.IsZero() })
	if i >= 0 {
		s.list = slices.Delete(s.list, i, i+1)
	} else {
		tooManyHolders.Exceeded(1)
	}
	return i >= 0
}

// stop ends the capture of a holder's packets.
func (s *Set) stop(c *capture) {
	if len(c.addresses) == 0 {
		return
	}
	c.lost += s.CountLost(c.addresses)
	if err := s.Release(c.addresses); err != nil && !errors.Is(err, os.ErrClosed) {
		s.Log.Warn("ending a capture failed; packets of an address that is not suspected any more are still captured", "ip", c.key.IP, "interface", c.holder.InterfaceName, "error", err)
	}
	for _, a := range c.addresses {
		delete(s.open, a)
	}
	c.addresses = nil
}

// full reports whether the capture has its frames: the answers to all probes of about two minutes, or all.
func (c *capture) full() bool {
	return c.of[bpf.AnswerToUs] >= bpf.FramesOfKind || len(c.frames) >= bpf.MaxFrames
}

// Add takes a frame that was captured.
func (s *Set) Add(f bpf.Frame) {
	c := s.open[f.Address]
	// It may come late. A holder that left and returned has new budgets in the kernel, as has each of several VLANs.
	if c == nil || c.of[f.Kind] >= bpf.FramesOfKind {
		return
	}
	c.of[f.Kind]++
	c.frames = append(c.frames, document.Frame{At: s.Time(f.Time).Round(0), Length: f.Length, Data: f.Data})
	if c.full() {
		s.stop(c)
	}
}

// Of returns the frames of the last holders of an address, and how many more holders there were. describe returns a holder as it is
// known now. The caller must not change the frames.
func (s *Set) Of(ip netip.Addr, describe func(detector.Holder) detector.Holder) (list []document.Capture, omitted int) {
	for _, c := range s.list {
		if c.key.IP == ip {
			list = append(list, document.Capture{
				Conflict: c.conflict, Network: c.key.Network, IP: ip, Holder: document.NewHolder(describe(c.holder)),
				Since: c.since.Round(0), Until: c.until.Round(0), Frames: append([]document.Frame{}, c.frames...), Lost: c.lost + s.CountLost(c.addresses),
			})
		}
	}
	omitted = max(len(list)-maxShown, 0)
	return list[omitted:], omitted
}
