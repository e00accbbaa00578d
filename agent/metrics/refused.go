package metrics

import (
	"cmp"
	"slices"
)

// maxRefusing bounds the interfaces that are named for their refused packets.
const maxRefusing = 20

var (
	refusedDesc = describe(RefusedPacketsTotal,
		"Packets that made no record, because they were over an interface's limits or the ring was full.", "kind")
	interfaceRefusedDesc = describe(InterfaceRefusedPacketsTotal,
		"Packets that made no record, by interface for the 20 with most; without an interface for all others.",
		"interface", "netns", "source_pod", "kind")
)

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

func (t *tally) add(more tally) {
	for i, v := range more {
		t[i] += v
	}
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
	last   map[uint32]tally // by generation, of the interfaces that are there
	others tally
	total  tally
}

// refusedSource is one named interface.
type refusedSource struct {
	name, netns, pod string
	refused          tally
}

type refusedReport struct {
	named         []refusedSource
	others, total tally
}

// update takes in the present figures.
func (a *refusedAccount) update(stats InterfaceStats) refusedReport {
	interfaces := slices.SortedFunc(slices.Values(stats.Observed), func(x, y InterfaceRefusals) int {
		return cmp.Or(
			-cmp.Compare(tallyOf(x.Refused).sum(), tallyOf(y.Refused).sum()),
			cmp.Compare(x.Generation, y.Generation),
		)
	})
	var report refusedReport
	present := make(map[uint32]tally)
	total := tallyOf(stats.Gone)
	for i, entry := range interfaces {
		refused := tallyOf(entry.Refused)
		if refused.sum() == 0 {
			break
		}
		total.add(refused)
		present[entry.Generation] = refused
		if i < maxRefusing {
			report.add(refusedSource{clean(entry.Name), clean(entry.Netns), clean(entry.Pod.String()), refused})
			continue
		}
		// Only what is new: it may have been named until now.
		a.others.add(refused.since(a.last[entry.Generation]))
	}
	a.last = present
	for i, v := range total {
		a.total[i] = max(a.total[i], v)
	}
	report.others, report.total = a.others, a.total
	return report
}

// add adds an interface; those with the same labels are one.
func (r *refusedReport) add(s refusedSource) {
	for i := range r.named {
		if n := &r.named[i]; n.name == s.name && n.netns == s.netns && n.pod == s.pod {
			n.refused.add(s.refused)
			return
		}
	}
	r.named = append(r.named, s)
}

func exportRefused(r refusedReport, out sink) {
	for i, kind := range refusedKinds {
		out.counter(refusedDesc, r.total[i], kind)
		if r.others.sum() > 0 {
			out.counter(interfaceRefusedDesc, r.others[i], "", "", "", kind)
		}
		for _, s := range r.named {
			out.counter(interfaceRefusedDesc, s.refused[i], s.name, s.netns, s.pod, kind)
		}
	}
}
