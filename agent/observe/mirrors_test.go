package observe

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// ask is a probe that was sent.
type ask struct {
	holder detector.HolderID
	sent   time.Time
}

// watch is that of an interface.
type watch struct{ closed chan struct{} }

func (w *watch) Close() error {
	close(w.closed)
	return nil
}

func (w *harness) watch(ifindex int) (io.Closer, error) {
	if w.watched[ifindex] != nil {
		return nil, errors.New("it is watched")
	}
	w.watched[ifindex] = &watch{make(chan struct{})}
	return w.watched[ifindex], nil
}

// mirrors is a bridge with pods without addresses of their own.
type mirrors struct {
	*harness
	*testing.T
	victim, machine, second, unseen *Interface
	began                           time.Time
	probes                          byte
}

func newMirrors(t *testing.T) *mirrors {
	w := newHarness(t, "")
	m := &mirrors{
		harness: w, T: t, began: time.Now(), victim: w.add("veth0", "", "eth0", 2, 7, "10.0.0.1"),
		machine: w.add("veth1", "", "eth0", 3, 8), second: w.add("veth2", "", "net1", 4, 8), unseen: w.add("veth3", "", "eth0", 5, 9),
	}
	w.change(m.unseen, func(l *links.Interface) { l.Seen = false })
	w.Now = func() time.Time { return m.began }
	return m
}

// probe sends a probe to the holder behind an interface, and returns its source.
func (m *mirrors) probe(i *Interface) [6]byte {
	m.probes++
	source := [6]byte{2, 0xd0, 0, 0, 0, m.probes}
	m.asked[source] = ask{i.Holder, m.began}
	return source
}

// record is one that an interface makes after a while.
func (m *mirrors) record(i *Interface, kind bpf.Kind, ip string, mac, to [6]byte, after time.Duration) (Observation, bool) {
	at := m.began.Add(after)
	if i.Seen {
		i.View.Taken = at.Add(time.Second)
	}
	r := i.packet(kind, ip, at)
	r.MAC, r.To = mac, to
	return m.Record(r)
}

// says is what a record of an interface becomes: "" is nothing.
func (m *mirrors) says(i *Interface, kind bpf.Kind, ip string, mac, to [6]byte, after time.Duration) string {
	o, ok := m.record(i, kind, ip, mac, to, after)
	switch {
	case !ok:
		return ""
	case o.Kind == Tentative:
		return "tentative"
	case kind == bpf.Answer && o.Sighting.Answer != (o.Sighting.Evidence != detector.Forwarded):
		return o.Sighting.Evidence.String() + ", and no answer"
	}
	return o.Sighting.Evidence.String()
}

// cameBack has a probe come in at an interface.
func (m *mirrors) cameBack(i *Interface, source [6]byte, after time.Duration) {
	m.Helper()
	if got := m.says(i, bpf.Tentative, "10.0.0.9", source, [6]byte{}, after); got != "" {
		m.Errorf("our own probe is %s, want nothing", got)
	}
}

const ms = time.Millisecond

// TestMirror: of a pod that sends our probes back, an answer is its own only if nobody else has given the same one before; what is unclear answers nothing.
func TestMirror(t *testing.T) {
	victimMAC, machineMAC, neighbour := [6]byte{2, 1}, [6]byte{2, 2}, [6]byte{2, 3}
	broadcast := [6]byte{255, 255, 255, 255, 255, 255}
	const ip, stranger = "10.0.0.1", "10.0.0.9"
	t.Run("a machine that is no mirror", func(t *testing.T) {
		m := newMirrors(t)
		if got := m.says(m.machine, bpf.Answer, ip, machineMAC, m.probe(m.machine), ms); got != "announced" {
			t.Errorf("its answer is %s", got)
		}
	})
	for _, tt := range []struct {
		name   string
		liar   func(m *mirrors) *Interface
		play   func(m *mirrors, i *Interface, to [6]byte) (got string)
		want   string
		before bool // only one of our probes has come back: nobody had listened before
	}{
		{name: "it answers, too", play: func(m *mirrors, i *Interface, to [6]byte) string {
			return m.says(i, bpf.Answer, ip, machineMAC, to, 2*ms)
		}, want: "announced"},
		{name: "the victim answers, too", play: func(m *mirrors, i *Interface, to [6]byte) string {
			m.says(m.victim, bpf.Answer, ip, victimMAC, to, 2*ms)
			m.says(i, bpf.Delivered, ip, victimMAC, to, 3*ms)
			return m.says(i, bpf.Answer, ip, machineMAC, to, 4*ms)
		}, want: "announced"},
		{name: "it has the victim's MAC, and is first", play: func(m *mirrors, i *Interface, to [6]byte) string {
			got := m.says(i, bpf.Answer, ip, victimMAC, to, 2*ms)
			m.says(m.victim, bpf.Answer, ip, victimMAC, to, 3*ms)
			return got
		}, want: "announced"},
		{name: "it repeats the victim's answer", play: func(m *mirrors, i *Interface, to [6]byte) string {
			m.says(m.victim, bpf.Answer, ip, victimMAC, to, 2*ms)
			return m.says(i, bpf.Answer, ip, victimMAC, to, 3*ms)
		}, want: "forwarded"},
		{name: "it repeats a stranger's answer", play: func(m *mirrors, i *Interface, to [6]byte) string {
			m.says(i, bpf.Delivered, stranger, neighbour, to, 2*ms)
			return m.says(i, bpf.Answer, stranger, neighbour, to, 3*ms)
		}, want: "forwarded"},
		{name: "it answers a neighbour", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Answer, ip, machineMAC, neighbour, heardFor+2*ms)
		}, want: "announced"},
		{name: "it answers a neighbour, or repeats what was delivered before the watch", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Answer, ip, machineMAC, neighbour, heardFor/2)
		}, want: "announced, and no answer"},
		{name: "it repeats an answer to a neighbour", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			m.says(i, bpf.Delivered, stranger, victimMAC, neighbour, heardFor+2*ms)
			return m.says(i, bpf.Answer, stranger, victimMAC, neighbour, heardFor+3*ms)
		}, want: "forwarded"},
		{name: "it answers a source that we have never used", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Answer, ip, machineMAC, [6]byte{2, 0xd0, 9, 9, 9, 9}, 2*ms)
		}, want: "announced, and no answer"},
		{name: "it announces", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Gratuitous, ip, machineMAC, broadcast, 2*ms)
		}, want: "announced"},
		{name: "it announces, before it is watched", before: true, play: func(m *mirrors, i *Interface, _ [6]byte) string {
			m.Mirrors.drop(m.machine)
			m.Mirrors.drop(m.second)
			m.Mirrors.drop(m.unseen)
			i.mirror.cameBack, m.Mirrors.cameBackLast = m.began, m.began
			return m.says(i, bpf.Gratuitous, ip, machineMAC, broadcast, 2*ms)
		}, want: "announced"},
		{name: "it repeats what another announces", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			m.says(i, bpf.Delivered, stranger, victimMAC, broadcast, 2*ms)
			return m.says(i, bpf.Gratuitous, stranger, victimMAC, broadcast, 3*ms)
		}, want: "forwarded"},
		{name: "it asks, or repeats another's question", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Announced, ip, machineMAC, broadcast, 2*ms)
		}, want: "forwarded"},
		{name: "it sends data, or another's", play: func(m *mirrors, i *Interface, _ [6]byte) string {
			return m.says(i, bpf.Data, ip, machineMAC, [6]byte{}, 2*ms)
		}, want: "forwarded"},
		{name: "it answers the probe that came back first", before: true, play: func(m *mirrors, i *Interface, to [6]byte) string {
			return m.says(i, bpf.Answer, ip, machineMAC, to, 2*ms)
		}, want: "announced, and no answer"},
	} {
		for _, unseen := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, unseen %v", tt.name, unseen), func(t *testing.T) {
				m := newMirrors(t)
				i := m.machine
				if unseen {
					i = m.unseen
				}
				to := m.probe(i)
				m.cameBack(i, to, ms)
				if !tt.before {
					m.began = m.began.Add(time.Second)
					to = m.probe(i)
				}
				if got := tt.play(m, i, to); got != tt.want {
					t.Errorf("it is %q, want %q", got, tt.want)
				}
			})
		}
	}
}

// TestWatched: a pod is watched at all its interfaces, from when one of our probes comes back until five minutes after the last.
func TestWatched(t *testing.T) {
	m := newMirrors(t)
	for name, source := range map[string][6]byte{
		"made up": {2, 0xd0, 9, 9, 9, 9}, "of another holder": m.probe(m.victim), "old": m.probe(m.machine),
	} {
		after := ms
		if name == "old" {
			after = cameBackWithin + ms
		}
		if m.cameBack(m.machine, source, after); len(m.watched) != 0 {
			t.Fatalf("a probe that is %s: %d interfaces are watched", name, len(m.watched))
		}
	}
	m.cameBack(m.second, m.probe(m.machine), ms)
	if m.watched[3] == nil || m.watched[4] == nil || len(m.watched) != 2 {
		t.Fatalf("watched: %v, want both of the machine's", m.watched)
	}
	m.Tick(m.began.Add(mirrorFor))
	if len(m.Mirrors.order) > 0 || m.Mirrors.watched != 2 {
		t.Errorf("%d answers, %d watches", len(m.Mirrors.order), m.Mirrors.watched)
	}
	m.Tick(m.began.Add(mirrorFor + time.Second))
	for _, w := range m.watched {
		<-w.closed
	}
	if m.Mirrors.watched != 0 {
		t.Errorf("%d watches", m.Mirrors.watched)
	}
	clear(m.watched)
	// It ends with the interface, or if there is another holder behind it.
	m.cameBack(m.machine, m.probe(m.machine), ms)
	m.change(m.second, func(l *links.Interface) { l.View.Cookie = 10 })
	<-m.watched[4].closed
	m.Update(links.Event{Kind: links.Removed, Interface: m.machine.Interface}, time.Now())
	<-m.watched[3].closed
	if m.Mirrors.watched != 0 {
		t.Errorf("%d watches", m.Mirrors.watched)
	}
}

// TestMirrorsAreBounded: the answers that are remembered, and the interfaces that are watched.
func TestMirrorsAreBounded(t *testing.T) {
	m := newMirrors(t)
	to := m.probe(m.victim)
	for n := range 2 * maxHeard {
		m.record(m.victim, bpf.Answer, netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}).String(), [6]byte{2}, to, ms)
	}
	if len(m.Mirrors.order) != maxHeard || len(m.Mirrors.heard) != maxHeard {
		t.Errorf("%d answers", len(m.Mirrors.order))
	}
	// What there was no room for may have been what a mirror repeats: nothing of that time is its answer.
	m.cameBack(m.machine, m.probe(m.machine), ms)
	m.began = m.began.Add(time.Second)
	asked := m.probe(m.machine)
	m.record(m.victim, bpf.Answer, "10.9.9.9", [6]byte{2}, to, ms)
	if got := m.says(m.machine, bpf.Answer, "10.0.0.1", [6]byte{2, 2}, asked, 2*ms); got != "announced, and no answer" {
		t.Errorf("an answer of a mirror is %q", got)
	}
	m.Mirrors.forget(m.began.Add(heardFor))
	if len(m.Mirrors.order)+len(m.Mirrors.heard) != 0 {
		t.Errorf("%d answers later", len(m.Mirrors.order))
	}
	for n := range 2 * maxWatches {
		i := m.add("veth", "", "eth0", 100+n, uint64(100+n))
		m.probes = byte(n)
		m.cameBack(i, m.probe(i), ms)
	}
	if len(m.watched) != maxWatches {
		t.Errorf("%d interfaces are watched", len(m.watched))
	}
}

// TestHeardEarly: an answer that came in before its interface was known was there before the mirror's.
func TestHeardEarly(t *testing.T) {
	m := newMirrors(t)
	m.cameBack(m.machine, m.probe(m.machine), ms)
	m.began = m.began.Add(time.Second)
	to, mac := m.probe(m.machine), [6]byte{2, 1}
	early := m.machine.packet(bpf.Answer, "10.0.0.3", m.began.Add(ms))
	early.Ifindex, early.Generation, early.MAC, early.To = 50, 50, mac, to
	m.Record(early)
	m.add("veth50", "", "eth0", 50, 50, "10.0.0.3")
	if got := m.says(m.machine, bpf.Answer, "10.0.0.3", mac, to, 2*ms); got != "forwarded" {
		t.Errorf("what a mirror repeats is %q", got)
	}
}

// TestNoWatch: after an interface could not be watched, none is tried for a minute, and what a mirror says only raises suspicions.
func TestNoWatch(t *testing.T) {
	m := newMirrors(t)
	tries := 0
	m.Watch = func(int) (io.Closer, error) {
		tries++
		return nil, errors.New("no")
	}
	for range 3 {
		to := m.probe(m.machine)
		m.cameBack(m.machine, to, ms)
		if got := m.says(m.machine, bpf.Answer, "10.0.0.1", [6]byte{2, 2}, to, 2*ms); got != "announced, and no answer" {
			t.Errorf("its answer is %q", got)
		}
	}
	if tries != 1 {
		t.Errorf("%d tries at once", tries)
	}
	m.began = m.began.Add(retryWatch)
	if m.cameBack(m.machine, m.probe(m.machine), ms); tries != 2 {
		t.Errorf("%d tries after a minute", tries)
	}
}

// TestMirrorsOwnAddresses: what its kernel lists is a mirror's own.
func TestMirrorsOwnAddresses(t *testing.T) {
	m := newMirrors(t)
	m.machine.View.Addresses = append(m.machine.View.Addresses, netns.Address{IP: netip.MustParseAddr("10.0.0.9"), Where: netns.OnLoopback, Valid: true})
	m.cameBack(m.machine, m.probe(m.machine), ms)
	if got := m.says(m.machine, bpf.Answer, "10.0.0.9", [6]byte{2, 2}, [6]byte{2, 3}, 2*ms); got != "announced" {
		t.Errorf("its answer is %s", got)
	}
}
