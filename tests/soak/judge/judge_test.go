package judge

import (
	"slices"
	"testing"
	"time"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	const s = time.Second
	deafOne := []stretch{{holder: a, from: 1 * s, until: 28 * s}, {holder: b, from: 5 * s, until: 28 * s, deaf: true}}
	shared := []stretch{{holder: a, from: 1 * s, until: 30 * s}, {holder: b, from: 5 * s, until: 15 * s}}
	for _, tt := range []struct {
		name string
		play play
		want map[Kind]int
		// long and found are the tally's.
		long, found int
	}{
		{
			name: "clean", long: 1, found: 1,
			play: play{has: shared, reports: both(6500*ms, 18*s, a, b)},
		},
		{
			name: "no reports", long: 1,
			play: play{has: shared},
			want: map[Kind]int{Overdue: 2, Missed: 2},
		},
		{
			name: "one of the two reports nothing", long: 1,
			play: play{has: shared, reports: both(6500*ms, 18*s, a, b)[:1]},
			want: map[Kind]int{Overdue: 1, Missed: 1},
		},
		{
			name: "only suspected", long: 1,
			play: play{has: shared, reports: []report{
				{node: n1, from: 5500 * ms, until: 15 * s, holders: []Holder{a, b}, suspected: true},
				{node: n2, from: 6 * s, until: 18 * s, holders: []Holder{a, b}},
			}},
			want: map[Kind]int{Overdue: 1, Missed: 1},
		},
		{
			name: "too brief to be missed",
			play: play{has: []stretch{{holder: a, from: 1 * s, until: 30 * s}, {holder: b, from: 5 * s, until: 8250 * ms}}},
		},
		{
			name: "late at both nodes", long: 1, found: 1,
			play: play{has: shared, reports: both(9200*ms, 18*s, a, b)},
			want: map[Kind]int{Overdue: 2, Late: 2},
		},
		{
			name: "as late as allowed", long: 1, found: 1,
			play: play{has: shared, reports: both(8*s, 18*s, a, b)},
		},
		{
			name: "nobody could look", long: 1, found: 1,
			play: play{has: shared, reports: both(9200*ms, 18*s, a, b), stallFrom: 6 * s, stall: 3 * s},
		},
		{
			name: "invented: nobody else ever had it",
			play: play{has: shared[:1], reports: both(6500*ms, 8*s, a, b)},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "invented: one after the other",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 5 * s}, {holder: b, from: 6 * s, until: 30 * s}},
				reports: both(6800*ms, 8*s, a, b),
			},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "invented: too briefly together",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 6 * s}, {holder: b, from: 5750 * ms, until: 30 * s}},
				reports: both(6800*ms, 8*s, a, b),
			},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "just long enough, for all that is known",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 5750 * ms}, {holder: b, from: 5 * s, until: 30 * s}},
				reports: both(5900*ms, 8*s, a, b),
			},
		},
		{
			name: "invented: long ago",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 7 * s}, {holder: b, from: 5 * s, until: 30 * s}},
				reports: both(9*s, 10*s, a, b),
			},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "invented: perhaps a dying one answers, and nobody else",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 5 * s}, {holder: a, from: 5 * s, until: 5750 * ms, maybe: true}, {holder: b, from: 6 * s, until: 30 * s}},
				reports: both(7*s, 8*s, a, b),
			},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "a dying one answers", found: 0,
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 5 * s}, {holder: a, from: 5 * s, until: 7 * s, maybe: true}, {holder: b, from: 5 * s, until: 30 * s}},
				reports: both(6800*ms, 8*s, a, b),
			},
		},
		{
			name: "wrong: a holder too many", long: 1, found: 1,
			play: play{has: shared, reports: both(6500*ms, 18*s, a, b, c)},
			want: map[Kind]int{Wrong: 2},
		},
		{
			name: "wrong: one is named twice", long: 1, found: 1,
			play: play{has: shared, reports: both(6500*ms, 18*s, a, b, b)},
			want: map[Kind]int{Wrong: 2},
		},
		{
			name: "wrong: reported where no holder is", long: 1, found: 1,
			play: play{has: shared, reports: append(both(6500*ms, 18*s, a, b), report{node: n3, from: 6500 * ms, until: 8 * s, holders: []Holder{a, b}})},
			want: map[Kind]int{Wrong: 1},
		},
		{
			name: "wrong: one has gone long ago", long: 3, found: 3,
			play: play{
				has: append(shared[:2:2], stretch{holder: c, from: 5 * s, until: 30 * s}),
				reports: append(both(6500*ms, 30*s, a, b, c),
					report{node: n3, from: 6500 * ms, until: 30 * s, holders: []Holder{a, b, c}}),
			},
			want: map[Kind]int{Wrong: 2, Lingering: 1},
		},
		{
			name: "one of three is left out", long: 3, found: 1,
			play: play{
				has: append(shared[:2:2], stretch{holder: c, from: 5 * s, until: 15 * s}),
				reports: append(both(6500*ms, 18*s, a, b),
					report{node: n3, from: 6500 * ms, until: 18 * s, holders: []Holder{a, c}}),
			},
			// The pairs of c with a at node 1, and with b at nodes 2 and 3.
			want: map[Kind]int{Overdue: 3, Missed: 3},
		},
		{
			name: "dropped and found again", long: 1, found: 1,
			play: play{has: shared, reports: append(both(6500*ms, 9*s, a, b), both(10*s, 18*s, a, b)...)},
			want: map[Kind]int{Dropped: 2},
		},
		{
			name: "one loses it while an agent answers", long: 1, found: 1,
			play: play{
				has:     []stretch{shared[0], {holder: b, from: 5 * s, until: 15200 * ms}},
				reports: both(6500*ms, 15050*ms, a, b), slow: 300 * ms,
			},
		},
		{
			name: "lingering", long: 1, found: 1,
			play: play{has: shared, reports: both(6500*ms, 24*s, a, b)},
			want: map[Kind]int{Lingering: 2},
		},
		{
			name: "goes on for as long as allowed", long: 1, found: 1,
			play: play{has: shared, reports: both(6500*ms, 22700*ms, a, b)},
		},
		{
			name: "in polls only", long: 1, found: 1,
			play: play{has: shared, reports: polledOnly(both(6500*ms, 18*s, a, b))},
		},
		{
			name: "invented, in polls only",
			play: play{has: shared[:1], reports: polledOnly(both(6500*ms, 8*s, a, b))},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "invented: long ago, in polls only",
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 7 * s}, {holder: b, from: 5 * s, until: 30 * s}},
				reports: polledOnly(both(9500*ms, 10500*ms, a, b)),
			},
			want: map[Kind]int{Invented: 2},
		},
		{
			name: "wrong, in polls only", long: 1, found: 1,
			play: play{has: shared, reports: polledOnly(both(6500*ms, 12*s, a, b, c))},
			want: map[Kind]int{Wrong: 2, Dropped: 2},
		},
		{
			name: "restored, and never shared",
			play: play{
				has:     shared[:1],
				reports: polledOnly(both(9*s, 12*s, a, b)[1:]),
				down:    []stretch{{holder: b, from: 7 * s, until: 9 * s}},
			},
			want: map[Kind]int{Invented: 1},
		},
		{
			name: "restored, and over meanwhile", long: 1, found: 1,
			play: play{
				has: []stretch{{holder: a, from: 1 * s, until: 30 * s}, {holder: b, from: 5 * s, until: 10 * s}},
				reports: append(both(6500*ms, 12*s, a, b),
					report{node: n2, from: 13 * s, until: 15 * s, holders: []Holder{a, b}, mute: true}),
				down: []stretch{{holder: b, from: 9 * s, until: 13 * s}},
			},
		},
		{
			name: "restored, with one that came just before", long: 1, found: 1,
			play: play{
				has: []stretch{
					{holder: a, from: 1 * s, until: 30 * s},
					{holder: b, from: 5 * s, until: 10 * s},
					{holder: c, from: 11 * s, until: 11500 * ms},
				},
				reports: append(both(6500*ms, 11900*ms, a, b),
					report{node: n1, from: 11900 * ms, until: 14 * s, holders: []Holder{a, c}, mute: true}),
				down: []stretch{{holder: a, from: 11600 * ms, until: 11800 * ms}},
			},
		},
		{
			name: "the last answer before the end of an agent", long: 1, found: 1,
			play: play{
				has:     []stretch{{holder: a, from: 1 * s, until: 30 * s}, {holder: b, from: 5 * s, until: 8500 * ms}},
				reports: both(6500*ms, 11300*ms, a, b),
				down:    []stretch{{holder: b, from: 11100 * ms, until: 12 * s}},
			},
		},
		{
			name: "wrong: a holder too many comes later", long: 1, found: 1,
			play: play{has: shared, reports: append(both(6500*ms, 8*s, a, b),
				report{node: n1, from: 8 * s, until: 12 * s, holders: []Holder{a, b, c}, kind: "changed"},
				report{node: n1, from: 12 * s, until: 18 * s, holders: []Holder{a, b}, kind: "changed"},
				report{node: n2, from: 8 * s, until: 18 * s, holders: []Holder{a, b}, mute: true})},
			want: map[Kind]int{Wrong: 1},
		},
		{
			name: "a third one comes later", long: 3, found: 3,
			play: play{
				has: append(shared[:2:2], stretch{holder: c, from: 9 * s, until: 15 * s}),
				reports: append(both(6500*ms, 10*s, a, b),
					report{node: n1, from: 10 * s, until: 18 * s, holders: []Holder{a, b, c}, kind: "changed"},
					report{node: n2, from: 10 * s, until: 18 * s, holders: []Holder{a, b, c}, kind: "changed"},
					report{node: n3, from: 10500 * ms, until: 18 * s, holders: []Holder{a, b, c}}),
			},
		},
		{
			name: "a lingering suspicion",
			play: play{has: shared[:1], reports: []report{{node: n1, from: 5 * s, until: 25 * s, holders: []Holder{a, b}, suspected: true}}},
			want: map[Kind]int{Suspicious: 1},
		},
		{
			name: "a short suspicion",
			play: play{has: shared[:1], reports: []report{{node: n1, from: 5 * s, until: 19 * s, holders: []Holder{a, b}, suspected: true}}},
		},
		{
			name: "a suspicion from before the restart lingers",
			play: play{
				has:     shared[:1],
				reports: []report{{node: n1, from: 6 * s, until: 29 * s, holders: []Holder{a, b}, suspected: true}},
				down:    []stretch{{holder: b, from: 3 * s, until: 4 * s}},
			},
		},
		{
			name: "a suspicion that begins after a restart lingers",
			play: play{
				has:     shared[:1],
				reports: []report{{node: n1, from: 9500 * ms, until: 29 * s, holders: []Holder{a, b}, suspected: true}},
				down:    []stretch{{holder: b, from: 3 * s, until: 4 * s}},
			},
			want: map[Kind]int{Suspicious: 1},
		},
		{
			name: "a third's agent is down and does not answer", long: 2, found: 1,
			play: play{
				has:     append(slices.Clone(shared), stretch{holder: c, from: 2 * s, until: 8 * s}),
				reports: both(9500*ms, 18*s, a, b),
				down:    []stretch{{holder: c, from: 4 * s, until: 9 * s}},
			},
		},
		{
			name: "a third's agent is down, and that is no excuse for so long", long: 2, found: 1,
			play: play{
				has:     append(slices.Clone(shared), stretch{holder: c, from: 2 * s, until: 8 * s}),
				reports: both(12*s, 18*s, a, b),
				down:    []stretch{{holder: c, from: 4 * s, until: 9 * s}},
			},
			want: map[Kind]int{Overdue: 2, Late: 2},
		},
		{
			name: "somebody's agent is down who does not have it", long: 1, found: 1,
			play: play{
				has:     shared,
				reports: both(9500*ms, 18*s, a, b),
				down:    []stretch{{holder: c, from: 4 * s, until: 9 * s}},
			},
			want: map[Kind]int{Overdue: 2, Late: 2},
		},
		{
			name: "an agent is down, and its successor finds it", long: 1, found: 1,
			play: play{
				has: shared,
				reports: []report{
					{node: n1, from: 14500 * ms, until: 18 * s, holders: []Holder{a, b}},
					{node: n2, from: 14500 * ms, until: 18 * s, holders: []Holder{a, b}},
				},
				down: []stretch{{holder: b, from: 4 * s, until: 7 * s}},
			},
		},
		{
			name: "an agent is down, and its successor never finds it", long: 1, found: 1,
			play: play{
				has: []stretch{{holder: a, from: 1 * s, until: 35 * s}, {holder: b, from: 5 * s, until: 35 * s}},
				reports: []report{
					{node: n1, from: 6500 * ms, until: 35 * s, holders: []Holder{a, b}},
					{node: n2, from: 6500 * ms, until: 8 * s, holders: []Holder{a, b}},
				},
				down: []stretch{{holder: b, from: 8 * s, until: 9 * s}},
			},
			want: map[Kind]int{Overdue: 1},
		},
		{
			name: "an agent is down, and its successor finds it before it is known to be there", long: 1, found: 1,
			play: play{
				has: shared,
				reports: []report{
					{node: n1, from: 9400 * ms, until: 18 * s, holders: []Holder{a, b}},
					{node: n2, from: 9400 * ms, until: 18 * s, holders: []Holder{a, b}},
				},
				down: []stretch{{holder: b, from: 6 * s, until: 9500 * ms}},
			},
		},
		{
			name: "deaf, as late as allowed", long: 1, found: 1,
			play: play{has: deafOne, reports: both(24900*ms, 29*s, a, b)},
		},
		{
			name: "deaf, and late", long: 1, found: 1,
			play: play{has: deafOne, reports: both(26*s, 29*s, a, b)},
			want: map[Kind]int{Overdue: 2, Late: 2},
		},
		{
			name: "deaf, and never found", long: 1,
			play: play{has: deafOne},
			want: map[Kind]int{Overdue: 2, Missed: 2},
		},
		{
			name: "deaf, and too brief to be missed",
			play: play{has: []stretch{shared[0], {holder: b, from: 5 * s, until: 24 * s, deaf: true}}},
		},
		{
			name: "the deaf one may be found late, two others not", long: 3, found: 3,
			play: play{
				has: append(deafOne[:2:2], stretch{holder: c, from: 5 * s, until: 30 * s}),
				reports: append(both(15*s, 30*s, a, b, c),
					report{node: n3, from: 15 * s, until: 30 * s, holders: []Holder{a, b, c}}),
			},
			want: map[Kind]int{Overdue: 2, Late: 2},
		},
		{
			name: "hosts are no duplicates of each other",
			play: play{has: []stretch{{holder: h2, from: s, until: 30 * s}, {holder: h3, from: s, until: 30 * s}}},
		},
		{
			name: "a pod and a node", long: 1,
			play: play{has: []stretch{{holder: h2, from: s, until: 30 * s}, {holder: a, from: 5 * s, until: 15 * s}}},
			want: map[Kind]int{Overdue: 2, Missed: 2},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.play.length = 29 * s
			got, j, all := tt.play.judge()
			for _, kind := range []Kind{Overdue, Missed, Late, Invented, Wrong, Dropped, Lingering, Suspicious} {
				if got[kind] != tt.want[kind] {
					t.Errorf("%s: got %d, want %d", kind, got[kind], tt.want[kind])
				}
			}
			if tally := j.Tally(); tally.Long != tt.long || tally.Found != tt.found {
				t.Errorf("got %d long, %d found; want %d and %d", tally.Long, tally.Found, tt.long, tt.found)
			}
			if t.Failed() {
				for _, f := range all {
					t.Logf("%7.3f %v", f.At.Seconds(), f)
				}
			}
		})
	}
}
