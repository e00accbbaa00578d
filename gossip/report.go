package gossip

import (
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxReports bounds the open conflicts that are reported.
	maxReports = 1024
	// maxReportHolders bounds the holders in a report, which has to fit a datagram.
	maxReportHolders = 4
)

// report is an open conflict, one that has just ended, or the summary of this node, for members with the role
// reporter.
type report struct {
	conflict *detector.Conflict
	summary  *cluster.Summary
}

type (
	reportID  detector.Key
	summaryID struct{}
)

// ID implements retry.Message.
func (r report) ID() any {
	if r.conflict != nil {
		return reportID(r.conflict.Key)
	}
	return summaryID{}
}

// Policy implements retry.Message.
func (r report) Policy() retry.Policy { return noticePolicy }

func (r report) wire(seq uint64) wire.Report {
	w := wire.Report{Seq: seq, Summary: r.summary}
	if r.conflict != nil {
		c := *r.conflict
		c.Holders = c.Holders[:min(len(c.Holders), maxReportHolders)]
		w.Conflict = &c
	}
	return w
}

// ReportConflict informs the reporters of a conflict that began, changed or ended.
func (g *Gossip) ReportConflict(c detector.Conflict) {
	g.in.call(func() { g.report(report{conflict: &c}, time.Now()) })
}

// ReportSummary informs the reporters of the state of this node.
func (g *Gossip) ReportSummary(s cluster.Summary) {
	g.in.call(func() { g.report(report{summary: &s}, time.Now()) })
}

func (g *Gossip) report(r report, now time.Time) {
	if r.conflict != nil && r.conflict.State == detector.Resolved {
		delete(g.reports, r.ID())
	} else if len(g.reports) < maxReports {
		g.reports[r.ID()] = r
	}
	for n := range g.roster.All() {
		if n.Role == cluster.Reporter && n.Alive() {
			g.queue.Put(n, r, now, now)
		}
	}
}

// reportAll informs a reporter that is new of all that is open.
func (g *Gossip) reportAll(n *roster.Node, now time.Time) {
	if n.Role != cluster.Reporter {
		return
	}
	for _, r := range g.reports {
		g.queue.Put(n, r, now, now)
	}
}

// receiveReport handles a report, if this member is a reporter.
func (g *Gossip) receiveReport(from *roster.Node, m wire.Report, now time.Time) {
	if g.roster.Self().Role != cluster.Reporter {
		g.count.drop(dropReporter)
	} else if g.deliver(cluster.Report{Node: from.ID, Conflict: m.Conflict, Summary: m.Summary}) {
		g.ack(from, m.Seq, now)
	}
}
