package lab

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// auditEvery is how often [Audits] asks: several times while the agent reads its books once.
const auditEvery = 100 * time.Millisecond

// Audits records the findings of one agent's audit. Its methods may be called from several goroutines.
type Audits struct {
	mu   sync.Mutex
	seen []SeenFinding
	read time.Time
}

// SeenFinding is a finding and when the lab saw it, on the clock of this process.
type SeenFinding struct {
	Finding
	First, Last time.Time
}

// WatchAudit asks an agent for its findings until the lab ends.
func (l *Lab) WatchAudit(c *Client) *Audits {
	a := &Audits{}
	ctx, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			if findings, read, err := c.Audit(ctx); err == nil {
				a.add(findings, read)
			}
			pause(ctx, auditEvery)
		}
	})
	l.OnClose(func() error {
		cancel()
		done.Wait()
		return nil
	})
	return a
}

func (a *Audits) add(findings []Finding, read time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	a.read = read
	for _, f := range findings {
		i := slices.IndexFunc(a.seen, func(s SeenFinding) bool { return s.id() == f.id() })
		if i < 0 {
			i = len(a.seen)
			a.seen = append(a.seen, SeenFinding{Finding: f, First: now})
		}
		a.seen[i].Last = now
	}
}

// findingID distinguishes findings.
type findingID struct {
	kind, netns, reservedFor string
	ip                       netip.Addr
}

func (f Finding) id() findingID { return findingID{f.Kind, f.Netns, f.ReservedFor, f.IP} }

// Seen are all findings so far, in the order of their first time.
func (a *Audits) Seen() []SeenFinding {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.seen)
}

// Read is when the agent had read its books, as of its last answer; zero before the first time.
func (a *Audits) Read() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.read
}
