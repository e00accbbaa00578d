package advice

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// tolerance is how far two times may be off: between nodes because of transport delays, on one node
// because its agent sees many things at once.
const tolerance = time.Second

// newest returns the holder that got the address last, the one before it, and the time between, or
// why they are unknown, as [document.Advice] has it. The order in which the sandboxes were created decides if the runtime knows
// it for all holders, and if the order in which the holders were seen does not contradict it; else
// the order in which they were seen decides.
func newest(holders []document.Binding) *document.Advice {
	if slices.ContainsFunc(holders, func(b document.Binding) bool { return b.Evidence == detector.Host }) {
		return &document.Advice{Unknown: "host"}
	}
	seen := latest(holders, "firstSeen", firstSeen, seenGap)
	if last := byTime(holders, firstSeen)[0]; holders[last].FoundAtStart {
		seen = &document.Advice{Unknown: "found-at-start"}
	}
	if !allCreated(holders) {
		return seen
	}
	made := latest(holders, "created", created, createdGap)
	if made.Unknown == "" && seen.Unknown == "" && *seen.Newer != *made.Newer {
		return &document.Advice{Unknown: "another-order"}
	}
	return made
}

// noticedWithin is how long after a node was lost memberlist takes it for dead.
const noticedWithin = time.Minute

// Away is when a node was lost, and came back.
type Away struct{ From, Until time.Time }

// meetAgain withdraws who is the newer one if the newest holder came while its node and that of an elder one had lost each
// other: the control plane may have given the elder's node up, and made the newer pod in place of its own.
func meetAgain(a *document.Advice, holders []document.Binding, names map[string]string, away map[string][]Away) {
	if a.Newer == nil {
		return
	}
	newest := holders[*a.Newer]
	came := newest.FirstSeen
	if a.By == "created" {
		came = created(newest)
	}
	for n, b := range holders {
		if b.NodeID() == newest.NodeID() {
			continue
		}
		for _, node := range []string{b.NodeID(), newest.NodeID()} {
			for _, lost := range away[node] {
				if came.After(lost.From.Add(-noticedWithin)) && came.Before(lost.Until) {
					*a = document.Advice{Unknown: "away", Away: &document.Away{
						Elder: n, Newer: *a.Newer, Nodes: []string{names[b.NodeID()], names[newest.NodeID()]},
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
	holders []document.Binding, by string, when func(document.Binding) time.Time,
	gap func(last, before document.Binding) time.Duration,
) *document.Advice {
	order := byTime(holders, when)
	last, before := order[0], order[1]
	after := when(holders[last]).Sub(when(holders[before]))
	if after <= gap(holders[last], holders[before]) {
		return &document.Advice{Unknown: "together"}
	}
	return &document.Advice{Newer: &last, Than: &before, By: by, AfterSeconds: after.Seconds()}
}

func firstSeen(b document.Binding) time.Time { return b.FirstSeen }

func created(b document.Binding) time.Time { return pod(b).CreatedAt }

func allCreated(holders []document.Binding) bool {
	return !slices.ContainsFunc(holders, func(b document.Binding) bool { return created(b).IsZero() })
}

// byTime returns the indexes of the holders, the latest first.
func byTime(holders []document.Binding, when func(document.Binding) time.Time) []int {
	var order []int
	for n := range holders {
		order = append(order, n)
	}
	slices.SortStableFunc(order, func(x, y int) int { return when(holders[y]).Compare(when(holders[x])) })
	return order
}

// byAge returns the indexes of the holders, the newest first.
func byAge(holders []document.Binding) []int {
	if allCreated(holders) {
		return byTime(holders, created)
	}
	return byTime(holders, firstSeen)
}

// seenGap is how far apart FirstSeen must be. A holder that came to a node after its agent is later
// than those that were there before the agent.
func seenGap(last, before document.Binding) time.Duration {
	if before.FoundAtStart {
		return createdGap(last, before)
	}
	return tolerance
}

// createdGap is how far apart CreatedAt must be. Two times of one node come from one clock.
func createdGap(a, b document.Binding) time.Duration {
	if a.NodeID() == b.NodeID() {
		return 0
	}
	return tolerance
}
