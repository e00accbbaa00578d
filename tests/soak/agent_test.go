package soak

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
	"github.com/dupip/dupip/tests/soak/plan"
)

// agent is that of one node: one after the other.
type agent struct {
	*lab.Agent
	name string
	all  []*lab.Agent
	down bool
	// lives is how many agents of the node were about to end.
	lives int
	// polling: a poll is in progress.
	polling atomic.Bool
}

const (
	// slow is how long an agent may take to list its conflicts.
	slow = 2 * time.Second
	// patience is when it is not waited for any more.
	patience = 20 * time.Second
)

// answer is one that took too long, unless this process got no time meanwhile.
type answer struct {
	name     string
	from, to time.Duration
}

// restart ends an agent and starts its successor.
func (s *soak) restart(step *plan.Step) error {
	a := s.agents[step.Node]
	s.resyncFound(a)
	s.mu.Lock()
	a.down = true
	a.lives++
	s.judge.Down(a.name, s.now())
	s.mu.Unlock()
	end := a.Stop
	if step.Kill {
		end = a.Kill
	}
	if err := end(); err != nil {
		return err
	}
	time.Sleep(step.Down)
	next, err := a.Successor()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.Context(), lab.Patience(20*time.Second))
	defer cancel()
	if err := next.WaitReady(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	a.Agent, a.down = next, false
	a.all = append(a.all, next)
	s.up = s.now()
	s.judge.Up(a.name, s.up)
	s.journal.note(nil, nil, "the agent of %s is ready again", a.name)
	return nil
}

// resyncFound checks that no resync of a running agent had to find anything.
func (s *soak) resyncFound(a *agent) {
	metrics, err := a.Scrape(s.Context())
	if err != nil {
		s.Errorf("seed %d: %v", s.seed, err)
		return
	}
	found := metrics.Find("dupip_resync_found_total")
	if len(found) == 0 {
		s.Errorf("seed %d: %s has no dupip_resync_found_total", s.seed, a.name)
	}
	for _, series := range found {
		if n := metrics[series]; n > 0 {
			s.journal.note(nil, nil, "%s of %s is %v", series, a.name, n)
			s.Errorf("seed %d, at %.3f s: %s of %s is %v: no event told of what a resync found", s.seed, s.now().Seconds(), series, a.name, n)
		}
	}
}

// snapshot passes a snapshot on, and notes what it changed.
func (s *soak) snapshot(l judge.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.deaf, l.Holder)
	if l.Deaf {
		s.deaf[l.Holder] = l.Has
	}
	s.count.addresses(l)
	s.journal.snapshot(l)
	s.judge.AddSnapshot(l)
}

// watch takes snapshots and polls, every tick, until ctx ends. It never waits for an agent: a late
// snapshot widens what the judge allows.
func (s *soak) watch(ctx context.Context) {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	var asking sync.WaitGroup
	defer asking.Wait()
	last := s.now()
	for {
		now := s.now()
		if now-last > 2*tick {
			s.mu.Lock()
			s.judge.Stalled(last+tick, now)
			s.mu.Unlock()
		}
		if now-last > stall {
			s.count.stalls.Add(1)
			s.journal.note(nil, nil, "this look is late: the last one was %.3f s ago", (now - last).Seconds())
		}
		last = now
		if err := s.watcher.ReadAll(); err != nil {
			s.Errorf("seed %d: %v", s.seed, err)
			return
		}
		s.advance(now)
		for _, a := range s.agents {
			if a.polling.CompareAndSwap(false, true) {
				asking.Go(func() {
					defer a.polling.Store(false)
					s.pollConflicts(ctx, a)
				})
			}
		}
		s.progress(now)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// advance judges all reports from before now.
func (s *soak) advance(now time.Duration) {
	s.mu.Lock()
	findings := s.judge.Advance(now)
	late := slices.DeleteFunc(slices.Clone(s.slow), func(a answer) bool {
		return a.to >= now || a.to-a.from-s.judge.StalledFor(a.from, a.to) <= lab.Patience(slow)
	})
	s.slow = slices.DeleteFunc(s.slow, func(a answer) bool { return a.to < now })
	s.mu.Unlock()
	for _, a := range late {
		s.journal.note(nil, nil, "%s took %.3f s to list its conflicts", a.name, (a.to - a.from).Seconds())
		s.Errorf("seed %d, at %.3f s: %s took %.3f s to list its conflicts", s.seed, a.from.Seconds(), a.name, (a.to - a.from).Seconds())
	}
	for _, f := range findings {
		s.found(f)
	}
}

// pollConflicts gets the open conflicts of an agent.
func (s *soak) pollConflicts(ctx context.Context, a *agent) {
	s.mu.Lock()
	client, down, lives := a.Client, a.down, a.lives
	s.mu.Unlock()
	if down {
		return
	}
	from := s.now()
	limited, cancel := context.WithTimeout(ctx, lab.Patience(patience))
	defer cancel()
	open, err := client.Conflicts(limited, false)
	to := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	same := !a.down && a.lives == lives
	if same && to-from > lab.Patience(slow) {
		s.slow = append(s.slow, answer{a.name, from, to})
	}
	if err != nil {
		if same && ctx.Err() == nil {
			s.journal.note(nil, nil, "%s does not list its conflicts: %v", a.name, err)
			s.Errorf("seed %d, at %v: %s does not list its conflicts: %v", s.seed, from, a.name, err)
		}
		return
	}
	poll := judge.Open{Node: a.name, From: from, To: to}
	for _, c := range open {
		poll.Conflicts = append(poll.Conflicts, conflictOf(c))
	}
	s.judge.AddPoll(poll)
}

// listen passes on the events of a node's agents.
func (s *soak) listen(ctx context.Context, a *agent, client *lab.Client) {
	for ctx.Err() == nil {
		s.mu.Lock()
		lives := a.lives
		s.mu.Unlock()
		body, err := client.Get(ctx, "/v1/conflicts", "watch=1")
		if err != nil {
			sleep(ctx, 20*time.Millisecond)
			continue
		}
		decoder := json.NewDecoder(body)
		for {
			var e lab.Event
			if err := decoder.Decode(&e); err != nil {
				s.streamEnded(ctx, a, lives, err)
				break
			}
			s.receive(a, e)
		}
		_ = body.Close()
	}
}

// streamEnded handles the end of a stream, which is expected if the agent ends.
func (s *soak) streamEnded(ctx context.Context, a *agent, lives int, err error) {
	s.mu.Lock()
	same := !a.down && a.lives == lives
	s.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	s.journal.note(nil, nil, "the stream of %s ends: %v", a.name, err)
	if same {
		s.Errorf("seed %d, at %.3f s: %s still runs, and its stream ended: %v", s.seed, s.now().Seconds(), a.name, err)
	}
}

// sleep waits, and returns whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

func (s *soak) receive(a *agent, e lab.Event) {
	at := e.At.Sub(s.start)
	event := judge.Event{Node: a.name, At: at, Kind: e.Type, Conflict: conflictOf(e.Conflict)}
	var names []string
	var holders []string
	for _, h := range event.Conflict.Holders {
		name := strings.TrimPrefix(h.Netns, s.Prefix())
		names = append(names, name)
		holders = append(holders, h.Node+"/"+name)
	}
	// A stream begins with what is open, without reasons.
	if e.Reason == "" && (e.Type == "confirmed" || e.Type == "suspected") {
		s.journal.note([]netip.Addr{e.Conflict.IP}, names, "%s begins its stream: %s is %s, %v", a.name, e.Conflict.ID, e.Type, holders)
		return
	}
	s.count.event(e.Type)
	s.journal.noteAt(at, []netip.Addr{e.Conflict.IP}, names, a.name+" reports: "+e.Conflict.ID+" "+e.Type+", "+strings.Join(holders, ", ")+": "+e.Reason)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge.AddEvent(event)
}

func conflictOf(c lab.Conflict) judge.Conflict {
	conflict := judge.Conflict{ID: c.ID, IP: c.IP, Confirmed: c.State == "confirmed"}
	for _, h := range c.Holders {
		conflict.Holders = append(conflict.Holders, judge.Holder{Node: h.Node, Netns: h.Netns})
	}
	return conflict
}
