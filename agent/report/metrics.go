package report

import (
	"context"

	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Sources are what a scrape asks the agent's parts.
func (r *Report) Sources() metrics.Sources {
	sources := metrics.Sources{
		Version: r.Self.Version,
		Node:    r.Self.Name,
		BootID:  r.Self.Boot,
		Attach:  r.Attach,
		Log:     r.Log,
		Detector: func(ctx context.Context) (stats metrics.DetectorStats, err error) {
			err = r.Do(ctx, func() {
				stats = metrics.DetectorStats{Counts: r.Detector.Counts(), Open: r.Detector.Conflicts(false)}
			})
			return stats, err
		},
		Interfaces: func(ctx context.Context) (stats metrics.InterfaceStats, err error) {
			err = r.Do(ctx, func() { stats = r.interfaceStats() })
			return stats, err
		},
		Agent: func(ctx context.Context) (stats metrics.AgentStats, err error) {
			err = r.Do(ctx, func() { stats = r.agentStats() })
			stats.NetlinkOverruns = uint64(r.Watcher.Overruns())
			return stats, err
		},
		State: func(context.Context) (metrics.StateStats, error) {
			written, bytes, err := r.Store.Status()
			return metrics.StateStats{LastWrite: written, Err: err, Bytes: bytes}, nil
		},
	}
	// What is not there has no metrics, rather than some that look like a problem.
	if !r.Pods.Status().Disabled {
		sources.Pods = func(context.Context) (metrics.PodStats, error) {
			status := r.Pods.Status()
			return metrics.PodStats{Connected: status.Connected, Known: status.Named}, nil
		}
	}
	if !r.alone() {
		sources.Cluster = r.clusterStats
	}
	if r.ConfigPath != "" {
		sources.Config = func(context.Context) (metrics.ConfigStats, error) {
			loadedAt, err := r.Config.Status()
			return metrics.ConfigStats{LoadedAt: loadedAt, Err: err}, nil
		}
	}
	return sources
}

func (r *Report) interfaceStats() metrics.InterfaceStats {
	stats := metrics.InterfaceStats{States: r.byState(), Gone: refused(r.Table.RefusedGone())}
	for i := range r.Table.All() {
		stats.Observed = append(stats.Observed, metrics.InterfaceRefusals{
			Generation: i.Generation,
			Name:       i.Name,
			Netns:      i.NetnsName(),
			Pod:        i.Pod.Pod,
			Refused:    refused(r.Table.Refused(i)),
		})
	}
	return stats
}

func refused(c bpf.Counters) metrics.Refused {
	return metrics.Refused{
		Data: c.RefusedData, Announced: c.RefusedAnnounced, Answers: c.RefusedAnswers, RingFull: c.RingFull,
	}
}

func (r *Report) agentStats() metrics.AgentStats {
	counts := r.Detector.Counts()
	stats := metrics.AgentStats{
		Dropped:       r.dropped(counts),
		Suppressed:    make(map[string]uint64),
		Solicitations: r.Prober.Sent(),
		Pending:       r.Table.Pending(),
	}
	stats.Solicitations[detector.Verify] += r.Peer.Requested()
	for reason, n := range counts.Suppressed {
		stats.Suppressed[reason.String()] = n
	}
	return stats
}
