package advice

import (
	"slices"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
)

// tolerance is how far two times may be off: between nodes because of transport delays, on one node
// because its agent sees many things at once.
const tolerance = time.Second

// newest returns the holder that got the address last, the one before it, and the time between, or
// why they are unknown, as [api.Advice] has it. The order in which the sandboxes were created decides if the runtime knows
// it for all holders, and if the order in which the holders were seen does not contradict it; else
// the order in which they were seen decides.
func newest(holders []detector.Binding) *api.Advice {
	if slices.ContainsFunc(holders, func(b detector.Binding) bool { return b.Evidence == detector.Host }) {
		return &api.Advice{Unknown: "host"}
	}
	seen := latest(holders, "firstSeen", firstSeen, seenGap)
	if last := byTime(holders, firstSeen)[0]; holders[last].FoundAtStart {
		seen = &api.Advice{Unknown: "found-at-start"}
	}
	if !allCreated(holders) {
		return seen
	}
	made := latest(holders, "created", created, createdGap)
	if made.Unknown == "" && seen.Unknown == "" && *seen.Newer != *made.Newer {
		return &api.Advice{Unknown: "another-order"}
	}
	return made
}

// noticedWithin is how long after a node was lost memberlist takes it for dead.
const noticedWithin = time.Minute

// Away is when a node was lost, and came back.
type Away struct{ From, Until time.Time }

// meetAgain withdraws who is the newer one if the newest holder came while its node and that of an elder one had lost each
// other: the control plane may have given the elder's node up, and made the newer pod in place of its own.
func meetAgain(a *api.Advice, holders []detector.Binding, names map[string]string, away map[string][]Away) {
	if a.Newer == nil {
		return
	}
	newest := holders[*a.Newer]
	came := newest.FirstSeen
	if a.By == "created" {
		came = newest.Holder.CreatedAt
	}
	for n, b := range holders {
		if b.Holder.ID.Node == newest.Holder.ID.Node {
			continue
		}
		for _, node := range []string{b.Holder.ID.Node, newest.Holder.ID.Node} {
			for _, lost := range away[node] {
				if came.After(lost.From.Add(-noticedWithin)) && came.Before(lost.Until) {
					*a = api.Advice{Unknown: "away", Away: &api.Away{
						Elder: n, Newer: *a.Newer, Nodes: []string{names[b.Holder.ID.Node], names[newest.Holder.ID.Node]},
						From: lost.From.Round(0), Until: lost.Until.Round(0),
					}}
					return
				}
			}
		}
	}
}

// latest compares the last two holders by a time; gap is how far apart they must be.
func latest(
	holders []detector.Binding, by string, when func(detector.Binding) time.Time,
	gap func(last, before detector.Binding) time.Duration,
) *api.Advice {
	order := byTime(holders, when)
	last, before := order[0], order[1]
	after := when(holders[last]).Sub(when(holders[before]))
	if after <= gap(holders[last], holders[before]) {
		return &api.Advice{Unknown: "together"}
	}
	return &api.Advice{Newer: &last, Than: &before, By: by, AfterSeconds: after.Seconds()}
}

func firstSeen(b detector.Binding) time.Time { return b.FirstSeen }

func created(b detector.Binding) time.Time { return b.Holder.CreatedAt }

func allCreated(holders []detector.Binding) bool {
	return !slices.ContainsFunc(holders, func(b detector.Binding) bool { return b.Holder.CreatedAt.IsZero() })
}

// byTime returns the indexes of the holders, the latest first.
func byTime(holders []detector.Binding, when func(detector.Binding) time.Time) []int {
	var order []int
	for n := range holders {
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(x, y int) int { return when(holders[y]).Compare(when(holders[x])) })
	return order
}

// byAge returns the indexes of the holders, the newest first.
func byAge(holders []detector.Binding) []int {
	if allCreated(holders) {
		return byTime(holders, created)
	}
	return byTime(holders, firstSeen)
}

// seenGap is how far apart FirstSeen must be. A holder that came to a node after its agent is later
// than those that were there before the agent.
func seenGap(last, before detector.Binding) time.Duration {
	if before.FoundAtStart {
		return createdGap(last, before)
	}
	return tolerance
}

// createdGap is how far apart CreatedAt must be. Two times of one node come from one clock.
func createdGap(a, b detector.Binding) time.Duration {
	if a.Holder.ID.Node == b.Holder.ID.Node {
		return 0
	}
	return tolerance
}
