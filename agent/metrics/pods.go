package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	podsConnectedDesc = describe(PodsRuntimeConnected,
		"Whether the container runtime answers, 1 or 0; without it pods have no names.")
	podsKnownDesc = describe(PodsKnown,
		"Network namespaces with a pod's name.")
)

func podsSource(ask func(context.Context) (PodStats, error)) *source[PodStats] {
	return &source[PodStats]{
		name:     "pods",
		descs:    []*prometheus.Desc{podsConnectedDesc, podsKnownDesc},
		question: question[PodStats]{ask: ask},
		export: func(s PodStats, out sink) {
			out.gauge(podsConnectedDesc, truth(s.Connected))
			out.gauge(podsKnownDesc, float64(s.Known))
		},
	}
}
