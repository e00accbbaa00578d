package report

import (
	"context"

	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Sources returns the functions that a scrape calls.
func (r *Report) Sources() metrics.Sources {
	sources := metrics.Sources{
		Version: r.Self.Version, Node: r.Self.Name, BootID: r.Self.Boot, Attach: r.Attach, Log: r.Log,
		Detector: source(r, func() metrics.DetectorStats {
			return metrics.DetectorStats{Counts: r.Detector.Counts(), Open: r.Detector.Conflicts(false)}
		}),
		Interfaces: source(r, r.interfaceStats),
		Agent:      source(r, r.agentStats),
		State: func(context.Context) (metrics.StateStats, error) {
			written, bytes, err := r.Store.Status()
			return metrics.StateStats{LastWrite: written, Err: err, Bytes: bytes}, nil
		},
	}
	// A part that is switched off has no metrics; zeros would look like a problem.
	if !r.Pods.Status().Disabled {
		sources.Pods = func(context.Context) (metrics.PodStats, error) {
			status := r.Pods.Status()
			return metrics.PodStats{Connected: status.Connected, Known: status.Named}, nil
		}
	}
	if r.Books.Enabled() {
		sources.Books = r.bookStats
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

// source runs f in the goroutine that owns the parts.
func source[T any](r *Report, f func() T) func(context.Context) (T, error) {
	return func(ctx context.Context) (stats T, err error) {
		err = r.Do(ctx, func() { stats = f() })
		return stats, err
	}
}

func (r *Report) interfaceStats() metrics.InterfaceStats {
	stats := metrics.InterfaceStats{States: r.byState()}
	_, stats.DADFailed = r.Table.Lost(0)
	for i := range r.Table.All() {
		stats.Observed = append(stats.Observed, metrics.InterfaceRefusals{
			Generation: i.Generation, Name: i.Name, Netns: i.Netns.Label(), Pod: i.Pod.Pod, Refused: refused(r.Table.Refused(i)),
		})
	}
	stats.Total = refused(r.Table.RefusedTotal())
	return stats
}

func refused(c bpf.Counters) metrics.Refused {
	return metrics.Refused{c.RefusedData, c.RefusedAnnounced, c.RefusedAnswers, c.RingFull}
}

func (r *Report) agentStats() metrics.AgentStats {
	counts := r.Detector.Counts()
	stats := metrics.AgentStats{
		Dropped: r.dropped(counts), Suppressed: counts.Suppressed, Solicitations: r.Prober.Sent(),
		Pending: r.Table.Pending(), HostOmitted: r.Table.HostOmitted(), NetlinkOverruns: uint64(r.Watcher.Overruns()),
	}
	stats.Solicitations[detector.Verify] += r.Exchange.Requested
	return stats
}
