package metrics

import (
	"cmp"
	"slices"
)

// maxRefusing bounds the interfaces that are named for their refused packets.
const maxRefusing = 20

// refusedKinds are the label values of [tally], by index.
var refusedKinds = [...]string{"data", "announced", "answers", "ring_full"}

// tally is [Refused] to reckon with.
type tally [len(refusedKinds)]uint64

func tallyOf(r Refused) tally { return tally{r.Data, r.Announced, r.Answers, r.RingFull} }

func (t tally) sum() (n uint64) {
	for _, v := range t {
		n += v
	}
	return n
}

func (t tally) plus(more tally) tally {
	for i, v := range more {
		t[i] += v
	}
	return t
}

// since is what came on top of an earlier tally, or everything if it began anew.
func (t tally) since(earlier tally) tally {
	rest := t
	for i, v := range earlier {
		if v > t[i] {
			return t
		}
		rest[i] -= v
	}
	return rest
}

// refusedAccount makes counters that never go back of figures of interfaces that come
// and go, and that trade places between the named and the others.
type refusedAccount struct {
	last map[uint32]tally // by generation, of the interfaces that are there
	// others is what was refused at interfaces while they were not named.
	others, total tally
}

// origin is an interface with who is behind it, in labels.
type origin struct{ name, netns, pod string }

// update takes in the present figures and returns those of the interfaces to name.
func (a *refusedAccount) update(stats InterfaceStats) (named map[origin]tally) {
	interfaces := slices.SortedFunc(slices.Values(stats.Observed), func(x, y InterfaceRefusals) int {
		return cmp.Or(
			-cmp.Compare(tallyOf(x.Refused).sum(), tallyOf(y.Refused).sum()),
			cmp.Compare(x.Generation, y.Generation),
		)
	})
	named = make(map[origin]tally)
	present := make(map[uint32]tally)
	total := tallyOf(stats.Gone)
	for i, entry := range interfaces {
		refused := tallyOf(entry.Refused)
		if refused.sum() == 0 {
			break
		}
		total = total.plus(refused)
		present[entry.Generation] = refused
		if i < maxRefusing {
			// Names may be the same once they are cleaned.
			at := origin{clean(entry.Name), clean(entry.Netns), clean(entry.Pod.String())}
			named[at] = named[at].plus(refused)
			continue
		}
		// Only what is new: it may have been named until now.
		a.others = a.others.plus(refused.since(a.last[entry.Generation]))
	}
	a.last = present
	for i, v := range total {
		a.total[i] = max(a.total[i], v)
	}
	return named
}

// export exports the interfaces and what was refused at them.
func (a *refusedAccount) export(s InterfaceStats, out *series) {
	addLabels(out, interfaces, s.States, interfaceStates...)
	named := a.update(s)
	for i, kind := range refusedKinds {
		out.add(refusedPackets, float64(a.total[i]), kind)
		if a.others.sum() > 0 {
			out.add(interfaceRefusedPackets, float64(a.others[i]), "", "", "", kind)
		}
		for at, refused := range named {
			out.add(interfaceRefusedPackets, float64(refused[i]), at.name, at.netns, at.pod, kind)
		}
	}
}
