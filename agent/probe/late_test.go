package probe

import (
	"testing"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// An answer that comes too late is an announcement, whichever probe it may be meant for. A holder that was silent for long, or had not the
// address, is not late.
func TestLate(t *testing.T) {
	const ip = "10.0.0.1"
	ms := func(n int) time.Time { return start.Add(time.Duration(n) * time.Millisecond) }
	for _, tt := range []struct {
		name     string
		probes   []int // in ms
		gone     int   // when the address is not configured for a moment; 0 for never
		answers  []int
		late     []bool
		evidence detector.Evidence
	}{
		{name: "at once", probes: []int{0}, answers: []int{1}, late: []bool{false}},
		{name: "to the third", probes: []int{0, 100, 300}, answers: []int{999}, late: []bool{false}},
		{name: "too late", probes: []int{0, 100, 300}, answers: []int{1100, 1200, 1400}, late: []bool{true, true, true}},
		{name: "too late, after the next round began", probes: []int{0, 100, 300, 1500}, answers: []int{1800, 1900, 2100}, late: []bool{true, true, true}},
		{name: "after a silence", probes: []int{0, 100, 300, 5000}, answers: []int{5001}, late: []bool{false}},
		{name: "after an answer", probes: []int{0, 1000, 2000, 3000}, answers: []int{1, 1001, 2001, 3001}, late: []bool{false, false, false, false}},
		{name: "it had lost the address", probes: []int{0, 100, 300, 1500}, gone: 1000, answers: []int{1600}, late: []bool{false}},
		{name: "nobody asked", answers: []int{1600}, late: []bool{false}},
		{name: "asked by others, long after", probes: []int{0}, answers: []int{3500}, late: []bool{false}},
		{name: "prompt, but a round was lost before, and others keep asking", probes: []int{0, 100, 300, 1500, 3000, 4500, 6000, 7500}, answers: []int{1501, 3001, 4501, 6001, 7501}, late: []bool{true, true, true, true, false}},
		{name: "seen before it was probed", probes: []int{100}, answers: []int{99, 1300}, late: []bool{false, true}},
		{name: "what its kernel has", probes: []int{0, 100, 300}, answers: []int{1600}, late: []bool{false}, evidence: detector.Configured},
	} {
		w := newHarness()
		ref := w.pod(t, 7, nil, ip)
		at := 0
		for len(tt.probes)+len(tt.answers) > 0 {
			if len(tt.answers) == 0 || len(tt.probes) > 0 && tt.probes[0] <= tt.answers[0] {
				at, tt.probes = tt.probes[0], tt.probes[1:]
				if tt.gone > 0 && at > tt.gone {
					w.Expect(ref, each(), each(), ms(tt.gone))
					w.Expect(ref, each(key(ip)), each(), ms(tt.gone))
				}
				if r := w.Probe(verify(ref, ip), bpf.VLAN{}, false, ms(at)); r != (detector.ProbeRefusal{}) {
					t.Fatalf("%s: %+v", tt.name, r)
				}
				continue
			}
			s := announced(ip, ms(tt.answers[0]))
			if s.Answer = true; tt.evidence != 0 {
				s.Evidence = tt.evidence
			}
			w.Observed(ref, bpf.VLAN{}, s)
			if late := !s.Answer && s.Late > detector.AnswerTime; late != tt.late[0] || s.Answer == late {
				t.Errorf("%s: the answer after %d ms is late: %v, want %v (%v)", tt.name, tt.answers[0], late, tt.late[0], s.Late)
			}
			tt.answers, tt.late = tt.answers[1:], tt.late[1:]
		}
	}
}
