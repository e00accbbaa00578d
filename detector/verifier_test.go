package detector

import (
	"testing"
	"time"
)

// asked returns holders of one address that are in a suspicion, between two rounds.
func asked(all ...Evidence) []*binding {
	e := &entry{key: Key{"default", ipv4(1)}, conflict: &conflict{state: Suspected}}
	for n, ev := range all {
		b := &binding{entry: e, holder: Holder{ID: HolderID{Node: "n1", Netns: uint64(n + 1)}}, evidence: ev, sources: make([]source, 1), check: new(check)}
		e.bindings = append(e.bindings, b)
	}
	return e.bindings
}

// away has holders on another node.
func away(list []*binding) []*binding {
	for _, b := range list {
		b.remote, b.holder.ID.Node = true, "n2"
	}
	return list
}

// Who does not answer a round is lost, by what is known of the holder; one that was proven, only after two rounds that begin 5 s apart.
func TestVerifierLoses(t *testing.T) {
	for name, tt := range map[string]struct {
		evidence         Evidence
		remote, forwards bool
		silent           float64 // proven, and silent for so long before the round; below 0: not proven
		want             *template
		stays            bool
		penalty          time.Duration
	}{
		"it sends":                     {Data, false, false, -1, noteDataOnly, true, bindingTTL},
		"it announces":                 {Announced, false, false, -1, noteNoAnswer, false, time.Second},
		"it is not listed any more":    {Configured, false, false, -1, noteUnlisted, false, time.Second},
		"it answers for what it lacks": {Announced, false, true, -1, noteForwards, true, time.Second},
		"it is elsewhere":              {Data, true, false, -1, noteNoAnswer, false, time.Second},
		"it forwards elsewhere":        {Data, true, true, -1, noteForwardsThere, false, time.Second},
		"proven, the first time":       {Announced, false, false, 0, nil, false, 0},
		"proven, again too soon":       {Announced, false, false, 4.999, nil, false, 0},
		"proven, again 5 s later":      {Announced, false, false, 5, noteNoAnswer, false, time.Second},
	} {
		list := asked(tt.evidence, Announced)
		b := list[0]
		if tt.remote {
			away(list[:1])
		}
		for _, x := range list {
			x.check.answered(clock(0), false)
		}
		b.pair()
		b.check.proven, b.check.forwards, b.check.began = tt.silent >= 0, tt.forwards, clock(10)
		if tt.silent > 0 {
			b.check.silent = clock(10 - tt.silent)
		}
		lost := new(verifier).unanswered(b, clock(11))
		if (lost == nil) != (tt.want == nil) || lost != nil && (lost.template != tt.want || lost.forwards != tt.stays) {
			t.Errorf("%s: lost %+v", name, lost)
		}
		if p := b.entry.penalties.of(b.holder.ID); (p == nil) != (tt.penalty == 0) || p != nil && p.until().Sub(clock(11)) != tt.penalty {
			t.Errorf("%s: penalty %+v, want %v", name, p, tt.penalty)
		}
		if len(list[1].check.since) != 0 {
			t.Errorf("%s: what it proved before counts", name)
		}
	}
}

// A round is postponed until a guard allows it, soonest in 10 ms here and in 1 s elsewhere, for 30 s if no time is known; for a node that does
// not reply, each time for longer.
func TestVerifierPostpones(t *testing.T) {
	v, here, there := new(verifier), asked(Data)[0], away(asked(Data))[0]
	for name, tt := range map[string]struct {
		b     *binding
		until time.Time
		want  float64
		phase phase
	}{
		"soon":           {here, clock(0.001), 0.01, waiting},
		"later":          {here, clock(7), 7, waiting},
		"no time":        {here, time.Time{}, 30, blocked},
		"elsewhere soon": {there, clock(0.5), 1, waiting},
	} {
		v.refused(tt.b, "why", tt.until, clock(0))
		if c := tt.b.check; c.phase != tt.phase || !c.due().Equal(clock(tt.want)) {
			t.Errorf("%s: phase %d until %v", name, c.phase, c.due())
		}
	}
	for n, want := range []float64{2, 4, 5, 5} {
		if v.unreachable(there, clock(0)); !there.check.due().Equal(clock(want)) {
			t.Errorf("no reply %d: until %v, want %v", n+1, there.check.due(), want)
		}
	}
	for at, want := range map[float64]float64{0.5: 1, 3: 3} { // it is seen again
		v.unreachable(there, clock(0))
		v.sighted(there, &Sighting{At: clock(at)}, clock(at))
		if began := there.check.phase == probing; began != (at == want) || !began && !there.check.due().Equal(clock(want)) {
			t.Errorf("seen after %v s: phase %d until %v", at, there.check.phase, there.check.due())
		}
	}
}

// A second round begins when the holders have been a pair for the overlap, and serves those that are due within 0.1 s. If an answer came too
// late for another one's, the holder that answered first is asked again.
func TestVerifierRounds(t *testing.T) {
	for name, tt := range map[string]struct {
		answers   []float64
		confirmed bool
		now       float64
		asks      string
		next      float64
	}{
		"before the overlap":             {[]float64{0, 0.2}, false, 1.19, "", 1.2},
		"after it":                       {[]float64{0, 0.2}, false, 1.2, "ab", 6.2},
		"soon due for a third one":       {[]float64{0, 0, 0.1}, false, 1, "", 1.1},
		"later due for a third one":      {[]float64{0, 0, 0.11}, false, 1, "abc", 1.11},
		"too late for the first":         {[]float64{0, 1.5}, false, 1.5, "a", 5},
		"all of them confirmed":          {[]float64{0, 0}, true, 4.9, "", 5},
		"confirmed, when the pause ends": {[]float64{0, 0}, true, 5, "ab", 10},
	} {
		v, list := &verifier{overlap: time.Second}, asked([]Evidence{Data, Data, Data}[:len(tt.answers)]...)
		for i, at := range tt.answers {
			list[i].check.answered(clock(at), false)
			list[i].check.proven = tt.confirmed
			list[i].pair()
		}
		_, next := v.rounds(list, tt.confirmed, clock(0), 5*time.Second, clock(tt.now))
		asks := ""
		for _, p := range v.probes {
			asks += string(rune('a' + p.Holder.Netns - 1))
		}
		if asks != tt.asks || !next.Equal(clock(tt.next)) {
			t.Errorf("%s: asks %q, next %v; want %q, %v", name, asks, next, tt.asks, tt.next)
		}
	}
}
