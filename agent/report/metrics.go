package report

import (
	"context"

	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

// Sources returns where a scrape reads.
func (r *Report) Sources() metrics.Sources {
	sources := metrics.Sources{
		Version: r.Self.Version, Node: r.Self.Name, BootID: r.Self.Boot, Attach: r.Attach, Log: r.Log,
		Loop: func(ctx context.Context) (stats metrics.LoopStats, err error) {
			err = r.Do(ctx, func() { stats = r.loopStats() })
			return stats, err
		},
		State: r.Store.Status, Notifications: r.Notifications,
	}
	// A part that is switched off has no metrics; zeros would look like a problem.
	if !r.Pods.Status().Disabled {
		sources.Pods = func() (connected bool, known int) {
			status := r.Pods.Status()
			return status.Connected, status.Named
		}
	}
	if r.Books.Enabled() || !r.alone() {
		sources.Books = r.bookStats
	}
	if !r.alone() {
		sources.Cluster = r.Cluster
	}
	if r.ConfigPath != "" {
		sources.Config = r.Config.Status
	}
	return sources
}

// loopStats returns what the parts of the loop have. Call it in the goroutine that owns them.
func (r *Report) loopStats() metrics.LoopStats {
	counts := r.Detector.Counts()
	stats := metrics.LoopStats{
		Counts: counts, Open: r.Detector.Conflicts(false),
		States: r.byState(), Refused: refused(r.Table.Refusals.Total()),
		Dropped: r.dropped(counts), LeftOut: bounds.Counts(), Solicitations: r.Prober.Sent(),
		Pending: r.Table.Records.Pending(), HostOmitted: r.Table.Own.Omitted(), NetlinkOverruns: uint64(r.Watcher.Overruns()), ResyncFound: r.Watcher.Found(),
	}
	_, stats.DADFailed = r.Table.Lost(0)
	for i := range r.Table.All() {
		stats.Observed = append(stats.Observed, metrics.InterfaceRefusals{
			Generation: i.Generation, Name: i.Name, Netns: i.Netns.Label(), Pod: i.Pod.Pod, Refused: refused(r.Table.Refusals.Of(i)),
		})
	}
	stats.Solicitations[detector.Verify] += r.Exchange.Requested
	return stats
}

func refused(c bpf.Counters) metrics.Refused {
	return metrics.Refused{c.RefusedData, c.RefusedAnnounced, c.RefusedAnswers, c.RingFull}
}
