package agent

import (
	"context"
	"maps"

	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/bpf"
)

// sources are the questions of a scrape to the agent's parts.
func (a *Agent) sources() metrics.Sources {
	sources := metrics.Sources{
		Version: a.opts.Version,
		Node:    a.node.Name,
		BootID:  a.node.BootID,
		Attach:  string(a.observer.Mode()),
		Log:     a.log,
		Detector: func(ctx context.Context) (stats metrics.DetectorStats, err error) {
			err = a.loop.do(ctx, func() {
				stats = metrics.DetectorStats{Counts: a.loop.detector.Counts(), Open: a.loop.detector.Conflicts(false)}
			})
			return stats, err
		},
		Interfaces: func(ctx context.Context) (stats metrics.InterfaceStats, err error) {
			err = a.loop.do(ctx, func() { stats = a.loop.interfaceStats() })
			return stats, err
		},
		Agent: func(ctx context.Context) (stats metrics.AgentStats, err error) {
			err = a.loop.do(ctx, func() { stats = a.loop.stats() })
			stats.NetlinkOverruns = uint64(a.watcher.Overruns())
			return stats, err
		},
		State: func(context.Context) (metrics.StateStats, error) {
			written, bytes, err := a.store.Status()
			return metrics.StateStats{LastWrite: written, Err: err, Bytes: bytes}, nil
		},
	}
	// What is not there has no metrics, rather than some that look like trouble.
	if !a.pods.Status().Disabled {
		sources.Pods = func(context.Context) (metrics.PodStats, error) {
			status := a.pods.Status()
			return metrics.PodStats{Connected: status.Connected, Known: status.Named}, nil
		}
	}
	if a.cluster != nil {
		sources.Cluster = a.clusterStats
	}
	if a.opts.Config != "" {
		sources.Config = func(context.Context) (metrics.ConfigStats, error) {
			loadedAt, err := a.config.Status()
			return metrics.ConfigStats{LoadedAt: loadedAt, Err: err}, nil
		}
	}
	return sources
}

// healthy fails when the loop does not answer.
func (a *Agent) healthy(ctx context.Context) error { return a.loop.do(ctx, func() {}) }

// ready fails until the agent has attached to what was there when it started.
func (a *Agent) ready(ctx context.Context) error { return a.loop.ask(ctx, func() {}) }

func (l *loop) interfaceStats() metrics.InterfaceStats {
	stats := metrics.InterfaceStats{States: l.byState(), Gone: refusals(l.goneRefused)}
	for _, i := range l.interfaces {
		if counters, err := l.observer.Counters(i.Index); err == nil {
			i.refused.read(counters)
		}
		stats.Observed = append(stats.Observed, metrics.InterfaceRefusals{
			Generation: i.Generation,
			Name:       i.Name,
			Netns:      label(i.Place),
			Pod:        i.pod,
			Refused:    refusals(i.refused.total()),
		})
	}
	return stats
}

func refusals(c bpf.Counters) metrics.Refused {
	return metrics.Refused{
		Data: c.RefusedData, Announced: c.RefusedAnnounced, Answers: c.RefusedAnswers, RingFull: c.RingFull,
	}
}

func (l *loop) stats() metrics.AgentStats {
	counts := l.detector.Counts()
	stats := metrics.AgentStats{
		Dropped:       l.droppedByReason(counts),
		Suppressed:    make(map[string]uint64),
		Solicitations: maps.Clone(l.solicited),
		Pending:       l.pending(),
	}
	for reason, n := range counts.Suppressed {
		stats.Suppressed[reason.String()] = n
	}
	return stats
}
