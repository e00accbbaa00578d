package metrics

import (
	"cmp"
	"slices"
)

// maxNamed limits the interfaces with series of their own for refused packets.
const maxNamed = 20

// refusedKinds are the label values of [counts], by index.
var refusedKinds = [...]string{"data", "announced", "answers", "ring_full"}

// counts is [Refused] as an array.
type counts [len(refusedKinds)]uint64

func countsOf(r Refused) counts { return counts{r.Data, r.Announced, r.Answers, r.RingFull} }

func (t counts) sum() (n uint64) {
	for _, v := range t {
		n += v
	}
	return n
}

func (t counts) plus(more counts) counts {
	for i, v := range more {
		t[i] += v
	}
	return t
}

// since returns the increase since earlier, or everything if the counters were reset.
func (t counts) since(earlier counts) counts {
	rest := t
	for i, v := range earlier {
		if v > t[i] {
			return t
		}
		rest[i] -= v
	}
	return rest
}

// refusedCounters makes monotonic counters although interfaces come and go, and are named only while
// they are among those with most refused packets.
type refusedCounters struct {
	last map[uint32]counts // of the present interfaces, by generation
	// others is what was refused at interfaces while they were not named.
	others, total counts
}

type refusedLabels struct{ name, netns, pod string }

// update adds the present figures and returns those of the interfaces to name.
func (a *refusedCounters) update(stats InterfaceStats) (named map[refusedLabels]counts) {
	interfaces := slices.SortedFunc(slices.Values(stats.Observed), func(x, y InterfaceRefusals) int {
		return cmp.Or(
			-cmp.Compare(countsOf(x.Refused).sum(), countsOf(y.Refused).sum()),
			cmp.Compare(x.Generation, y.Generation),
		)
	})
	named = make(map[refusedLabels]counts)
	present := make(map[uint32]counts)
	total := countsOf(stats.Gone)
	for i, entry := range interfaces {
		refused := countsOf(entry.Refused)
		if refused.sum() == 0 {
			break
		}
		total = total.plus(refused)
		present[entry.Generation] = refused
		if i < maxNamed {
			// Names may be equal once they are escaped.
			at := refusedLabels{escape(entry.Name), escape(entry.Netns), escape(entry.Pod.String())}
			named[at] = named[at].plus(refused)
			continue
		}
		// Only the increase: the interface may have been named until now.
		a.others = a.others.plus(refused.since(a.last[entry.Generation]))
	}
	a.last = present
	for i, v := range total {
		a.total[i] = max(a.total[i], v)
	}
	return named
}

// export exports the interfaces and what was refused at them.
func (a *refusedCounters) export(s InterfaceStats, out *series) {
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
