package gossip

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/retry"
	"github.com/dupip/dupip/gossip/roster"
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

func (r *report) Identity() any         { return r.key }
func (r *report) Policy() *retry.Policy { return reportPolicy }

// reports has what reporters are to know of this node. It must not know what a conflict is.
type reports struct {
	roster *roster.Roster
	post   *post
	count  *counters
	all    map[detector.Key]*report
	next   time.Time // when all of them are reported again
}

// report informs the reporters of a conflict or of this node.
func (p *reports) report(r *report, open bool, now time.Time) {
	if !open {
		r.ended = now
	}
	p.forget(now)
	switch _, known := p.all[r.key]; {
	case known:
		p.all[r.key] = r
	case !open: // no reporter knows it, or it has been too many
	case len(p.all) < maxReports, r.summary != nil:
		p.all[r.key] = r
	default:
		p.count.drop(dropReports)
	}
	for _, n := range p.roster.Reporters() {
		if n != p.roster.Self() {
			p.post.put(n, r, now)
		}
	}
}

// forget forgets conflicts that ended long ago or, if there are too many, all that have ended.
func (p *reports) forget(now time.Time) {
	full := len(p.all) >= maxReports
	maps.DeleteFunc(p.all, func(_ detector.Key, r *report) bool {
		return !r.ended.IsZero() && (full || now.Sub(r.ended) >= keepEnded)
	})
}

// toOne informs a reporter of all that is open, and of what has ended lately: it may have been away, or have got an earlier report later.
func (p *reports) toOne(n *roster.Node, now time.Time) {
	if n.Role == cluster.Reporter {
		p.forget(now)
		for _, key := range slices.SortedFunc(maps.Keys(p.all), detector.Key.Compare) {
			p.post.put(n, p.all[key], now)
		}
	}
}

// again informs all reporters of everything, from time to time.
func (p *reports) again(now time.Time) {
	if now.Before(p.next) {
		return
	}
	p.next = now.Add(reportPause)
	for _, n := range p.roster.Reporters() {
		p.toOne(n, now)
	}
}
