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

// exportRefused exports the refused packets of the interfaces with most, and the total.
func exportRefused(observed []InterfaceRefusals, total Refused, out *series) {
	type labels struct{ iface, netns, sourcePod string }
	most := slices.SortedFunc(slices.Values(observed), func(a, b InterfaceRefusals) int {
		return cmp.Or(cmp.Compare(b.Refused.sum(), a.Refused.sum()), cmp.Compare(a.Generation, b.Generation))
	})
	sums := make(map[labels]Refused)
	for _, entry := range most[:min(len(most), maxInterfaceSeries)] {
		if entry.Refused.sum() == 0 {
			break // so are all that follow
		}
		// Two interfaces have equal labels if escape shortened different names to one.
		key := labels{escape(entry.Name), escape(entry.Netns), escape(entry.Pod.String())}
		sum := sums[key]
		for i, n := range entry.Refused {
			sum[i] += n
		}
		sums[key] = sum
	}
	for i, kind := range refusedKinds {
		out.add(refusedPackets, float64(total[i]), kind)
		for key, sum := range sums {
			out.add(interfaceRefusedPackets, float64(sum[i]), key.iface, key.netns, key.sourcePod, kind)
		}
	}
}
