package members

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math/bits"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

const (
	// joinAtOnce is how many are joined in one round: each exchanges the whole list of members.
	joinAtOnce = 3
	// A node that is alone tries again after firstRetry, then less and less often; one that is not looks for lost
	// members every lookAgain. After a partition of a minute memberlist does not find them by itself.
	firstRetry = time.Second
	lookAgain  = 30 * time.Second
	// A node that got a short list asks askOthers others for theirs: one at once, the next after askAgain, the last after twice that. Of
	// those that do not answer it tries maxAsked at a time.
	askOthers = 3
	askAgain  = time.Second
	maxAsked  = 3
	// resolveAgain is how often names are resolved while nobody is missing.
	resolveAgain = 10 * time.Minute
	// Lost members are looked for that long, at most maxLost of them.
	lostFor = 24 * time.Hour
	maxLost = 256
	// An address that leads to a member that has another one, as that of a service does, is not joined
	// again before aliasFor has passed.
	aliasFor = 10 * time.Minute
)

// joins is what is known about joining. It is safe for concurrent use.
type joins struct {
	self   netip.AddrPort
	lookup lookup

	mu      sync.Mutex
	targets []target
	at      time.Time                    // when they were resolved
	away    map[netip.AddrPort]time.Time // lost members, and when
	alias   map[netip.AddrPort]time.Time // not to be joined until then
	err     error                        // of the last round, if it joined nobody
}

func newJoins(targets []target, known []netip.AddrPort, now time.Time) *joins {
	j := &joins{
		targets: targets, lookup: net.DefaultResolver.LookupNetIP,
		away: map[netip.AddrPort]time.Time{}, alias: map[netip.AddrPort]time.Time{},
	}
	for _, at := range known {
		j.away[at] = now
	}
	return j
}

// lost notes a member that does not answer any more. Any other makes room for it.
func (j *joins) lost(at netip.AddrPort, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for other := range j.away {
		if len(j.away) < maxLost {
			break
		}
		delete(j.away, other)
	}
	j.away[at] = now
}

// isLost reports whether a member at that address was lost.
func (j *joins) isLost(at netip.AddrPort) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	_, ok := j.away[at]
	return ok
}

// join joins the cluster, and looks for lost members, until ctx ends.
func (m *Members) join(ctx context.Context) {
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			m.known.write(m.agents())
			return
		case <-m.alone:
			retry = firstRetry
		case <-timer.C:
			m.joinRound(ctx)
		}
		wait := lookAgain
		if m.count() == 1 {
			wait, retry = retry, min(2*retry, lookAgain)
		} else {
			retry = firstRetry
		}
		timer.Reset(jitter(wait))
	}
}

// Rejoin exchanges the list of members with some of them at once: they may have given this one up while
// it was suspended. It does not block.
func (m *Members) Rejoin() {
	go m.joinAll(context.Background(), firstOf(m.agents(), joinAtOnce))
}

// jitter is about as long, so that many nodes do not do the same at once.
func jitter(d time.Duration) time.Duration { return d*8/10 + rand.N(d*4/10) }

// joinRound joins some of those that should be members and are not.
func (m *Members) joinRound(ctx context.Context) {
	there := m.addresses()
	m.known.write(m.agents())
	m.joins.resolve(ctx, there)
	err := m.joinAll(ctx, m.joins.choose(there, time.Now()))
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	if m.joins.err = nil; m.count() == 1 {
		m.joins.err = err
	}
}

// joinAll joins at some addresses at the same time, and returns the first error. It returns nil when ctx ends.
func (m *Members) joinAll(ctx context.Context, chosen []netip.AddrPort) (first error) {
	results := make(chan error, len(chosen))
	for _, at := range chosen {
		go func() { results <- m.joinOne(at) }()
	}
	for range chosen {
		select {
		case err := <-results:
			first = cmp.Or(first, err)
		case <-ctx.Done():
			return nil
		}
	}
	return first
}

// joinOne exchanges the list of members with whoever has an address. If that has too many to answer, its list is a short one: others have
// the rest.
func (m *Members) joinOne(at netip.AddrPort) error {
	err := m.exchange(at)
	if m.transport.TookShort() && m.completing.CompareAndSwap(false, true) {
		go func() {
			defer m.completing.Store(false)
			m.completeList(at)
		}()
	}
	return err
}

// completeList exchanges the list of members with others than the one at an address. The first may have joined at the same moment and know
// little yet; the last has had the time to complete its own.
func (m *Members) completeList(at netip.AddrPort) {
	for i := range askOthers {
		if i > 0 {
			time.Sleep(jitter(askAgain << (i - 1)))
		}
		if m.leaving.Load() {
			return
		}
		others := m.addresses()
		delete(others, at)
		for _, other := range firstOf(others, maxAsked) {
			if m.exchange(other) == nil {
				break
			}
		}
	}
}

// exchange exchanges the list of members with whoever has an address.
func (m *Members) exchange(at netip.AddrPort) error {
	if _, err := m.list.Join([]string{at.String()}); err != nil {
		// Memberlist has a list of errors, here of one, and only the text of what is wrong.
		text := err.Error()
		if _, after, ok := strings.Cut(text, "join "+at.String()+": "); ok {
			text = after
		}
		err = fmt.Errorf("joining %s: %s", at, strings.TrimSpace(text))
		m.log.Debug("joining a member failed", "error", err)
		return err
	}
	there := m.addresses()
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	delete(m.joins.away, at)
	if !there[at] {
		m.joins.alias[at] = time.Now().Add(aliasFor)
	}
	return nil
}

// missing reports whether to join at an address. Whoever is alone tries aliases, too.
func (j *joins) missing(at netip.AddrPort, there map[netip.AddrPort]bool, now time.Time) bool {
	return !there[at] && at != j.self && (len(there) == 0 || !now.Before(j.alias[at]))
}

// resolve finds the addresses of the join list: often while somebody is missing, and seldom otherwise.
func (j *joins) resolve(ctx context.Context, there map[netip.AddrPort]bool) {
	now := time.Now()
	j.mu.Lock()
	due := len(there) == 0 || len(j.away) > 0 || now.Sub(j.at) >= resolveAgain
	targets := slices.Clone(j.targets)
	for _, t := range targets {
		due = due || t.err != nil || slices.ContainsFunc(t.addresses, func(at netip.AddrPort) bool { return j.missing(at, there, now) })
	}
	j.mu.Unlock()
	if !due {
		return
	}
	var wg sync.WaitGroup
	for i := range targets {
		wg.Go(func() {
			t := &targets[i]
			// If the name service cannot be reached, what it returned at last may still be right.
			if found, err := t.resolve(ctx, j.lookup); err != nil {
				t.err = err
			} else {
				t.addresses, t.err = found, nil
			}
		})
	}
	wg.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.targets, j.at = targets, now
}

// choose picks whom to join: of the join list and of the lost, so that neither stale names nor dead
// nodes take all places.
func (j *joins) choose(there map[netip.AddrPort]bool, now time.Time) []netip.AddrPort {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.alias, func(_ netip.AddrPort, until time.Time) bool { return !now.Before(until) })
	maps.DeleteFunc(j.away, func(at netip.AddrPort, when time.Time) bool { return there[at] || now.Sub(when) > lostFor })
	listed, lost := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for _, t := range j.targets {
		for _, at := range t.addresses {
			if j.missing(at, there, now) {
				listed[at] = true
			}
		}
	}
	for at := range j.away {
		if !listed[at] && j.missing(at, there, now) {
			lost[at] = true
		}
	}
	chosen := firstOf(listed, max(joinAtOnce-1, joinAtOnce-len(lost)))
	return append(chosen, firstOf(lost, joinAtOnce-len(chosen))...)
}

// firstOf returns n addresses of a set in random order, fewer if there are fewer.
func firstOf(set map[netip.AddrPort]bool, n int) []netip.AddrPort {
	all := slices.Collect(maps.Keys(set))
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

const (
	// newsTime is how long the news of a member may take in a cluster of up to 32 members; newsMore is added
	// with each doubling.
	newsTime = 2 * time.Second
	newsMore = 500 * time.Millisecond
	// A list of members is requested at most every requestPause, and every as much more with each doubling: it is as
	// long as the members are many. While it does not have the unknown member the pause doubles, up to maxRequestPause.
	requestPause    = 5 * time.Second
	maxRequestPause = 5 * time.Minute
)

// resync is when to request a list of members again. It is safe for concurrent use.
type resync struct {
	mu    sync.Mutex
	next  time.Time
	vain  int // requests that did not help, one after the other
	waits bool
}

// receivedUnknown handles a message of a member that is not known, by exchanging the list of members with it.
// One that was lost is asked at once. Of others the news may be on the way: each member sends it to a few only,
// so that in small clusters a few of a hundred get none, and memberlist's next exchange of all may be minutes away.
func (m *Members) receivedUnknown(id wire.MemberID, at netip.AddrPort) {
	doublings, r, wait := bits.Len(uint(m.count()-1)/32), &m.returned, time.Duration(0)
	if !m.joins.isLost(at) {
		r, wait = &m.unknown, newsTime+time.Duration(doublings)*newsMore
	}
	now := time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waits || now.Before(r.next) {
		return
	}
	r.waits = true
	time.AfterFunc(wait, func() {
		known := m.at(id).IsValid()
		if !known {
			m.log.Info("received messages from an unknown member; requesting its list of members", "address", at)
			m.joinOne(at) //nolint:errcheck // it is logged
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waits = false
		if known {
			return
		}
		if r.vain++; m.at(id).IsValid() {
			r.vain = 0
		}
		pause := requestPause * time.Duration(1+doublings)
		r.next = time.Now().Add(jitter(min(pause<<min(r.vain, 10), max(pause, maxRequestPause))))
	})
}
