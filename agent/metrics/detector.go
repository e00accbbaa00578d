package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dupip/dupip/detector"
)

var (
	conflictsDesc = describe(Conflicts,
		"Open conflicts that involve this node.", "state", "scope")
	conflictsTotalDesc = describe(ConflictsTotal,
		"Conflicts that were confirmed.", "scope")
	conflictsResolvedDesc = describe(ConflictsResolvedTotal,
		"Confirmed conflicts that have ended.")
	suspicionsDesc = describe(SuspicionsTotal,
		"Suspicions that were raised: an address with two live holders, not verified yet.")
	suspicionsFadedDesc = describe(SuspicionsFadedTotal,
		"Suspicions that ended without a conflict: ordinary reuse of an address.")
	bindingsDesc = describe(Bindings,
		"Addresses with their holders, by how it is known that they have them.", "evidence")
)

// detectorFigures are [DetectorStats] without what will not be exported: answers are kept
// until the next scrape.
type detectorFigures struct {
	counts  detector.Counts
	open    []detector.Conflict
	omitted int
}

func detectorSource(ask func(context.Context) (DetectorStats, error)) *source[detectorFigures] {
	s := &source[detectorFigures]{
		name: "detector",
		descs: []*prometheus.Desc{
			conflictsDesc, conflictsTotalDesc, conflictsResolvedDesc, suspicionsDesc, suspicionsFadedDesc, bindingsDesc,
			conflictInfoDesc, conflictHoldersDesc, conflictSuspectedDesc, conflictInfoOmittedDesc,
		},
		export: exportDetector,
	}
	if ask != nil {
		s.question.ask = func(ctx context.Context) (detectorFigures, error) {
			stats, err := ask(ctx)
			if err != nil {
				return detectorFigures{}, err
			}
			open, omitted := choose(stats.Open)
			return detectorFigures{stats.Counts, open, omitted}, nil
		}
	}
	return s
}

func exportDetector(f detectorFigures, out sink) {
	for scope := detector.SameNode; scope <= detector.PodHost; scope++ {
		for _, state := range []detector.State{detector.Suspected, detector.Confirmed} {
			n := f.counts.Open[detector.StateScope{State: state, Scope: scope}]
			out.gauge(conflictsDesc, float64(n), state.String(), scope.String())
		}
		out.counter(conflictsTotalDesc, f.counts.Confirmed[scope], scope.String())
	}
	out.counter(conflictsResolvedDesc, f.counts.Resolved)
	out.counter(suspicionsDesc, f.counts.Suspected)
	out.counter(suspicionsFadedDesc, f.counts.Faded)
	for evidence := detector.Forwarded; evidence <= detector.Host; evidence++ {
		out.gauge(bindingsDesc, float64(f.counts.Bindings[evidence]), evidence.String())
	}
	exportConflicts(f.open, f.omitted, out)
}
