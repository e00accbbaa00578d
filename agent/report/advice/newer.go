package advice

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
)

// noise is by how much times of two nodes may differ because of what carried them, and times
// of one node because its agent learns of many things at once.
const tolerance = time.Second

// The reasons for which it is not known who is the newer one, as in [api.Advice].
const (
	foundAtStart = "found-at-start"
	sameTime     = "together"
	anotherOrder = "another-order"
	hostAddress  = "host"
	unreachable  = "unreachable"
	twoNodes     = "two-nodes"
)

// newest returns the holder that has the address for the shortest time, the one next to it,
// and by how much, or why that is not known. The creation of the sandboxes says it where the
// runtime tells it of all, unless it is known that they were seen in another order; else the
// order in which they were seen.
func newest(holders []detector.Binding) (newer, than int, by string, after time.Duration, unknown string) {
	if slices.ContainsFunc(holders, func(b detector.Binding) bool { return b.Evidence == detector.Host }) {
		return 0, 0, "", 0, hostAddress
	}
	seen, beforeSeen, reason := latest(holders, func(b detector.Binding) span {
		s := span{b.FirstSeen, b.FirstSeen}
		if b.FoundAtStart {
			s.from = time.Time{}
		}
		return s
	}, seenGap)
	if !allCreated(holders) {
		if reason != "" {
			return 0, 0, "", 0, reason
		}
		return seen, beforeSeen, "firstSeen", holders[seen].FirstSeen.Sub(holders[beforeSeen].FirstSeen), ""
	}
	made, beforeMade, unmade := latest(holders, func(b detector.Binding) span {
		return span{b.Holder.CreatedAt, b.Holder.CreatedAt}
	}, createdGap)
	switch {
	case unmade != "":
		return 0, 0, "", 0, unmade
	case reason == "" && seen != made:
		return 0, 0, "", 0, anotherOrder
	}
	return made, beforeMade, "created", holders[made].Holder.CreatedAt.Sub(holders[beforeMade].Holder.CreatedAt), ""
}

// apartSeen is how much first sights have to differ to say which was first. Who came to a node
// after its agent is later than who was there before.
func seenGap(last, before detector.Binding) time.Duration {
	if last.Holder.ID.Node == before.Holder.ID.Node && before.FoundAtStart {
		return 0
	}
	return tolerance
}

// apart is how much the creation of two sandboxes has to differ to say which was first. One
// runtime tells it by one clock.
func createdGap(a, b detector.Binding) time.Duration {
	if a.Holder.ID.Node == b.Holder.ID.Node {
		return 0
	}
	return tolerance
}

func allCreated(holders []detector.Binding) bool {
	return !slices.ContainsFunc(holders, func(b detector.Binding) bool { return b.Holder.CreatedAt.IsZero() })
}

// span is when something happened; from is zero where only the end is known.
type span struct{ from, to time.Time }

// latest returns the holder whose time is after those of all others, the last of those, and
// why there is none.
func latest(holders []detector.Binding, when func(detector.Binding) span, gap func(last, before detector.Binding) time.Duration) (last, before int, unknown string) {
	for n := range holders {
		if when(holders[n]).to.After(when(holders[last]).to) {
			last = n
		}
	}
	before = -1
	for n := range holders {
		if n != last && (before < 0 || when(holders[n]).to.After(when(holders[before]).to)) {
			before = n
		}
	}
	switch from, to := when(holders[last]).from, when(holders[before]).to; {
	case from.IsZero():
		return 0, 0, foundAtStart
	case !from.After(to.Add(gap(holders[last], holders[before]))):
		return 0, 0, sameTime
	}
	return last, before, ""
}
