package capture

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

var (
	start = time.Date(2026, 11, 23, 3, 0, 0, 0, time.UTC)
	one   = netip.MustParseAddr("10.0.0.1")
)

// captured is what a Set captures now.
type captured map[bpf.Address]bool

func newSet(t *testing.T) (*Set, captured) {
	t.Helper()
	now := make(captured)
	set := func(is bool) func([]bpf.Address) error {
		return func(all []bpf.Address) error {
			for _, a := range all {
				if now[a] == is {
					return fmt.Errorf("%v is captured: %v already", a, is)
				}
				now[a] = is
			}
			return nil
		}
	}
	return New(Options{
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Node: "n/b", Capture: set(true), Release: set(false),
		CountLost: func(all []bpf.Address) int { return len(all) },
		Time:      start.Add,
		VLANs: func(_ detector.Holder, network string) []bpf.VLAN {
			return map[string][]bpf.VLAN{"default": {{}}, "storage": {{Outer: 7}, {Outer: 7, Inner: 8}}}[network]
		},
	}), now
}

// wants checks what is captured, by interface.
func (c captured) want(t *testing.T, step string, want ...uint32) {
	t.Helper()
	var got []uint32
	for a, is := range c {
		if is {
			got = append(got, a.Ifindex)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s: captured at interfaces %v, want %v", step, got, want)
	}
}

// holder is one behind an interface of a node.
func holder(node string, ifindex uint32) detector.Binding {
	return detector.Binding{Key: detector.Key{Network: "default", IP: one}, Holder: detector.Holder{
		ID: detector.HolderID{Node: node, Netns: uint64(ifindex)}, Interface: detector.Interface{Ifindex: ifindex, Generation: 7},
	}}
}

func event(kind detector.EventKind, id string, holders ...detector.Binding) detector.Event {
	return detector.Event{Kind: kind, At: start, Conflict: detector.Conflict{
		ID: id, Key: detector.Key{Network: "default", IP: one}, Holders: holders,
	}}
}

func frame(ifindex uint32, ip netip.Addr, kind bpf.FrameKind) bpf.Frame {
	return bpf.Frame{Address: bpf.Address{Ifindex: ifindex, Generation: 7, IP: ip}, Kind: kind, Time: time.Minute, Length: 100, Data: []byte{1}}
}

// The holders of this node are captured from the suspicion to the end, also one that comes later.
func TestUpdate(t *testing.T) {
	s, now := newSet(t)
	a, b, other := holder("n/b", 2), holder("n/b", 3), holder("m/c", 4)
	s.Update(event(detector.EventSuspected, "x-1", a, other))
	now.want(t, "suspected", 2)
	s.Add(frame(2, one, bpf.Ordinary))
	s.Add(frame(3, one, bpf.Ordinary))                          // of nobody who is captured
	s.Add(frame(2, netip.MustParseAddr("::1"), bpf.AnswerToUs)) // nor this
	s.Update(event(detector.EventConfirmed, "x-1", a, other))
	s.Update(event(detector.EventChanged, "x-1", a, b, other))
	now.want(t, "with a third holder", 2, 3)
	s.Add(frame(3, one, bpf.AnswerToUs))
	s.Update(event(detector.EventChanged, "x-1", b, other))
	now.want(t, "without the first", 3)
	s.Add(frame(2, one, bpf.Ordinary))
	s.Update(event(detector.EventChanged, "x-1", a, b, other))
	now.want(t, "with the first again", 2, 3)
	s.Add(frame(2, one, bpf.Ordinary))
	s.Update(event(detector.EventResolved, "x-1", b))
	now.want(t, "resolved")
	list, omitted := s.Of(one, asItIs)
	if len(list) != 2 || omitted != 0 {
		t.Fatalf("%d captures and %d more: %+v", len(list), omitted, list)
	}
	for i, want := range []struct {
		ifindex      uint32
		frames, lost int
	}{{2, 2, 2}, {3, 1, 1}} {
		c := list[i]
		if c.Ifindex != want.ifindex || len(c.Frames) != want.frames || c.Lost != want.lost || c.Conflict != "x-1" ||
			!c.Since.Equal(start) || !c.Until.Equal(start) {
			t.Errorf("capture %d is %+v, want %+v", i, c, want)
		}
	}
	if f := list[0].Frames[0]; !f.At.Equal(start.Add(time.Minute)) || f.Length != 100 || len(f.Data) != 1 {
		t.Errorf("a frame is %+v", f)
	}
	if f := list[0].Frames; len(f) == 2 && !f[1].At.Equal(start.Add(time.Minute)) {
		t.Errorf("a frame after the return is %+v", f[1])
	}
}

// A suspicion that fades was no conflict: its frames are dropped.
func TestFaded(t *testing.T) {
	s, now := newSet(t)
	s.Update(event(detector.EventSuspected, "x-1", holder("n/b", 2)))
	s.Add(frame(2, one, bpf.Ordinary))
	s.Update(event(detector.EventResolved, "x-1", holder("n/b", 2)))
	s.Update(event(detector.EventSuspected, "x-2", holder("n/b", 2)))
	s.Add(frame(2, one, bpf.Ordinary))
	s.Update(event(detector.EventFaded, "x-2", holder("n/b", 2)))
	now.want(t, "faded")
	if list, _ := s.Of(one, asItIs); len(list) != 1 || list[0].Conflict != "x-1" || len(s.open) != 0 {
		t.Errorf("kept %+v, want the frames of the conflict before", list)
	}
}

// Once its answers to our probes are there, a holder is not captured any more. What else it sends, also when others ask it, has its
// share and does not end that.
func TestFull(t *testing.T) {
	s, now := newSet(t)
	s.Update(event(detector.EventSuspected, "x-1", holder("n/b", 2)))
	add := func(kind bpf.FrameKind, times int) {
		for range times {
			s.Add(frame(2, one, kind))
		}
	}
	add(bpf.OtherAnswer, 100)
	add(bpf.Ordinary, 100)
	add(bpf.AnswerToUs, bpf.FramesOfKind-1)
	now.want(t, "before the last", 2)
	add(bpf.AnswerToUs, 1)
	now.want(t, "after the last")
	s.Update(event(detector.EventConfirmed, "x-1", holder("n/b", 2)))
	now.want(t, "at the next event")
	if list, _ := s.Of(one, asItIs); len(list) != 1 || len(list[0].Frames) != 3*bpf.FramesOfKind {
		t.Errorf("%d frames, want %d", len(list[0].Frames), 3*bpf.FramesOfKind)
	}
}

// A network may have several tags on an interface. A holder's interface may change.
func TestVLANs(t *testing.T) {
	s, now := newSet(t)
	e := event(detector.EventSuspected, "x-1", holder("n/b", 2))
	e.Conflict.Holders[0].Key.Network, e.Conflict.Key.Network = "storage", "storage"
	s.Update(e)
	now.want(t, "two tags", 2, 2)
	f := frame(2, one, bpf.AnswerToUs)
	f.VLAN = bpf.VLAN{Outer: 7, Inner: 8}
	s.Add(f)
	e.Conflict.Holders[0].Holder.Interface.Ifindex = 5
	s.Update(e)
	now.want(t, "another interface", 5, 5)
	if list, _ := s.Of(one, asItIs); len(list) != 1 || len(list[0].Frames) != 1 {
		t.Errorf("%+v", list)
	}
	e.Conflict.Holders[0].Key.Network, e.Conflict.Key.Network, e.Conflict.ID = "unknown", "unknown", "y-1"
	s.Update(e)
	if list, _ := s.Of(one, asItIs); len(list) != 1 {
		t.Errorf("a holder without an interface is captured: %+v", list)
	}
}

// What pods can choose has bounds: of many holders the frames of those that ended first are dropped, and none that is open.
func TestBounds(t *testing.T) {
	s, _ := newSet(t)
	ip := one
	of := func(n int, kind detector.EventKind) {
		b := holder("n/b", uint32(n/maxOfInterface+2))
		b.Key.IP = ip
		s.Update(detector.Event{Kind: kind, At: start, Conflict: detector.Conflict{ID: fmt.Sprint(n, "-1"), Key: b.Key, Holders: []detector.Binding{b}}})
	}
	for n := range maxHolders {
		ip = ip.Next()
		of(n, detector.EventSuspected)
	}
	ip = ip.Next()
	of(2*maxHolders, detector.EventSuspected)
	if len(s.list) != maxHolders || len(s.open) != maxHolders {
		t.Fatalf("%d holders, %d are captured; want %d", len(s.list), len(s.open), maxHolders)
	}
	first, second := s.list[0], s.list[1]
	ip = second.key.IP
	of(1, detector.EventResolved)
	ip = netip.MustParseAddr("10.9.9.9")
	of(2*maxHolders, detector.EventSuspected)
	if len(s.list) != maxHolders || s.list[0] != first || slices.Contains(s.list, second) {
		t.Errorf("%d holders; the one that ended is not the one that was dropped", len(s.list))
	}
	// One interface has few of them.
	s, _ = newSet(t)
	for n := range 2 * maxOfInterface {
		b := holder("n/b", 2)
		ip = ip.Next()
		b.Key.IP = ip
		s.Update(detector.Event{Kind: detector.EventSuspected, At: start, Conflict: detector.Conflict{ID: fmt.Sprint(n), Key: b.Key, Holders: []detector.Binding{b}}})
	}
	if len(s.open) != maxOfInterface {
		t.Errorf("%d holders at one interface, want %d", len(s.open), maxOfInterface)
	}
	if n := bounds.Counts()["too many holders to capture the packets of"]; n < 1+maxOfInterface {
		t.Errorf("%d were counted", n)
	}
}

// A document has the last holders of an address.
func TestOf(t *testing.T) {
	s, _ := newSet(t)
	for n := range maxShown + 3 {
		id := fmt.Sprint("x-", n)
		s.Update(event(detector.EventSuspected, id, holder("n/b", 2)))
		s.Update(event(detector.EventResolved, id, holder("n/b", 2)))
	}
	list, omitted := s.Of(one, asItIs)
	if len(list) != maxShown || omitted != 3 || list[0].Conflict != "x-3" || list[0].Frames == nil {
		t.Errorf("%d captures from %s on, %d omitted", len(list), list[0].Conflict, omitted)
	}
	if list, _ := s.Of(netip.MustParseAddr("10.0.0.2"), asItIs); list != nil {
		t.Errorf("another address has %+v", list)
	}
}

// A holder that cannot be captured now is at the next event.
func TestRefusedCapture(t *testing.T) {
	s, now := newSet(t)
	capture := s.Capture
	s.Capture = func([]bpf.Address) error { return errors.New("no room") }
	s.Release = func([]bpf.Address) error { return nil }
	s.Update(event(detector.EventSuspected, "x-1", holder("n/b", 2)))
	if list, _ := s.Of(one, asItIs); list != nil {
		t.Errorf("kept %+v", list)
	}
	s.Capture = capture
	s.Update(event(detector.EventConfirmed, "x-1", holder("n/b", 2)))
	now.want(t, "the next event", 2)
}

// asItIs describes a holder as it was captured.
func asItIs(h detector.Holder) detector.Holder { return h }
