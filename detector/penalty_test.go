package detector

import (
	"testing"
	"time"
)

// Who announces an address and does not answer is suppressed for twice as long each time, up to a quarter of the TTL; who only sends, for the TTL.
func TestPenaltyDoubles(t *testing.T) {
	const s = time.Second
	for name, tt := range map[string]struct {
		announced []bool
		want      []time.Duration
	}{
		"it announces": {
			[]bool{true, true, true, true, true, true, true, true, true},
			[]time.Duration{1 * s, 2 * s, 4 * s, 8 * s, 16 * s, 32 * s, 64 * s, 75 * s, 75 * s},
		},
		"it sends":                    {[]bool{false, false}, []time.Duration{300 * s, 300 * s}},
		"it sends, and announces":     {[]bool{false, true, true}, []time.Duration{300 * s, 1 * s, 2 * s}},
		"it has announced, and sends": {[]bool{true, false}, []time.Duration{1 * s, 2 * s}},
	} {
		var all penalties
		for i, announced := range tt.announced {
			if got := all.add(HolderID{Netns: 1}, announced, clock(float64(i))); got != tt.want[i] {
				t.Errorf("%s: %v after penalty %d, want %v", name, got, i+1, tt.want[i])
			}
		}
	}
	last := penalty{level: 1000, at: clock(0)}
	if got := last.until().Sub(clock(0)); got != 75*s {
		t.Errorf("%v after 1000 penalties", got)
	}
}

// A penalty suppresses what is no stronger than what was not answered for, until its time is over. Stronger evidence ends it, and so does an
// answer, which leaves the number of penalties as it was.
func TestPenaltyWeakens(t *testing.T) {
	for name, tt := range map[string]struct {
		announced bool // or else it has only sent
		after     float64
		evidence  Evidence
		answer    bool
		want      Evidence
		next      time.Duration // of another penalty, for an announcement
	}{
		"it sends again":                      {false, 299.9, Data, false, Forwarded, time.Second},
		"it is only configured":               {false, 1, Configured, false, Forwarded, time.Second},
		"it sends when the time is over":      {false, 300, Data, false, Data, time.Second},
		"the sender announces":                {false, 1, Announced, false, Announced, time.Second},
		"the sender claims":                   {false, 1, Claimed, false, Claimed, time.Second},
		"the sender answers":                  {false, 1, Configured, true, Configured, time.Second},
		"it announces again":                  {true, 0.9, Announced, false, Forwarded, 2 * time.Second},
		"it claims":                           {true, 0.9, Claimed, false, Forwarded, 2 * time.Second},
		"it announces when the time is over":  {true, 1, Announced, false, Announced, 2 * time.Second},
		"it is the node":                      {true, 0.9, Host, false, Host, time.Second},
		"it answers":                          {true, 0.9, Announced, true, Announced, 2 * time.Second},
		"it answers for what it has not":      {true, 0.9, Forwarded, true, Forwarded, 2 * time.Second},
		"it is configured as an answer":       {true, 0.9, Configured, true, Configured, 2 * time.Second},
		"the sender answers for what has not": {false, 1, Forwarded, true, Forwarded, time.Second},
	} {
		var all penalties
		id := HolderID{Netns: 1}
		all.add(id, tt.announced, clock(0))
		s := Sighting{Holder: Holder{ID: id}, Evidence: tt.evidence, Answer: tt.answer}
		if got := all.effective(&s, clock(tt.after)); got != tt.want {
			t.Errorf("%s: counts as %s, want %s", name, got, tt.want)
		}
		if tt.answer && tt.evidence != Forwarded {
			if got := all.suppressed(id, clock(tt.after)); got != 0 {
				t.Errorf("%s: %s does not count afterwards", name, got)
			}
		}
		if got := all.add(id, true, clock(tt.after)); got != tt.next {
			t.Errorf("%s: the next penalty is %v, want %v", name, got, tt.next)
		}
	}
}

// A penalty is forgotten after the TTL: the next one is as the first.
func TestPenaltyIsForgotten(t *testing.T) {
	for after, want := range map[float64]time.Duration{299.9: 2 * time.Second, 300: time.Second} {
		var all penalties
		all.add(HolderID{Netns: 1}, true, clock(0))
		if got := all.add(HolderID{Netns: 1}, true, clock(after)); got != want {
			t.Errorf("%v after %v s, want %v", got, after, want)
		}
		if all.add(HolderID{Netns: 2}, true, clock(after+300)); len(all) != 1 {
			t.Errorf("%d penalties 5 min later", len(all))
		}
	}
}

// When as many holders have penalties as may, the first of them makes room for another one, and for nobody who has one.
func TestPenaltyBound(t *testing.T) {
	var all penalties
	for n := range uint64(maxPenalties) {
		all.add(HolderID{Netns: n + 1}, true, clock(0))
	}
	all.add(HolderID{Netns: maxPenalties}, true, clock(1))
	if len(all) != maxPenalties || all.of(HolderID{Netns: 1}) == nil {
		t.Errorf("%d penalties, the first is %v", len(all), all.of(HolderID{Netns: 1}))
	}
	all.add(HolderID{Netns: maxPenalties + 1}, true, clock(1))
	if len(all) != maxPenalties || all.of(HolderID{Netns: 1}) != nil || all.of(HolderID{Netns: 2}) == nil {
		t.Errorf("%d penalties after one too many, from %+v on", len(all), all[0])
	}
}
