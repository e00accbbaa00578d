package detector

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// far is a suspicion of a local holder a and a remote holder b. The test calls the detector itself.
type far struct {
	*pair
	probe Probe // about b
}

func newFar(t *testing.T) *far {
	w := newWorld(t, Options{})
	f := &far{pair: &pair{world: w, a: w.actor("a"), b: w.actor("b@n2")}}
	w.d.Observe(f.a.sighting(defaultIP, Announced, w.now), w.now)
	w.now = w.now.Add(time.Second)
	f.take(w.d.Observe(f.b.sighting(defaultIP, Announced, w.now), w.now))
	f.d.Probed(f.probes[0], Result{Outcome: Sent}, w.now)
	f.answer(f.a, w.now)
	return f
}

func (f *far) take(fx Effects) {
	f.t.Helper()
	f.probes = fx.Probes
	for _, s := range f.probes {
		if s.Holder == f.b.id {
			f.probe = s
			return
		}
	}
	f.t.Fatalf("probed %+v", f.probes)
}

// There is one probe request at a time: a remote holder is not probed again until the reply is long overdue,
// also if the request was reported as sent.
func TestRemoteHoldersAreProbedOnce(t *testing.T) {
	f := newFar(t)
	f.d.Probed(f.probe, Result{Outcome: Sent}, f.now)
	for range 49 {
		if fx := f.step(100 * time.Millisecond); len(fx.Probes)+len(fx.Events) != 0 {
			t.Fatalf("%+v", fx)
		}
	}
	if fx := f.step(100 * time.Millisecond); len(fx.Probes) != 1 || fx.Probes[0].Holder != f.b.id {
		t.Fatalf("no request after the missing reply: %+v", fx)
	}
}

// Reports change nothing if they are repeated, of an earlier round, or about an unknown or a local holder.
func TestReportsThatAreNotExpected(t *testing.T) {
	f := newFar(t)
	first := f.probe
	f.take(f.step(unsentTime))
	reports := map[string]func(Probe) Effects{
		"unanswered":  func(s Probe) Effects { return f.d.Probed(s, Result{Outcome: Unanswered}, f.now) },
		"forwards":    func(s Probe) Effects { return f.d.Probed(s, Result{Outcome: Forwards}, f.now) },
		"unreachable": func(s Probe) Effects { return f.d.Probed(s, Result{Outcome: Unreachable}, f.now) },
	}
	a, unknown, elsewhere := f.probe, f.probe, f.probe
	a.Holder, a.Round = f.a.id, 0
	unknown.Holder.Netns++
	elsewhere.Key.IP = ipv4(7)
	f.d.Observe(f.a.sighting(defaultIP, Announced, f.now), f.now)
	for name, report := range reports {
		for _, s := range []Probe{first, a, unknown, elsewhere} {
			if fx := report(s); len(fx.Probes)+len(fx.Events) != 0 {
				t.Errorf("%s of %+v: %+v", name, s, fx)
			}
		}
	}
	if n := len(f.d.Bindings(nil)); n != 2 {
		t.Fatalf("%d bindings", n)
	}
	if fx := f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now); len(fx.Probes)+len(fx.Events) != 0 {
		t.Errorf("%+v", fx)
	}
	if fx := f.d.Probed(f.probe, Result{Outcome: Unanswered}, f.now); len(fx.Events) != 0 {
		t.Errorf("unanswered after it was unreachable: %+v", fx)
	}
	f.mustAudit()
}

// Unanswered and Unreachable do nothing about a local holder.
func TestLocalHoldersAreNotReported(t *testing.T) {
	p := newPair(t)
	for _, s := range p.probes {
		p.d.Probed(s, Result{Outcome: Unanswered}, p.now)
		p.d.Probed(s, Result{Outcome: Unreachable}, p.now)
	}
	if n := len(p.d.Bindings(nil)); n != 2 {
		t.Errorf("%d bindings", n)
	}
	for _, b := range p.d.Bindings(nil) {
		if b.Unreachable {
			t.Errorf("%s is unreachable", b.Holder)
		}
	}
}

// An unreachable node gets the next request after 2, 4, 5 and 5 s. A sighting of the holder
// brings the next request forward; after an answer the pauses begin at 2 s again.
func TestUnreachableIsProbedAgain(t *testing.T) {
	f := newFar(t)
	unreachable := func() bool {
		return f.d.Bindings(func(b *Binding) bool { return b.Holder.ID == f.b.id })[0].Unreachable
	}
	for _, pause := range []time.Duration{2, 4, 5, 5} {
		f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
		if !unreachable() {
			t.Fatal("it is not unreachable")
		}
		for range pause*10 - 1 {
			for _, s := range f.step(100 * time.Millisecond).Probes {
				if s.Holder == f.b.id {
					t.Fatalf("probed early, not after %d s", pause)
				}
				f.answer(f.a, f.now)
			}
		}
		f.take(f.step(100 * time.Millisecond))
		if !unreachable() {
			t.Fatal("it is not unreachable while it is probed again")
		}
	}
	f.answer(f.a, f.now)
	f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
	failed := f.now
	old := f.b.sighting(defaultIP, Announced, f.now)
	f.now = f.now.Add(300 * time.Millisecond)
	if f.d.Observe(old, f.now); !f.d.Next().After(failed.Add(retryPause)) {
		t.Errorf("a sighting as old as the failure brought the request forward: next %v", f.d.Next().Sub(failed))
	}
	f.d.Observe(f.b.sighting(defaultIP, Data, f.now), f.now)
	if got := f.d.Next().Sub(failed); got != retryPause {
		t.Errorf("after the sighting probed again %v after the failure", got)
	}
	f.take(f.step(700 * time.Millisecond))
	f.answer(f.b, f.now)
	if unreachable() {
		t.Error("unreachable after it answered")
	}
	f.mustAudit()
}

// Each outcome except Unreachable shows that the node can be reached.
func TestReachableAgain(t *testing.T) {
	outcomes := map[string]func(*far){
		"answered": func(f *far) { f.answer(f.b, f.now) },
		"refused":  func(f *far) { f.d.Probed(f.probe, Result{Refused, "solicitation is off", time.Time{}}, f.now) },
		"refused for long": func(f *far) {
			f.d.Probed(f.probe, Result{Refused, "the pod probes it", f.now.Add(10 * time.Second)}, f.now)
		},
	}
	for name, outcome := range outcomes {
		f := newFar(t)
		f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
		f.take(f.step(unreachableTime))
		outcome(f)
		for _, b := range f.d.Bindings(nil) {
			if b.Unreachable {
				t.Errorf("%s: %s is unreachable", name, b.Holder)
			}
		}
	}
}

// The story shows which node does not answer.
func TestUnreachableReason(t *testing.T) {
	f := newFar(t)
	f.d.Probed(f.probe, Result{Outcome: Unreachable}, f.now)
	if got := f.verdict(); !strings.Contains(got, "cannot be probed (node n2 does not answer)") {
		t.Errorf("verdict %q", got)
	}
}

// The delay of detection counts from when the later one of two holders was first seen, by any node.
func TestSecondSeenElsewhere(t *testing.T) {
	for _, ago := range []time.Duration{2 * time.Hour, 3 * time.Second} {
		w := newWorld(t, Options{})
		w.do("0s a announces")
		w.run(w.now.Add(10 * time.Second))
		s := w.actor("b@n2").sighting(defaultIP, Announced, w.now)
		s.FirstSeen = w.now.Add(-ago)
		w.observe(s)
		c := w.d.Conflicts(false)[0]
		if want := schedule.Later(w.start, s.FirstSeen); !c.SecondSeen.Equal(want) {
			t.Errorf("%v ago: second seen %v, want %v", ago, c.SecondSeen, want)
		}
		first, oldest := c.Holders[0].Holder.NetnsName, "a"
		if ago > time.Minute {
			oldest = "b@n2"
		}
		if first != oldest {
			t.Errorf("%v ago: the oldest holder is %s, want %s", ago, first, oldest)
		}
	}
}

// A node may report later that its holder is older, because it restored its state. It cannot report later
// that the holder is younger.
func TestFirstSeenElsewhereOnlyGoesBack(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.run(w.now.Add(10 * time.Second))
	for _, step := range []struct{ says, want time.Duration }{
		{5 * time.Second, 5 * time.Second}, {time.Hour, time.Hour}, {time.Minute, time.Hour}, {-time.Minute, time.Hour},
	} {
		s := w.actor("b@n2").sighting(defaultIP, Announced, w.now)
		s.FirstSeen = w.now.Add(-step.says)
		w.observe(s)
		b := w.d.table.entries[s.Key].find(s.Holder.ID)
		if got := w.now.Sub(b.firstSeen); got != step.want {
			t.Errorf("its node says %v ago: first seen %v ago, want %v", step.says, got, step.want)
		}
	}
}

// A hostile node may report any sighting.
func TestHostileBindings(t *testing.T) {
	w := newWorld(t, Options{MaxPerInterface: 2})
	w.do("0s a announces")
	hostile := w.actor("b@n2").sighting(defaultIP, Announced, w.now)
	hostile.FirstSeen, hostile.Occurrences = time.Unix(0, 0), math.MaxInt
	hostile.Holder.Interface = w.actor("a").iface // not an interface of this node
	w.d.Observe(hostile, w.now)
	if n := len(w.d.table.ifaces[w.actor("a").iface]); n != 1 {
		t.Errorf("%d bindings on a's interface", n)
	}
	for _, b := range w.d.Bindings(nil) {
		if !plausible(b.FirstSeen) {
			t.Errorf("first seen %v", b.FirstSeen)
		}
	}
	if got, want := w.d.Conflicts(false)[0].ID, conflictID(hostile.Key, 1); got != want {
		t.Errorf("id %s, want %s", got, want)
	}
	for _, spoil := range []func(*Sighting){
		func(s *Sighting) { s.Evidence = Forwarded },
		func(s *Sighting) { s.Holder.ID.Netns = 0 },
		func(s *Sighting) { s.Holder.ID.Ifindex = 1 },
		func(s *Sighting) { s.Holder.ID.Generation = 1 },
	} {
		s := hostile
		spoil(&s)
		w.d.Observe(s, w.now)
	}
	if n := w.d.Counts().Refused[refusedInvalid]; n != 4 {
		t.Errorf("%d refused as invalid", n)
	}
	for i := range 100 {
		w.do(fmt.Sprintf("0s c%d@n%d forges", i, 3+i%10))
		w.do(fmt.Sprintf("0s c%d@n%d forges %s", i, 3+i%10, ipv4(99)))
	}
	w.mustAudit()
	n := w.d.Counts().Refused
	if n[refusedKeyFull] != 100-maxRemote+1 || n[refusedNoHolder] != 100 {
		t.Errorf("refused %v", n)
	}
	if n := w.d.Counts(); n.Remote != maxRemote || n.Bindings[Announced] != 1 {
		t.Errorf("%d remote, %v", n.Remote, n.Bindings)
	}
	// There is still room for the local ones.
	w.do("0s d announces")
	if !w.d.Holds(hostile.Key, w.actor("d").id) {
		t.Error("a local holder has no room")
	}
}

// Many remote holders that cannot be probed make room for one that can.
func TestUnprobedMakeRoom(t *testing.T) {
	for _, failure := range []string{"0s c%[1]d@m%[1]d unreachable", "0s c%[1]d@m%[1]d guarded x"} {
		w := newWorld(t, Options{})
		w.do("0s a announces")
		for i := range maxRemote {
			w.do(fmt.Sprintf(failure, i))
			w.do(fmt.Sprintf("0s c%[1]d@m%[1]d announces", i))
		}
		w.run(w.now.Add(10 * time.Second))
		w.do("0s b@n2 announces")
		w.mustAudit()
		w.run(w.now.Add(10 * time.Second))
		w.mustAudit()
		if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed || len(c[0].Holders) != 2 {
			t.Errorf("%s: conflicts %+v", failure, c)
		}
		if n := w.d.Counts(); n.Remote != maxRemote || n.Evicted[refusedKeyFull] != 1 {
			t.Errorf("%s: %d remote, evicted %v", failure, n.Remote, n.Evicted)
		}
	}
}

// A holder of a confirmed conflict does not make room, even if it is silent and unreachable.
func TestProvenHoldersStay(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b@n2 announces
		2s b@n2 mute
		8s b@n2 unreachable`, 12*time.Second)
	for i := range maxRemote {
		w.do(fmt.Sprintf("0s c%[1]d@m%[1]d unreachable", i))
		w.do(fmt.Sprintf("0s c%[1]d@m%[1]d announces", i))
		w.run(w.now.Add(3 * time.Second))
	}
	w.mustAudit()
	if n := w.d.Counts(); n.Remote != maxRemote || n.Evicted[refusedKeyFull] != 1 {
		t.Errorf("%d remote, evicted %v", n.Remote, n.Evicted)
	}
	if !w.d.Holds(Key{"default", defaultIP}, w.actor("b@n2").id) {
		t.Error("b made room for another one")
	}
}

// Remote holders are not probed because they are silent: their nodes do that.
func TestRemoteHoldersAreNotRefreshed(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s host announces
		0s host@n2 announces`, 4*time.Minute)
	for _, a := range w.probed {
		if a.s.Holder.Node != "n1" {
			t.Errorf("probed %+v", a)
		}
	}
	w.run(w.now.Add(2 * time.Minute))
	if n := len(w.d.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings after the TTL", n)
	}
}

// Only this agent's generations begin at 1 after a restart.
func TestRestoredHoldersWithoutNetns(t *testing.T) {
	key := Key{"default", defaultIP}
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	local := HolderID{Node: "n1", Ifindex: 5, Generation: 1}
	remote := HolderID{Node: "n2/boot", Ifindex: 5, Generation: 1}
	c := Conflict{ID: conflictID(key, 1), Key: key, State: Confirmed, SuspectedAt: now, ConfirmedAt: now}
	for _, id := range []HolderID{local, remote} {
		c.Holders = append(c.Holders, Binding{Holder: Holder{ID: id}, Evidence: Announced, FirstSeen: now, LastSeen: now})
	}
	d := New(Options{Node: "n1"})
	d.Restore(Snapshot{Open: []Conflict{c}}, now)
	holders := d.Conflicts(false)[0].Holders
	if got := holders[0].Holder.ID.Generation; got != 1|previousGeneration {
		t.Errorf("the local holder has generation %d", got)
	}
	if got := holders[1].Holder.ID; got != remote {
		t.Errorf("the remote holder is %+v", got)
	}
}

// A holder that left a conflict and is still listed there gets a name that is found later.
func TestDescribeAtALostHolder(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b@n2 announces`, 2*time.Second)
	b := w.actor("b@n2")
	w.d.Withdraw(Key{"default", defaultIP}, b.id, "gone", w.now)
	w.d.Describe(b.id, func(_ Key, h *Holder) { *h = Holder{NetnsName: "named"} }, w.now, Key{"default", defaultIP})
	c := w.d.Conflicts(false)
	if len(c) != 1 || len(c[0].Holders) != 2 {
		t.Fatalf("conflicts %+v, want one that keeps both holders for a while", c)
	}
	for _, h := range c[0].Holders {
		if named := h.Holder.NetnsName == "named"; named != (h.Holder.ID == b.id) {
			t.Errorf("holder %+v", h.Holder)
		}
	}
	w.mustAudit()
}

// Two holders are silent. The one here is found silent, too, although the other one's node replies first: when either answers again, it is
// a new holder, of which the other node learns.
func TestBothSilent(t *testing.T) {
	w := newWorld(t, Options{})
	f := &far{pair: &pair{world: w, a: w.actor("a"), b: w.actor("b@n2")}}
	w.d.Observe(f.a.sighting(defaultIP, Announced, w.now), w.now)
	f.take(w.d.Observe(f.b.sighting(defaultIP, Announced, w.now), w.now))
	began := w.now
	for w.now.Sub(began) < 2*AnswerTime+awaitRequestTime {
		for _, p := range f.step(10 * time.Millisecond).Probes {
			w.d.Probed(p, Result{Outcome: Sent}, w.now)
		}
		if w.now.Sub(began) == AnswerTime {
			w.d.Probed(f.probe, Result{Outcome: Unanswered}, w.now)
			if n := len(w.d.Conflicts(false)); n != 1 {
				t.Fatalf("%d conflicts while the holder here is asked", n)
			}
		}
	}
	if f.step(10 * time.Millisecond); len(w.d.Conflicts(false)) != 0 || len(w.d.Bindings(nil)) != 0 {
		t.Errorf("both were silent, and are %+v", w.d.Bindings(nil))
	}
	w.mustAudit()
}
