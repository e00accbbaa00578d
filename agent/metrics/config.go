package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
)

var (
	configSuccessDesc = describe(ConfigLastReloadSuccess,
		"Whether the configuration file was good when it was read last, 1 or 0; a bad one leaves the old in force.")
	configTimestampDesc = describe(ConfigLastReloadTimestamp,
		"When the configuration in force was read.")
)

func configSource(ask func(context.Context) (ConfigStats, error)) *source[ConfigStats] {
	return &source[ConfigStats]{
		name:     "config",
		descs:    []*prometheus.Desc{configSuccessDesc, configTimestampDesc},
		question: question[ConfigStats]{ask: ask},
		export: func(s ConfigStats, out sink) {
			out.gauge(configSuccessDesc, truth(s.Err == nil))
			if !s.LoadedAt.IsZero() {
				out.gauge(configTimestampDesc, seconds(s.LoadedAt))
			}
		},
	}
}
