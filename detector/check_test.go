package detector

import (
	"testing"
	"time"
)

// clock is a time, in seconds from one that all tests of parts share.
func clock(seconds float64) time.Time {
	return time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC).Add(time.Duration(seconds * float64(time.Second)))
}

// A check says when something is due for its holder: the first probe, those that repeat it, and the end of the round.
func TestCheckIsDue(t *testing.T) {
	probes := func(attempts int, sent, attempted time.Time) check {
		return check{phase: probing, round: round{began: clock(0), attempts: attempts, sent: sent, attempted: attempted}}
	}
	for name, tt := range map[string]struct {
		check check
		want  time.Time
	}{
		"between rounds":                       {check{round: round{began: clock(0), attempts: 1}}, time.Time{}},
		"postponed":                            {check{phase: waiting, deferral: deferral{until: clock(7)}}, clock(7)},
		"blocked":                              {check{phase: blocked, deferral: deferral{until: clock(8)}}, clock(8)},
		"not probed yet":                       {check{phase: probing, round: round{await: clock(0.02)}}, clock(0.02)},
		"the first probe was not sent":         {probes(1, time.Time{}, clock(0.02)), clock(5.02)},
		"the first was sent":                   {probes(1, clock(0.5), clock(0.5)), clock(0.6)},
		"the second in time":                   {probes(2, clock(0.5), clock(0.6)), clock(0.8)},
		"the second late":                      {probes(2, clock(0.5), clock(0.7)), clock(0.9)},
		"the last in time: it has 1 s":         {probes(3, clock(0.5), clock(0.8)), clock(1.5)},
		"the last late: 0.7 s are left for it": {probes(3, clock(0.5), clock(0.9)), clock(1.6)},
	} {
		if got := tt.check.due(); !got.Equal(tt.want) {
			t.Errorf("%s: due %v, want %v", name, got, tt.want)
		}
	}
}

// The answers of two holders make a pair if they are at most 1 s apart, from the later one on, and the first pair stays.
func TestCheckPairs(t *testing.T) {
	for name, tt := range map[string]struct {
		mine, other []float64 // when they answered
		want        float64   // since when they are a pair; below 0: they are not
	}{
		"at once":                     {[]float64{3}, []float64{3}, 3},
		"just in time":                {[]float64{4}, []float64{3}, 4},
		"the other one is later":      {[]float64{3}, []float64{4}, 4},
		"too late":                    {[]float64{4.001}, []float64{3}, -1},
		"the other one is silent":     {[]float64{0.5}, nil, -1},
		"again":                       {[]float64{3, 5}, []float64{3.5, 5.5}, 3.5},
		"two rounds apart":            {[]float64{3}, []float64{0, 5}, -1},
		"too late, and then in time":  {[]float64{3, 5}, []float64{0, 5.5}, 5.5},
		"in time, and then much late": {[]float64{3, 9}, []float64{3, 5}, 3},
	} {
		var mine, other check
		for i := range max(len(tt.mine), len(tt.other)) {
			if i < len(tt.other) {
				other.answered(clock(tt.other[i]), false)
				other.pair(&mine)
			}
			if i < len(tt.mine) {
				mine.answered(clock(tt.mine[i]), false)
				mine.pair(&other)
			}
		}
		want := time.Time{}
		if tt.want >= 0 {
			want = clock(tt.want)
		}
		if a, b := mine.since[&other], other.since[&mine]; !a.Equal(want) || !b.Equal(want) {
			t.Errorf("%s: since %v and %v, want %v", name, a, b, want)
		}
	}
}

// Two holders have the address together from their first pair to the last question that both have answered; the answer of another node's
// holder proves no more than when it was asked.
func TestCheckTogether(t *testing.T) {
	for name, tt := range map[string]struct {
		began, mine, other float64 // the second round, and the answers in it
		remote             bool
		want               time.Duration
	}{
		"both here":                      {4, 4.5, 4.25, false, 4250 * time.Millisecond},
		"one on another node":            {4, 4.5, 4.25, true, 4 * time.Second},
		"answers 1 s apart":              {4, 5, 4, false, 4 * time.Second},
		"too far apart: not any more":    {4, 5.25, 4, false, -1},
		"too far apart, on another node": {4, 4, 5.25, true, -1},
		"asked before they were a pair":  {-1, 0.5, 0.5, true, -time.Second},
	} {
		var mine, other check
		for _, c := range []*check{&mine, &other} {
			c.answered(clock(0), false)
		}
		mine.pair(&other)
		mine.began = clock(tt.began)
		mine.answered(clock(tt.mine), tt.remote)
		other.answered(clock(tt.other), false)
		if a, b := mine.togetherWith(&other), other.togetherWith(&mine); a != tt.want || b != tt.want {
			t.Errorf("%s: together for %v and %v, want %v", name, a, b, tt.want)
		}
	}
	if got := new(check).togetherWith(new(check)); got >= 0 {
		t.Errorf("two that never answered: together for %v", got)
	}
}
