package detector

import (
	gocmp "cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A holder that does not answer is probed three times in a round, one that answers once.
func TestAttempts(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		10s b forges`, 5*time.Second)
	s := func(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }
	if diff := cmp.Diff([]time.Duration{s(10), s(10.1), s(10.3)}, w.probedAt("b", Verify)); diff != "" {
		t.Errorf("probed b (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{s(10)}, w.probedAt("a", Verify)); diff != "" {
		t.Errorf("probed a (-want +got):\n%s", diff)
	}
}

func TestRecheckRhythm(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces`, 12*time.Second)
	want := []time.Duration{0, time.Second, 6 * time.Second, 11 * time.Second}
	for _, name := range []string{"a", "b"} {
		if diff := cmp.Diff(want, w.probedAt(name, Verify)); diff != "" {
			t.Errorf("probed %s (-want +got):\n%s", name, diff)
		}
	}
}

// An answer that is too late for the other holder's is paired with the next one. Holders whose answers are not too
// old are not probed again.
func TestLateAnswers(t *testing.T) {
	for _, tt := range []struct {
		name, script string
		confirmed    string
		probed       map[string][]float64 // seconds
	}{
		{
			name: "in round 2",
			script: `0s a announces
				0s b announces
				0.5s b guarded 2s DAD`,
			confirmed: "2.5s confirmed a b",
			probed:    map[string][]float64{"a": {0, 1, 2.5}, "b": {0, 1, 2.5}},
		},
		{
			name: "of a newcomer, shortly after the others answered",
			script: `0s a announces
				0s b announces
				6.5s c announces`,
			confirmed: "7.5s changed a b c",
			probed:    map[string][]float64{"a": {0, 1, 6, 7.5}, "c": {6.5, 7.5}},
		},
		{
			name: "of a newcomer, long after the others answered",
			script: `0s a announces
				0s b announces
				8s c announces`,
			confirmed: "9s changed a b c",
			probed:    map[string][]float64{"a": {0, 1, 6, 8, 9}, "c": {8, 9}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.proof = proof{}
			w.play(tt.script, 2500*time.Millisecond)
			if !slices.Contains(w.log(), tt.confirmed) {
				t.Errorf("events %q, want %s", w.log(), tt.confirmed)
			}
			for name, seconds := range tt.probed {
				var want []time.Duration
				for _, s := range seconds {
					want = append(want, time.Duration(s*float64(time.Second)))
				}
				if diff := cmp.Diff(want, w.probedAt(name, Verify)); diff != "" {
					t.Errorf("probed %s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// The probe of a local holder waits for the request of a remote holder's node, and serves both.
func TestOneProbeForTwoNodes(t *testing.T) {
	for verb, want := range map[string]time.Duration{"reachable": 0, "unreachable": awaitTime} {
		w := newWorld(t, Options{})
		w.play("0s b@n2 "+verb+`
			0s a announces
			0s b@n2 announces`, 1050*time.Millisecond)
		if diff := cmp.Diff([]time.Duration{want}, w.probedAt("a", Verify)[:1]); diff != "" {
			t.Errorf("the other node is %s: probed a (-want +got):\n%s", verb, diff)
		}
	}
}

// The proven overlap is at least MinOverlap, for any MinOverlap.
func TestMinOverlap(t *testing.T) {
	for _, overlap := range []time.Duration{50 * time.Millisecond, time.Second, 10 * time.Second} {
		w := newWorld(t, Options{MinOverlap: overlap})
		w.proof = proof{}
		w.play(`0s a announces
			1s b announces`, overlap+time.Second)
		c := w.d.Conflicts(false)
		if len(c) != 1 || c[0].State != Confirmed {
			t.Fatalf("%v: %+v", overlap, c)
		}
		if took := c[0].ConfirmedAt.Sub(c[0].SuspectedAt); took < overlap || took > overlap+10*time.Millisecond {
			t.Errorf("%v: took %v", overlap, took)
		}
	}
}

// pair is a suspicion of two holders. The test calls the detector itself.
type pair struct {
	*world
	a, b   *actor
	probes []Probe
}

func newPair(t *testing.T) *pair {
	w := newWorld(t, Options{})
	p := &pair{world: w, a: w.actor("a"), b: w.actor("b")}
	w.d.Observe(p.a.sighting(defaultIP, Announced, w.now), w.now)
	w.now = w.now.Add(time.Second)
	p.probes = w.d.Observe(p.b.sighting(defaultIP, Announced, w.now), w.now).Probes
	if len(p.probes) != 2 {
		t.Fatalf("probed %+v", p.probes)
	}
	return p
}

func (p *pair) answer(a *actor, at time.Time) Effects {
	s := a.sighting(defaultIP, Announced, at)
	s.Answer = true
	return p.d.Observe(s, p.now)
}

func (p *pair) step(d time.Duration) Effects {
	p.now = p.now.Add(d)
	return p.d.Tick(p.now)
}

// An answer from before the round began does not count, however late it arrives.
func TestAnswersFromBeforeTheRound(t *testing.T) {
	p := newPair(t)
	for _, s := range p.probes {
		p.d.Probed(s, Result{Outcome: Sent}, p.now)
	}
	began := p.now
	p.now = p.now.Add(50 * time.Millisecond)
	p.answer(p.a, began.Add(-time.Millisecond))
	p.answer(p.b, began)
	probes := p.step(60 * time.Millisecond).Probes
	if len(probes) != 1 || probes[0].Holder != p.a.id {
		t.Errorf("probed again %+v", probes)
	}
}

// An answer between the rounds does not count for the second round.
func TestAnswersBetweenTheRounds(t *testing.T) {
	p := newPair(t)
	p.answer(p.a, p.now)
	p.answer(p.b, p.now)
	p.now = p.now.Add(900 * time.Millisecond)
	p.answer(p.a, p.now)
	p.answer(p.b, p.now)
	fx := p.step(100 * time.Millisecond)
	if len(fx.Events) != 0 || len(fx.Probes) != 2 {
		t.Fatalf("%+v", fx)
	}
	p.now = p.now.Add(time.Millisecond)
	if fx := p.answer(p.a, p.now); len(fx.Events) != 0 {
		t.Fatalf("%+v", fx)
	}
	fx = p.answer(p.b, p.now)
	if len(fx.Events) != 1 || fx.Events[0].Kind != EventConfirmed {
		t.Fatalf("%+v", fx)
	}
}

// The deadline of a round counts from the first report that it was sent. A report of an earlier round
// changes nothing.
func TestDeadlineRunsFromTheReport(t *testing.T) {
	p := newPair(t)
	p.answer(p.a, p.now)
	if fx := p.step(3 * time.Second); len(fx.Events) != 0 || len(fx.Probes) != 0 {
		t.Fatalf("without a report: %+v", fx)
	}
	p.d.Probed(p.probes[1], Result{Outcome: Sent}, p.now)
	if fx := p.step(999 * time.Millisecond); len(fx.Events) != 0 {
		t.Fatalf("before the deadline: %+v", fx)
	}
	if fx := p.answer(p.b, p.now); len(fx.Probes) != 1 || fx.Probes[0].Holder != p.a.id {
		t.Fatalf("the answers are too far apart, but the first one does not begin again: %+v", fx)
	}
	for _, s := range p.probes {
		p.d.Probed(s, Result{Outcome: Sent}, p.now) // of the first round
	}
	if fx := p.step(4 * time.Second); len(fx.Probes) != 0 || len(fx.Events) != 0 {
		t.Fatalf("a stale report counted: %+v", fx)
	}
	// Never reported: probed again after 5 s.
	if fx := p.step(time.Second); len(fx.Probes) != 1 || len(fx.Events) != 0 {
		t.Fatalf("not probed again: %+v", fx)
	}
}

// After a late Tick a holder is not silent before it was probed often enough.
func TestLateTick(t *testing.T) {
	p := newPair(t)
	for _, s := range p.probes {
		p.d.Probed(s, Result{Outcome: Sent}, p.now)
	}
	for range 2 {
		if fx := p.step(10 * time.Second); len(fx.Events) != 0 || len(fx.Probes) != 2 {
			t.Fatalf("%+v", fx)
		}
	}
	if fx := p.step(699 * time.Millisecond); len(fx.Events) != 0 {
		t.Fatalf("%+v", fx)
	}
	if fx := p.step(time.Millisecond); len(fx.Events) != 1 || fx.Events[0].Kind != EventFaded {
		t.Fatalf("%+v", fx)
	}
}

// A conflict ends although a pod crashes again and again, if each of its sandboxes ends before two rounds.
func TestCrashLoopLetsAConflictEnd(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		10s b gone`, 0)
	for range 20 {
		w.do("0s c changes-netns")
		w.do("0s c changes-interface")
		w.do("0s c announces")
		w.run(w.now.Add(900 * time.Millisecond))
		w.do("0s c gone")
		w.run(w.now.Add(10 * time.Millisecond))
	}
	if diff := cmp.Diff([]string{"0s suspected a b", "1s confirmed a b"}, w.log()[:2]); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	resolved := w.d.Conflicts(true)
	if n := w.d.Counts(); n.Resolved != 1 || n.Confirmed[SameNode] != 1 {
		t.Fatalf("%d resolved, %d confirmed", n.Resolved, n.Confirmed[SameNode])
	}
	c := resolved[len(resolved)-1]
	if took := c.ResolvedAt.Sub(w.start); took < 13*time.Second || took > 16100*time.Millisecond {
		t.Errorf("resolved at %v", took)
	}
}

// The delay of detection counts from the first evidence of the second holder that counts.
func TestSecondSeen(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a forwards
		10s b announces
		20s a announces`, 0)
	c := w.d.Conflicts(false)[0]
	if got := c.SecondSeen.Sub(w.start); got != 20*time.Second {
		t.Errorf("second seen at %v", got)
	}
	if got := c.Holders[0].Holder.String(); got != "a" {
		t.Errorf("the oldest holder is %s, want a", got)
	}
}

// When the interface on which a holder is probed is gone, a whole new round begins on its other
// interface.
func TestRoundRestartsOnTheOtherInterface(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	b := w.actor("b")
	first := b.iface
	w.do("0s b mute")
	w.do("0s b forges")
	w.do("0s b changes-interface")
	w.do("0s b forges")
	w.run(w.now.Add(900 * time.Millisecond))
	w.do("0s b takes")
	w.do("0s b unmute")
	w.apply(w.d.WithdrawInterface(first, "gone", w.now))
	w.run(w.now.Add(2 * time.Second))
	if diff := cmp.Diff([]string{"0s suspected a b", "1.9s confirmed a b"}, w.log()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

func TestProvenTogether(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tests := []struct {
		name  string
		spans []span
		want  int
	}{
		{"both, a second apart", []span{{0, 1}, {0, 1}}, 2},
		{"not quite a second apart", []span{{0, 1}, {0.1, 1.05}}, 0},
		{"one answered once", []span{{0, 1}, {0, 0}}, 0},
		{"the first answers are too far apart", []span{{0, 5}, {3, 5}}, 0},
		{"the latest answers are too far apart", []span{{0, 1}, {0, 5}}, 0},
		{"three", []span{{0, 1.2}, {0.1, 1.2}, {0.2, 1.3}}, 3},
		{"two of three", []span{{0, 1.2}, {0.1, 1.2}, {0.9, 1.3}}, 2},
		{"one after the other", []span{{0, 1}, {1, 2}}, 0},
	}
	for _, tt := range tests {
		var list []*binding
		for range tt.spans {
			list = append(list, &binding{evidence: Data})
		}
		answerAll(start, list, tt.spans)
		if got := len((&verifier{overlap: time.Second}).proven(list)); got != tt.want {
			t.Errorf("%s: %d proven, want %d", tt.name, got, tt.want)
		}
	}
}

// span is when a holder answered first and last, in seconds.
type span [2]float64

// answerAll has holders answer twice.
func answerAll(start time.Time, list []*binding, spans []span) {
	e := &entry{bindings: list}
	for _, b := range list {
		b.entry, b.check = e, new(check)
	}
	for round := range 2 {
		order := make([]int, len(list))
		for i := range order {
			order[i] = i
		}
		slices.SortStableFunc(order, func(i, j int) int { return gocmp.Compare(spans[i][round], spans[j][round]) })
		for _, i := range order {
			at := start.Add(time.Duration(spans[i][round] * float64(time.Second)))
			list[i].check.latest, list[i].check.asked = at, at
			list[i].pair()
		}
	}
}

// A holder keeps its binding on the second interface when the first is gone.
func TestTwoInterfacesOfOneHolder(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	a := w.actor("a")
	first := a.iface
	w.run(w.now.Add(time.Second))
	w.do("0s a changes-interface")
	w.do("0s a announces")
	w.do("0s b announces")
	if s := w.probed[0].s; s.Interface != a.iface {
		t.Errorf("probed on %v, want the latest %v", s.Interface, a.iface)
	}
	w.run(w.now.Add(100 * time.Millisecond))
	w.apply(w.d.WithdrawInterface(first, "gone", w.now))
	w.run(w.now.Add(2 * time.Second))
	w.mustAudit()
	if diff := cmp.Diff([]string{"1s suspected a b", "2s confirmed a b"}, w.log()); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if n := len(w.d.Conflicts(false)[0].Holders); n != 2 {
		t.Errorf("%d holders", n)
	}
	w.apply(w.d.WithdrawInterface(a.iface, "gone", w.now))
	if n := len(w.d.Bindings(nil)); n != 1 {
		t.Errorf("%d bindings", n)
	}
}

// 250 duplicates begin at once, more than the rate limit allows to probe. All are found, and none fades
// meanwhile.
func TestManyAtOnceUnderARateLimit(t *testing.T) {
	const pairs, rate = 250, 200 // holders a second
	w := newWorld(t, Options{})
	tokens, filled := float64(rate), w.now
	w.limit = func() bool {
		tokens = min(rate, tokens+rate*w.now.Sub(filled).Seconds())
		filled = w.now
		if tokens < 1 {
			return false
		}
		tokens--
		return true
	}
	for i := range pairs {
		w.do(fmt.Sprintf("0s a%d announces %s", i, ipv4(i)))
	}
	for i := range pairs {
		w.run(w.now.Add(time.Millisecond))
		w.do(fmt.Sprintf("0s b%d announces %s", i, ipv4(i)))
	}
	w.run(w.now.Add(20 * time.Second))
	var took []time.Duration
	for _, c := range w.d.Conflicts(false) {
		if c.State == Confirmed {
			took = append(took, c.ConfirmedAt.Sub(c.SecondSeen))
		}
	}
	if n := w.d.Counts().Faded; n != 0 {
		t.Errorf("%d faded", n)
	}
	slices.Sort(took)
	if len(took) != pairs {
		t.Fatalf("%d of %d found", len(took), pairs)
	}
	if first, last := took[0], took[pairs-1]; first > 1200*time.Millisecond || last > 6*time.Second {
		t.Errorf("the first took %v, the last %v", first, last)
	}
}
