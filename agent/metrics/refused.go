package metrics

import (
	"cmp"
	"slices"
)

// maxInterfaceSeries limits the interfaces with series of their own for refused packets.
const maxInterfaceSeries = 20

// refusedKinds are the label values of [counts], by index.
var refusedKinds = [...]string{"data", "announced", "answers", "ring_full"}

// counts is [Refused] as an array.
type counts [len(refusedKinds)]uint64

func countsOf(r Refused) counts { return counts{r.Data, r.Announced, r.Answers, r.RingFull} }

func (c counts) sum() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

func (c counts) plus(more counts) counts {
	for i, v := range more {
		c[i] += v
	}
	return c
}

// since returns c minus earlier. A counter that decreased was reset; then since returns c.
func (c counts) since(earlier counts) counts {
	increase := c
	for i, v := range earlier {
		if v > c[i] {
			return c
		}
		increase[i] -= v
	}
	return increase
}

// refusedCounters exports the refused packets of interfaces. Interfaces come and go, and only those with
// most refused packets have series of their own. The exported counters never decrease.
type refusedCounters struct {
	last map[uint32]counts // of the present interfaces, by generation
	// others counts packets of interfaces while they had no series of their own. It keeps them when the
	// interface gets its own series later.
	others, total counts
}

// refusedLabels are the labels of an interface's series. The zero value is for all other interfaces.
type refusedLabels struct{ iface, netns, sourcePod string }

// update adds the increases since the last call to the sums, and returns the counters of the interfaces
// that get series of their own.
func (r *refusedCounters) update(stats InterfaceStats) (own map[refusedLabels]counts) {
	sorted := slices.SortedFunc(slices.Values(stats.Observed), func(a, b InterfaceRefusals) int {
		return cmp.Or(
			cmp.Compare(countsOf(b.Refused).sum(), countsOf(a.Refused).sum()),
			cmp.Compare(a.Generation, b.Generation),
		)
	})
	own = make(map[refusedLabels]counts)
	present := make(map[uint32]counts)
	total := countsOf(stats.Gone)
	for i, entry := range sorted {
		refused := countsOf(entry.Refused)
		if refused.sum() == 0 {
			break // so are all that follow
		}
		total = total.plus(refused)
		present[entry.Generation] = refused
		if i < maxInterfaceSeries {
			// Two interfaces have equal labels if escape shortened different names to one.
			labels := refusedLabels{escape(entry.Name), escape(entry.Netns), escape(entry.Pod.String())}
			own[labels] = own[labels].plus(refused)
			continue
		}
		// Only the increase: earlier packets may have been exported in the interface's own series.
		r.others = r.others.plus(refused.since(r.last[entry.Generation]))
	}
	r.last = present
	for i, v := range total {
		r.total[i] = max(r.total[i], v) // v decreases if Gone lacks an interface that went
	}
	return own
}

// export exports the interfaces by state and their refused packets.
func (r *refusedCounters) export(s InterfaceStats, out *series) {
	addByLabel(out, interfaces, s.States, interfaceStates...)
	out.add(dadFailed, float64(s.DADFailed))
	exported := r.update(s)
	if r.others.sum() > 0 {
		exported[refusedLabels{}] = exported[refusedLabels{}].plus(r.others)
	}
	for i, kind := range refusedKinds {
		out.add(refusedPackets, float64(r.total[i]), kind)
		for labels, refused := range exported {
			out.add(interfaceRefusedPackets, float64(refused[i]), labels.iface, labels.netns, labels.sourcePod, kind)
		}
	}
}
