package soak

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
	"github.com/dupip/dupip/tests/soak/plan"
)

// maxHistories bounds the findings that are printed with their histories.
const maxHistories = 10

// counts are for the summary.
type counts struct {
	failed atomic.Bool
	stalls atomic.Int64
	// nextLine is when progress prints one.
	nextLine time.Duration

	mu      sync.Mutex
	steps   map[plan.Kind]int
	late    time.Duration // the latest step
	took    time.Duration // the slowest step
	events  map[string]int
	ips     map[netip.Addr]bool
	printed int // histories
}

func (c *counts) step(kind plan.Kind, late, took time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.steps == nil {
		c.steps = make(map[plan.Kind]int)
	}
	c.steps[kind]++
	c.late = max(c.late, late)
	if kind != plan.Restart {
		c.took = max(c.took, took)
	}
}

func (c *counts) event(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.events == nil {
		c.events = make(map[string]int)
	}
	c.events[kind]++
}

func (c *counts) addresses(l judge.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ips == nil {
		c.ips = make(map[netip.Addr]bool)
	}
	for _, ip := range l.Has {
		c.ips[ip] = true
	}
}

// found reports a finding, and keeps what the agents know at this moment.
func (s *soak) found(f judge.Finding) {
	var pods []string
	for _, h := range f.Holders {
		pods = append(pods, strings.TrimPrefix(h.Netns, s.Prefix()))
	}
	line := strings.ReplaceAll(f.String(), s.Prefix(), "")
	s.journal.noteAt(f.At, []netip.Addr{f.IP}, pods, line)
	if f.Kind != judge.Late && f.Kind != judge.Missed {
		s.keeping.Go(func() { s.keep(f) })
	}
	s.count.mu.Lock()
	s.count.printed++
	printed := s.count.printed
	s.count.mu.Unlock()
	text := fmt.Sprintf("seed %d, at %.3f s: %s", s.seed, f.At.Seconds(), line)
	if printed <= maxHistories {
		text += fmt.Sprintf("\nits history (all is in %s):\n%s", s.journal.dir, s.journal.history(f.IP, pods, f.At))
	}
	s.Errorf("%s", text)
}

// keep writes down what every agent can explain of an address.
func (s *soak) keep(f judge.Finding) {
	ctx, cancel := context.WithTimeout(s.Context(), 5*time.Second)
	defer cancel()
	for _, a := range s.agents {
		s.mu.Lock()
		running, down := a.Agent, a.down
		s.mu.Unlock()
		if down {
			continue
		}
		// An error is in the output, too.
		out, _ := running.CLI(ctx, "explain", f.IP.String(), "-o", "json")
		name := fmt.Sprintf("explain-%.3f-%s-%s.json", f.At.Seconds(), f.IP, a.name)
		_ = os.WriteFile(filepath.Join(s.journal.dir, name), []byte(out), 0o600)
	}
}

// progress prints a line now and then.
func (s *soak) progress(now time.Duration) {
	if now < s.count.nextLine {
		return
	}
	s.count.nextLine += time.Minute
	s.mu.Lock()
	defer s.mu.Unlock()
	if now > tick {
		s.Logf("%v: %s", now.Round(time.Second), verdict(s.judge.Tally()))
	}
}

// verdict is a tally in one line.
func verdict(t judge.Tally) string {
	f := t.Findings
	return fmt.Sprintf("%d overlaps found, %d had to be, %d overdue, %d missed, %d late, %d invented, %d wrong, %d dropped, %d lingering, %d lingering suspicions",
		t.Found, t.Long, f[judge.Overdue], f[judge.Missed], f[judge.Late], f[judge.Invented], f[judge.Wrong], f[judge.Dropped], f[judge.Lingering], f[judge.Suspicious])
}

// summary prints what was done and found.
func (s *soak) summary() {
	s.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.count.mu.Lock()
	defer s.count.mu.Unlock()
	tally := s.judge.Tally()
	if s.Failed() || *keep {
		for _, a := range s.agents {
			for i, one := range a.all {
				name := fmt.Sprintf("agent-%s-%d.log", a.name, i+1)
				_ = os.WriteFile(filepath.Join(s.journal.dir, name), []byte(one.Log()), 0o600)
			}
		}
		s.Logf("the journal, the agents' logs and what they could explain are in %s", s.journal.dir)
	}
	s.Logf("steps: %s; the latest %.3f s late, the slowest %.3f s", list(s.count.steps), s.count.late.Seconds(), s.count.took.Seconds())
	s.Logf("events: %s; addresses: %d; late snapshots: %d, stalled: %.1f s", list(s.count.events), len(s.count.ips), s.count.stalls.Load(), tally.Stalled.Seconds())
	s.Logf("from both having an address to confirmed, at each node: %s", quantiles(tally.Delays))
	s.Logf("the same where one is deaf: %s", quantiles(tally.Deaf))
	s.Logf("the slowest: %s", strings.ReplaceAll(tally.Slowest, s.Prefix(), ""))
	s.Logf("where an agent was restarted, at the earliest from when it was ready: %s", quantiles(tally.Held))
	for i, after := range s.usages() {
		s.Logf("agent of %s: %v, before %v", s.agents[i].name, after, s.before[i])
	}
	s.Logf("seed %d: %s", s.seed, verdict(tally))
}

// quantiles writes the middle and the end of a distribution down.
func quantiles(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	all = slices.Sorted(slices.Values(all))
	n := len(all)
	return fmt.Sprintf("p50 %.3f s, p99 %.3f s, max %.3f s, of %d", all[n/2].Seconds(), all[n*99/100].Seconds(), all[n-1].Seconds(), n)
}

// list writes counts down, by name.
func list[K ~string](counts map[K]int) string {
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[k], k))
	}
	return strings.Join(parts, ", ")
}

// leftovers waits until no agent knows of a pod any more, nor of a conflict.
func (s *soak) leftovers() {
	s.Helper()
	l := limits()
	// A suspicion from before the restart may stay open longer.
	wait := max(lab.Patience(30*time.Second), s.up+l.Restart+l.Restored+l.Suspicion-s.now())
	ctx, cancel := context.WithTimeout(s.Context(), wait)
	defer cancel()
	for _, a := range s.agents {
		for {
			open, err := a.Client.Conflicts(ctx, false)
			if err == nil && len(open) == 0 {
				break
			}
			if !sleep(ctx, tick) {
				s.Errorf("seed %d: all pods have ended, and %s lists %d conflicts (%v): %+v", s.seed, a.name, len(open), err, open)
				break
			}
		}
	}
	ctx, cancel = context.WithTimeout(s.Context(), lab.Patience(30*time.Second))
	defer cancel()
	for _, a := range s.agents {
		for {
			left := 0
			bindings, err := a.Client.Bindings(ctx, netip.Addr{})
			for _, b := range bindings {
				if b.Evidence != "host" {
					left++
				}
			}
			if err == nil && left == 0 {
				break
			}
			if !sleep(ctx, tick) {
				s.Errorf("seed %d: all pods are dead, and %s knows of %d addresses (%v): %v", s.seed, a.name, left, err, bindings)
				break
			}
		}
	}
}
