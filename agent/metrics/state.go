package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	stateSuccessDesc = describe(StateLastWriteSuccess,
		"Whether the latest write of the state succeeded, 1 or 0.")
	stateTimestampDesc = describe(StateLastWriteTimestamp,
		"When the state was written last; it is written only when it has changed.")
	stateSizeDesc = describe(StateSizeBytes,
		"Size of the state on disk.")
)

func stateSource(ask func(context.Context) (StateStats, error)) *source[StateStats] {
	return &source[StateStats]{
		name:     "state",
		descs:    []*prometheus.Desc{stateSuccessDesc, stateTimestampDesc, stateSizeDesc},
		question: question[StateStats]{ask: ask},
		export: func(s StateStats, out sink) {
			out.gauge(stateSuccessDesc, truth(s.Err == nil))
			if !s.LastWrite.IsZero() {
				out.gauge(stateTimestampDesc, seconds(s.LastWrite))
			}
			out.gauge(stateSizeDesc, float64(s.Bytes))
		},
	}
}
