package report

import (
	"context"
	"time"

	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Acknowledge implements [api.Acknowledger].
func (r *Report) Acknowledge(ctx context.Context, q document.Query) (document.Conflicts, error) {
	q.Cluster = !r.alone()
	return compose(ctx, r, q, cluster.QueryAck, (*collect.Collection).Conflicts)
}

// acknowledge keeps that somebody works on the open conflicts of an address, or ends it. Call it in the goroutine that owns the parts.
func (r *Report) acknowledge(q cluster.Query) {
	// The clocks of nodes are not compared: it came now, and was said that long ago.
	age := time.Duration(min(max(q.Ack.Age, 0), int(document.MaxAck/time.Second))) * time.Second
	ack := document.Ack{By: q.Ack.By, Why: q.Ack.Why, At: time.Now().Round(0).Add(-age), Seconds: q.Ack.Seconds}
	if ack.Check() != nil {
		return
	}
	document.Clean(&ack, 0, time.Time{})
	for _, c := range r.Detector.Conflicts(false) { // also one that this node is about to confirm
		if c.Key.IP != q.IP || c.IsDrill() || q.Only.Network != "" && c.Key.Network != q.Only.Network {
			continue
		}
		if known := r.acks[c.ID]; known != nil && !ack.Replaces(known) {
			continue
		}
		r.acks[c.ID] = &ack
		if log := r.Log.With("id", c.ID, "ip", c.Key.IP, "by", ack.By); ack.Seconds > 0 {
			log.Info("conflict acknowledged", "until", ack.Until(), "why", ack.Why)
		} else {
			log.Info("conflict not acknowledged any more")
		}
		r.Changed()
		r.reportConflict(c)
	}
}

// ackOf returns who works on a conflict, nil for nobody.
func (r *Report) ackOf(c *detector.Conflict) *document.Ack {
	if a := r.acks[c.ID]; c.State == detector.Confirmed && a.Holds(time.Now()) {
		return a
	}
	return nil
}
