// Package notify tells of confirmed conflicts without Prometheus and Kubernetes: it sends alerts to Alertmanagers, and runs a program.
//
// It reads the documents of the agent, and words nothing. It keeps no queue for Alertmanagers: each time it sends what is there now, and
// what has ended lately. It must not know how conflicts are found.
package notify

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

const (
	// resend, lapse and keep are those of Prometheus: how often an alert is sent again, when it ends by itself if it is not, and how long
	// its end is sent (rules/alerting.go: resolvedRetention; rules/manager.go: SendAlerts).
	resend = time.Minute
	lapse  = 4 * resend
	keep   = 15 * time.Minute
	// judgeWait is how long a new conflict waits for what the nodes of its holders know, as long as a reporter waits; meanwhile the agent
	// looks every soon.
	judgeWait = 3 * time.Second
	soon      = 500 * time.Millisecond
	// share is how many times as long as the answers took the agent waits before it asks all nodes again, as a watch of the cluster does.
	share = 4
)

// Source has the conflicts that a [Notifier] tells of: the agent's report.
type Source interface {
	Conflicts(ctx context.Context, q document.Query) (document.Conflicts, error)
	WatchConflicts(ctx context.Context) (<-chan document.ConflictEvent, error)
	// Spans reports whether a network has the pods of several nodes, so that these may tell of one conflict.
	Spans(ctx context.Context) (func(network string) bool, error)
}

// Options says whom to tell. [Options.Check] says what is allowed.
type Options struct {
	Log           *slog.Logger
	Alertmanagers []string // their URLs
	HTTPConfig    string   // Prometheus's HTTP client configuration, a file; empty for none
	Program       string   // absolute path; empty for none
	User          string   // whose rights the program has; empty for root without capabilities
	Cluster       string   // its name, for the label of alerts; may be empty
	Self          cluster.Member
}

// maxAlertmanagers bounds those that are told.
const maxAlertmanagers = 8

// Check refuses values that cannot be right. It opens nothing.
func (o Options) Check() error {
	if len(o.Alertmanagers) > maxAlertmanagers {
		return fmt.Errorf("--alertmanager: given %d times, %d are possible", len(o.Alertmanagers), maxAlertmanagers)
	}
	for _, u := range o.Alertmanagers {
		if err := checkURL(u); err != nil {
			return err
		}
	}
	for _, p := range []struct{ flag, path string }{{"alertmanager-http-config", o.HTTPConfig}, {"on-conflict", o.Program}} {
		if p.path != "" && (!filepath.IsAbs(p.path) || filepath.Clean(p.path) != p.path) {
			return fmt.Errorf("--%s %.300q: must be an absolute path, of a file only", p.flag, p.path)
		}
	}
	switch {
	case o.HTTPConfig != "" && len(o.Alertmanagers) == 0:
		return errors.New("--alertmanager-http-config says how to reach an Alertmanager: give --alertmanager, too")
	case o.User != "" && o.Program == "":
		return errors.New("--on-conflict-user says as whom a program runs: give --on-conflict, too")
	}
	return nil
}

// Notifier tells of the conflicts that have a holder on this node. Make it with [New], and Run it once.
type Notifier struct {
	opts      Options
	receivers []*receiver // Alertmanagers
	program   *program    // nil for none

	// These belong to Run.
	began  time.Time
	due    bool // something has happened since the last look
	alerts map[labels]alert
	told   map[heldOn]document.Conflict // confirmed, and the program was told so
}

// heldOn identifies a conflict by its address and network, and by its node if the network belongs to one node.
type heldOn struct {
	document.Address
	node string // empty for a network of several nodes
}

// New reads the files and looks the user up. It returns nil if nobody is to be told. The error says what to do.
func New(opts Options) (*Notifier, error) {
	n := &Notifier{opts: opts, alerts: make(map[labels]alert), told: make(map[heldOn]document.Conflict)}
	if err := opts.Check(); err != nil {
		return nil, err
	}
	if len(opts.Alertmanagers) > 0 {
		c := &client{path: opts.HTTPConfig}
		if _, err := c.get(); err != nil {
			return nil, err
		}
		for _, u := range opts.Alertmanagers {
			n.receivers = append(n.receivers, newReceiver(opts.Log, c, u))
		}
	}
	if opts.Program != "" {
		var err error
		if n.program, err = newProgram(opts); err != nil {
			return nil, err
		}
	}
	if n.program == nil && len(n.receivers) == 0 {
		return nil, nil
	}
	return n, nil
}

// Status says whom the agent tells, and with what success. It is safe for concurrent use; n may be nil.
func (n *Notifier) Status() (list []document.NotificationStatus) {
	if n == nil {
		return nil
	}
	for _, r := range n.receivers {
		list = append(list, r.status())
	}
	if n.program != nil {
		list = append(list, n.program.status())
	}
	return list
}

// Run tells until ctx ends.
func (n *Notifier) Run(ctx context.Context, source Source) {
	var parts sync.WaitGroup
	defer parts.Wait()
	for _, r := range n.receivers {
		parts.Go(func() { r.run(ctx) })
	}
	if n.program != nil {
		parts.Go(func() { n.program.run(ctx) })
	}
	n.began = time.Now()
	var events <-chan document.ConflictEvent // nil blocks for ever
	var next, rested time.Time
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-events:
			if !ok {
				events = nil // it was too slow: the next look finds all
			} else if c := event.Conflict; c.State == detector.Suspected || c.Drill {
				continue
			}
			n.due = true
			next = schedule.Earlier(next, schedule.Later(rested, time.Now().Add(soon)))
		case <-timer.C:
			if events == nil {
				events, _ = source.WatchConflicts(ctx) // it fails if the agent is stopping
				n.due = true
			}
			began := time.Now()
			wait := n.look(ctx, source)
			rested = time.Now().Add(share * time.Since(began))
			next = schedule.Later(rested, time.Now().Add(wait))
		}
		timer.Reset(time.Until(next))
	}
}

// look finds what there is to tell, and returns when to look again.
func (n *Notifier) look(ctx context.Context, source Source) time.Duration {
	if !n.due && len(n.alerts)+len(n.told) == 0 {
		return resend
	}
	spans, err := source.Spans(ctx)
	if err != nil {
		return soon
	}
	q := document.Query{Cluster: true} // what all nodes know, so that their agents say the same
	if n.program != nil {
		q.All, q.Since = true, keep
	}
	doc, err := source.Conflicts(ctx, q)
	if err == nil {
		doc, err = n.own(doc)
	}
	if err != nil {
		return soon // the agent is starting
	}
	now, wait := time.Now().Round(0), resend
	n.due = false
	open := slices.DeleteFunc(slices.Clone(doc.Conflicts), func(c document.Conflict) bool { return c.State != detector.Confirmed })
	mine := func(c document.Conflict) bool {
		if !slices.ContainsFunc(c.Holders, func(b document.Binding) bool { return b.NodeID() == n.opts.Self.NodeID() }) {
			return false
		}
		if n.isEarly(c, now) {
			n.due, wait = true, soon
			return false
		}
		return true
	}
	where := func(c document.Conflict) heldOn {
		at := heldOn{Address: document.Address{Network: c.Network, IP: c.IP}}
		if !spans(c.Network) && len(c.Holders) > 0 {
			at.node = c.Holders[0].Node
		}
		return at
	}
	if len(n.receivers) > 0 {
		n.setAlerts(doc, open, mine, where, now)
		alerts := batch(n.alerts, now)
		for _, r := range n.receivers {
			r.offer(alerts)
		}
	}
	if n.program != nil {
		n.tellProgram(doc, open, mine, where)
	}
	return wait
}

// own returns a copy of what is needed of a document, fit for people: others read what the document points to.
func (n *Notifier) own(doc document.Conflicts) (copied document.Conflicts, err error) {
	told := make(map[document.Address]bool)
	for at := range n.told {
		told[at.Address] = true
	}
	doc.Conflicts = slices.DeleteFunc(slices.Clone(doc.Conflicts), func(c document.Conflict) bool {
		return c.Drill || c.State != detector.Confirmed && !told[document.Address{Network: c.Network, IP: c.IP}]
	})
	text, err := json.Marshal(doc)
	if err == nil {
		err = json.Unmarshal(text, &copied)
	}
	document.Sanitize(&copied)
	return copied, err
}

// isEarly reports whether facts about a conflict are still on their way, so that it is worth waiting for its judgement.
func (n *Notifier) isEarly(c document.Conflict, now time.Time) bool {
	since := c.ConfirmedAt
	if since.Before(n.began) { // by an earlier agent
		since = n.began
	}
	age := now.Sub(since) // less than 0 if somebody has set a clock
	return age >= 0 && age < judgeWait && (c.Judgement == nil || c.Judgement.Cause == document.CauseComing)
}

// tellProgram has the program run for conflicts that are confirmed, and for those that have ended on all nodes.
func (n *Notifier) tellProgram(doc document.Conflicts, open []document.Conflict, mine func(document.Conflict) bool, where func(document.Conflict) heldOn) {
	confirmed := make(map[heldOn]bool)
	for _, c := range open {
		at := where(c)
		confirmed[at] = true
		_, known := n.told[at]
		switch {
		case !mine(c):
		case known:
			n.told[at] = c
		case len(n.told) == maxTold:
			n.program.drop()
		default:
			n.told[at] = c
			n.program.offer(document.ConflictEvent{Type: string(detector.EventConfirmed), At: c.ConfirmedAt, Conflict: c})
		}
	}
	for at, was := range n.told {
		if confirmed[at] {
			continue
		}
		var last document.Conflict
		waits := false
		for _, c := range doc.Conflicts {
			if c.ID != was.ID && (at.node != "" || where(c) != at) {
				continue
			}
			waits = waits || c.State == detector.Suspected // it is verified again
			if c.State == detector.Resolved && !c.ResolvedAt.Before(was.ConfirmedAt) && c.ResolvedAt.After(last.ResolvedAt) {
				last = c
			}
		}
		if waits {
			continue
		}
		if delete(n.told, at); last.ID == "" { // forgotten: too many have ended
			n.program.drop()
			continue
		}
		n.program.offer(document.ConflictEvent{Type: string(detector.EventResolved), At: last.ResolvedAt, Conflict: last})
	}
}
