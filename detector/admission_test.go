package detector

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"
)

// paced is a budget with room for one round every pause, and none for checks while closed.
type paced struct {
	pause    time.Duration
	next     time.Time
	closed   bool
	reserved []Key // in this order
}

func (p *paced) Reserve(holders []Probe, _, now time.Time, check bool) (until time.Time, all bool) {
	switch {
	case now.Before(p.next):
		return p.next, true
	case check && p.closed:
		return now.Add(100 * time.Millisecond), true
	}
	p.next = now.Add(p.pause)
	for _, h := range holders {
		p.reserved = append(p.reserved, h.Key)
	}
	return time.Time{}, false
}

// auditTicket checks that a conflict waits for a round if, and only if, one of its holders does.
func auditTicket(d *Detector, e *entry) error {
	asks := ""
	for _, b := range e.bindings {
		if b.remote && b.check != nil && b.check.phase == probing && (asks == "" || b.holder.ID.Node < asks) {
			asks = b.holder.ID.Node
		}
	}
	if d.verifier.queues && asks != e.asked {
		return fmt.Errorf("%v: asks %q, counted %q", e.key, asks, e.asked)
	}
	waits := e.conflict != nil && slices.ContainsFunc(e.bindings, func(b *binding) bool { return b.check != nil && b.check.phase == queued })
	switch t := e.ticket; {
	case waits != (t != nil):
		return fmt.Errorf("%v: waits %v, has a ticket %v", e.key, waits, t != nil)
	case t == nil:
	case t.entry != e || t.Place == 0 || t.lane.Place == 0 || (t.lane.of.Place == 0) != t.lane.of.full:
		return fmt.Errorf("%v: a ticket of no lane", e.key)
	case t.check && !t.asked && t.lane.of.in != &d.conflicts.queues.checks:
		return fmt.Errorf("%v: a check in the way of suspicions", e.key)
	case t.lane.of.in.nodes[t.lane.of.node] != t.lane.of || t.lane.of.all[t.lane.id] != t.lane:
		return fmt.Errorf("%v: a lane that is not found", e.key)
	}
	return nil
}

// crowd has n addresses of a pod here and one of node n2, which have them at once.
func crowd(t *testing.T, budget Budget, n int) *world {
	t.Helper()
	w := newWorld(t, Options{Budget: budget, MaxPerInterface: n})
	for i := range n {
		w.play(fmt.Sprintf("0s a announces 10.0.1.%[1]d\n0s b@n2 announces 10.0.1.%[1]d", i), 0)
	}
	return w
}

// keys names addresses by their last number.
func lastBytes(keys []Key) (list []byte) {
	for _, k := range keys {
		list = append(list, k.IP.As4()[3])
	}
	return list
}

// What there is no room for waits, and nothing of it is refused or lost; then it is confirmed, one after the other.
func TestAdmitsOneAfterTheOther(t *testing.T) {
	budget := &paced{pause: 200 * time.Millisecond, closed: true}
	w := crowd(t, budget, 20)
	confirmed := func() int {
		return len(slices.DeleteFunc(w.d.Conflicts(false), func(c Conflict) bool { return c.State != Confirmed }))
	}
	for _, tt := range []struct {
		at   time.Duration
		want int
	}{{time.Second, 0}, {2100 * time.Millisecond, 6}, {3100 * time.Millisecond, 11}, {5200 * time.Millisecond, 20}} {
		w.run(w.start.Add(tt.at))
		if got := confirmed(); got < tt.want-1 || got > tt.want+1 {
			t.Errorf("after %v %d are confirmed, want about %d", tt.at, got, tt.want)
		}
		w.mustAudit()
	}
	if len(budget.reserved) != 20 {
		t.Errorf("%d rounds of this node's holder were admitted, want one for each address", len(budget.reserved))
	}
}

// Other nodes have turns, and so have the pairs of holders with one of them: the next conflict of a new one does not wait for all that were there
// before.
func TestAdmitsByTurns(t *testing.T) {
	budget := &paced{pause: 100 * time.Millisecond}
	w := crowd(t, budget, 20)
	for i, name := range []string{"c@n3", "d@n2"} {
		w.play(fmt.Sprintf("0s e announces 10.0.2.%[1]d\n0s %[2]s announces 10.0.2.%[1]d", 100+i, name), 0)
	}
	w.run(w.now.Add(450 * time.Millisecond))
	got := lastBytes(budget.reserved)
	for _, late := range []byte{100, 101} {
		if n := slices.Index(got, late); n < 0 || n > 3 {
			t.Errorf("admitted in the order %v, want %d after three others at most", got, late)
		}
	}
	w.mustAudit()
}

// What another node asks about is next. A node with the higher ID waits a moment for that.
func TestAdmitsWhatIsAsked(t *testing.T) {
	budget := &paced{pause: 100 * time.Millisecond}
	w := crowd(t, budget, 9)
	w.apply(w.d.Asked(Key{"default", netip.MustParseAddr("10.0.1.7")}, "n2/boot", w.now))
	if w.run(w.now.Add(110 * time.Millisecond)); !slices.Equal(lastBytes(budget.reserved), []byte{0, 7}) {
		t.Errorf("admitted %v, want 0, which there was room for, and 7", budget.reserved)
	}
	w.mustAudit()

	for self, want := range map[string]time.Duration{"n1": 0, "n3": followTime} {
		budget := &paced{}
		w := newWorld(t, Options{Node: self, Budget: budget})
		w.play("0s a announces\n0s b@n2 announces", 0)
		for len(budget.reserved) == 0 && w.now.Sub(w.start) < time.Second {
			w.run(w.now.Add(time.Millisecond))
		}
		if took := w.now.Sub(w.start); took < want || took > want+2*time.Millisecond {
			t.Errorf("node %s begins a round with n2 after %v, want %v", self, took, want)
		}
	}
}

// Checks of confirmed conflicts wait for suspicions, for a minute at most.
func TestChecksWait(t *testing.T) {
	budget := &paced{closed: true}
	w := crowd(t, budget, 1)
	w.run(w.now.Add(2 * time.Second))
	first := len(budget.reserved)
	w.run(w.now.Add(50 * time.Second))
	if n := len(budget.reserved); n != first {
		t.Errorf("%d checks while there is no room for them", n-first)
	}
	if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed {
		t.Errorf("%+v, want a confirmed conflict", c)
	}
	w.run(w.now.Add(20 * time.Second))
	if len(budget.reserved) == first {
		t.Error("no check after a minute")
	}
	w.mustAudit()
}

// A new holder of an address whose check waits does not wait, and is in nobody's way.
func TestNewcomerWhileChecksWait(t *testing.T) {
	budget := &paced{closed: true}
	w := crowd(t, budget, 1)
	w.run(w.now.Add(10 * time.Second))
	if w.d.conflicts.queues.checks.next().IsZero() {
		t.Fatal("no check waits")
	}
	first := len(budget.reserved)
	w.play("0s e announces 10.0.1.0\n0s f announces 10.0.2.9\n0s g@n2 announces 10.0.2.9", 0)
	w.run(w.now.Add(3 * time.Second))
	w.mustAudit()
	for _, c := range w.d.Conflicts(false) {
		if c.State != Confirmed {
			t.Errorf("%v is %s 3 s after it began", c.Key, c.State)
		}
	}
	if !slices.Contains(lastBytes(budget.reserved[first:]), 0) {
		t.Error("the newcomer has not been probed")
	}
}

// Only a node that has the address, too, can have a check begin early.
func TestAskedByStranger(t *testing.T) {
	for from, want := range map[string]bool{"n2/boot": true, "n7/boot": false} {
		budget := &paced{}
		w := crowd(t, budget, 1)
		w.play("0s r forwards 10.0.1.0", 0) // who does not count has no check
		w.run(w.now.Add(5 * time.Second))
		first := len(budget.reserved)
		w.apply(w.d.Asked(Key{"default", netip.MustParseAddr("10.0.1.0")}, from, w.now))
		w.run(w.now.Add(time.Millisecond))
		if got := len(budget.reserved) > first; got != want {
			t.Errorf("asked by %s: a round begins: %v, want %v", from, got, want)
		}
	}
}
