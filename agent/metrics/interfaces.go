package metrics

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

var interfacesDesc = describe(Interfaces,
	"Pod interfaces by whether they are observed; unseen_netns counts some of them again.", "state")

// interfaceStates are always there, so that an alert has a 0 to compare with.
var interfaceStates = []string{
	"attached", "shadowed", "waiting", "failed", "unsupported", "ignored", "uplink", "unseen_netns",
}

type interfaceFigures struct {
	states  map[string]int
	refused refusedReport
}

func interfacesSource(ask func(context.Context) (InterfaceStats, error)) *source[interfaceFigures] {
	s := &source[interfaceFigures]{
		name:   "interfaces",
		descs:  []*prometheus.Desc{interfacesDesc, refusedDesc, interfaceRefusedDesc},
		export: exportInterfaces,
	}
	if ask != nil {
		var account refusedAccount // one question at a time
		s.question.ask = func(ctx context.Context) (interfaceFigures, error) {
			stats, err := ask(ctx)
			if err != nil {
				return interfaceFigures{}, err
			}
			return interfaceFigures{byWord(stats.States), account.update(stats)}, nil
		}
	}
	return s
}

func exportInterfaces(f interfaceFigures, out sink) {
	for _, state := range interfaceStates {
		out.gauge(interfacesDesc, float64(f.states[state]), state)
	}
	for state, n := range f.states {
		if !slices.Contains(interfaceStates, state) {
			out.gauge(interfacesDesc, float64(n), state)
		}
	}
	exportRefused(f.refused, out)
}
