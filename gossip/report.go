package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxReports bounds the conflicts that reporters are informed of again, or when they come later.
	maxReports = 1024
	// keepEnded is how long they are informed of those that have ended: longer than a reporter believes a node that it has lost.
	keepEnded = 10 * time.Minute
	// reportPause is how often everything is reported again: a reporter forgets what a node has reported that it loses for long, and the
	// node may not know of that.
	reportPause = 2 * time.Minute
)

// reportPolicy never gives up: a reporter that does not acknowledge is busy.
var reportPolicy = &retry.Policy{Pauses: noticePolicy.Pauses, Max: 16 * maxReports}

// report is an open conflict, one that has just ended, or the summary of this node, for members with the role reporter.
type report struct {
	key detector.Key // the zero Key for a summary
	// encode returns the conflict as it is sent at a time, in at most that many bytes.
	encode  func(at time.Time, most int) ([]byte, error)
	summary *cluster.Summary
	ended   time.Time // zero while it is open
}

// Identity implements [retry.Message].
func (r *report) Identity() any { return r.key }

// Policy implements [retry.Message].
func (r *report) Policy() *retry.Policy { return reportPolicy }

// ReportConflict informs the reporters of a conflict that began, changed or ended: then it is not open, also if the suspicion faded.
// encode returns it as it is sent at a time, in at most that many bytes. It is called each time that the conflict is sent to a reporter.
func (g *Gossip) ReportConflict(key detector.Key, open bool, encode func(at time.Time, most int) ([]byte, error)) {
	g.report(&report{key: key, encode: encode}, open)
}

// ReportSummary informs the reporters of the state of this node.
func (g *Gossip) ReportSummary(s cluster.Summary) { g.report(&report{summary: &s}, true) }

func (g *Gossip) report(r *report, open bool) {
	g.in.call(func(now time.Time) {
		if !open {
			r.ended = now
		}
		g.forgetReports(now)
		switch _, known := g.reports[r.key]; {
		case known:
			g.reports[r.key] = r
		case !open: // no reporter knows it, or it has been too many
		case len(g.reports) < maxReports, r.summary != nil:
			g.reports[r.key] = r
		default:
			g.count.drop(dropReports)
		}
		for _, n := range g.roster.Reporters() {
			if n != g.roster.Self() {
				g.put(n, r, now)
			}
		}
	})
}

// forgetReports forgets conflicts that ended long ago or, if there are too many, all that have ended.
func (g *Gossip) forgetReports(now time.Time) {
	full := len(g.reports) >= maxReports
	maps.DeleteFunc(g.reports, func(_ detector.Key, r *report) bool {
		return !r.ended.IsZero() && (full || now.Sub(r.ended) >= keepEnded)
	})
}

// reportAll informs a reporter of all that is open, and of what has ended lately: it may have been away, or have got an earlier report later.
func (g *Gossip) reportAll(n *roster.Node, now time.Time) {
	if n.Role == cluster.Reporter {
		g.forgetReports(now)
		for _, key := range slices.SortedFunc(maps.Keys(g.reports), detector.Key.Compare) {
			g.put(n, g.reports[key], now)
		}
	}
}

// reportAgain informs all reporters of everything, from time to time.
func (g *Gossip) reportAgain(now time.Time) {
	if now.Before(g.reportsNext) {
		return
	}
	g.reportsNext = now.Add(reportPause)
	for _, n := range g.roster.Reporters() {
		g.reportAll(n, now)
	}
}

// receiveReport handles a report, if this member is a reporter.
func (g *Gossip) receiveReport(from *roster.Node, m wire.Report, now time.Time) {
	if g.roster.Self().Role != cluster.Reporter {
		g.count.drop(dropReporter)
	} else if g.deliverOf(from, cluster.Report{Node: from.ID, Epoch: from.Epoch, At: now, Conflict: m.Conflict, Summary: m.Summary}, now) {
		g.ack(from, wire.Ack{Seq: m.Seq}, now)
	}
}
