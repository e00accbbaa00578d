package metrics

import (
	"cmp"
	"slices"
)

// maxInterfaceSeries limits the interfaces with series of their own for refused packets.
const maxInterfaceSeries = 20

// refusedKinds are the label values of [Refused], by index.
var refusedKinds = [...]string{"data", "announced", "answers", "ring_full"}

func (c Refused) sum() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// add adds what has come since an earlier count.
func (c *Refused) add(now, earlier Refused) {
	for i := range c {
		c[i] += now[i] - earlier[i]
	}
}

// refusedCounters exports the refused packets of interfaces. Interfaces come and go, and only those with
// most refused packets have series of their own. The exported counters never decrease.
type refusedCounters struct {
	last map[uint32]Refused // of the present interfaces, by generation
	// others counts packets of interfaces while they had no series of their own. It keeps them when the
	// interface gets its own series later.
	others Refused
}

// refusedLabels are the labels of an interface's series. The zero value is for all other interfaces.
type refusedLabels struct{ iface, netns, sourcePod string }

// update adds the increases since the last call to the sums, and returns the counters of the interfaces
// that get series of their own.
func (r *refusedCounters) update(observed []InterfaceRefusals) (own map[refusedLabels]*Refused) {
	sorted := slices.SortedFunc(slices.Values(observed), func(a, b InterfaceRefusals) int {
		return cmp.Or(cmp.Compare(b.Refused.sum(), a.Refused.sum()), cmp.Compare(a.Generation, b.Generation))
	})
	own = make(map[refusedLabels]*Refused)
	present := make(map[uint32]Refused)
	for i, entry := range sorted {
		if entry.Refused.sum() == 0 {
			break // so are all that follow
		}
		present[entry.Generation] = entry.Refused
		if i >= maxInterfaceSeries {
			// Only the increase: earlier packets may have been exported in the interface's own series.
			r.others.add(entry.Refused, r.last[entry.Generation])
			continue
		}
		// Two interfaces have equal labels if escape shortened different names to one.
		labels := refusedLabels{escape(entry.Name), escape(entry.Netns), escape(entry.Pod.String())}
		own[labels] = cmp.Or(own[labels], new(Refused))
		own[labels].add(entry.Refused, Refused{})
	}
	r.last = present
	return own
}

// export exports the refused packets of interfaces, and their total.
func (r *refusedCounters) export(observed []InterfaceRefusals, total Refused, out *series) {
	exported := r.update(observed)
	if r.others.sum() > 0 {
		exported[refusedLabels{}] = cmp.Or(exported[refusedLabels{}], new(Refused))
		exported[refusedLabels{}].add(r.others, Refused{})
	}
	for i, kind := range refusedKinds {
		out.add(refusedPackets, float64(total[i]), kind)
		for labels, refused := range exported {
			out.add(interfaceRefusedPackets, float64(refused[i]), labels.iface, labels.netns, labels.sourcePod, kind)
		}
	}
}
