package members

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// joinAtOnce is how many are joined in one round: each exchanges the whole list of members.
	joinAtOnce = 3
	// A node that is alone tries again after firstRetry, then less and less often; one that is not
	// looks for lost members every lookAgain. After a partition of a minute memberlist does not find
	// them by itself.
	firstRetry = time.Second
	lookAgain  = 30 * time.Second
	// resolveAgain is how often names are resolved while nobody is missing.
	resolveAgain = 10 * time.Minute
	// Lost members are looked for that long, the latest maxLost of them.
	lostFor = 24 * time.Hour
	maxLost = 256
	// An address that leads to a member that has another one, as that of a service does, is not joined
	// again before aliasFor has passed.
	aliasFor = 10 * time.Minute
)

// joins is what is known about joining. It is safe for concurrent use.
type joins struct {
	targets []target
	lookup  lookup

	mu       sync.Mutex
	resolved map[netip.AddrPort]bool
	at       time.Time                    // when they were resolved
	book     map[netip.AddrPort]time.Time // lost members, and when
	alias    map[netip.AddrPort]time.Time // not to be joined until then
	failed   uint64
	err      error            // of the last round that joined nobody
	unread   map[string]error // by name
}

func newJoins(targets []target, known []netip.AddrPort, now time.Time) *joins {
	j := &joins{
		targets: targets, lookup: net.DefaultResolver.LookupNetIP, resolved: map[netip.AddrPort]bool{},
		book: map[netip.AddrPort]time.Time{}, alias: map[netip.AddrPort]time.Time{}, unread: map[string]error{},
	}
	for _, at := range known {
		j.book[at] = now
	}
	return j
}

// lost notes a member that does not answer any more.
func (j *joins) lost(at netip.AddrPort, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.book[at] = now
	for len(j.book) > maxLost {
		oldest := at
		for other, when := range j.book {
			if when.Before(j.book[oldest]) {
				oldest = other
			}
		}
		delete(j.book, oldest)
	}
}

// join joins the cluster, and looks for lost members, until ctx ends.
func (m *Members) join(ctx context.Context) {
	retry := firstRetry
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.rejoin:
			m.joinAll(ctx, firstOf(m.addresses(), joinAtOnce))
		case <-timer.C:
		}
		began := time.Now()
		m.joinRound(ctx)
		wait := lookAgain
		if m.count() == 1 {
			wait, retry = retry, min(2*retry, lookAgain)
		} else {
			retry = firstRetry
		}
		timer.Reset(max(jitter(wait)-time.Since(began), firstRetry/2))
	}
}

// Rejoin exchanges the list of members with some of them at once: they may have given this one up while
// it was suspended. It does not block.
func (m *Members) Rejoin() {
	select {
	case m.rejoin <- struct{}{}:
	default:
	}
}

// jitter is about as long, so that many nodes do not do the same at once.
func jitter(d time.Duration) time.Duration {
	return d*8/10 + rand.N(d*4/10)
}

// joinRound joins some of those that should be members and are not.
func (m *Members) joinRound(ctx context.Context) {
	there := m.addresses()
	m.joins.resolve(ctx, there)
	chosen := m.joins.choose(there, m.ownAddresses(), time.Now())
	if ctx.Err() != nil {
		return
	}
	errs := m.joinAll(ctx, chosen)
	if ctx.Err() != nil {
		return // that is why
	}
	var err error
	if len(errs) == len(chosen) && len(errs) > 0 && len(there) == 0 {
		err = errs[0]
	}
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	m.joins.err = err
	m.joins.failed += uint64(len(errs))
}

// joinAll joins at some addresses at the same time.
func (m *Members) joinAll(ctx context.Context, chosen []netip.AddrPort) (errs []error) {
	results := make(chan error, len(chosen))
	for _, at := range chosen {
		go func() { results <- m.joinOne(at) }()
	}
	for range chosen {
		select {
		case err := <-results:
			if err != nil {
				m.log.Debug("joining", "error", err)
				errs = append(errs, err)
			}
		case <-ctx.Done():
			return errs
		}
	}
	return errs
}

// joinOne exchanges the members with whoever has an address.
func (m *Members) joinOne(at netip.AddrPort) error {
	if _, err := m.list.Join([]string{at.String()}); err != nil {
		return joinError(at, err)
	}
	there := m.addresses()
	m.mu.Lock()
	m.health.streamed = time.Now()
	m.mu.Unlock()
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	delete(m.joins.book, at)
	if !there[at] {
		m.joins.alias[at] = time.Now().Add(aliasFor)
	}
	return nil
}

// joinError says in one line what is wrong. Memberlist gives a list, of one here, and only its text.
func joinError(at netip.AddrPort, err error) error {
	if list, ok := errors.AsType[interface {
		error
		WrappedErrors() []error
	}](err); ok && len(list.WrappedErrors()) > 0 {
		err = list.WrappedErrors()[0]
	}
	_, text, found := strings.Cut(err.Error(), "ailed to join "+at.String()+": ")
	if !found {
		text = err.Error()
	}
	return fmt.Errorf("joining %s: %s", at, text)
}

// resolve finds the addresses of the join list: often while one of them is not there, or this node is
// alone or looks for somebody.
func (j *joins) resolve(ctx context.Context, there map[netip.AddrPort]bool) {
	j.mu.Lock()
	missing := len(there) == 0 || len(j.book) > 0 || len(j.unread) > 0 || time.Since(j.at) >= resolveAgain
	for at := range j.resolved {
		missing = missing || !there[at] && j.alias[at].IsZero()
	}
	j.mu.Unlock()
	if !missing {
		return
	}
	found, errs := make([][]netip.AddrPort, len(j.targets)), make([]error, len(j.targets))
	var wg sync.WaitGroup
	for i, t := range j.targets {
		wg.Go(func() { found[i], errs[i] = t.resolve(ctx, j.lookup) })
	}
	wg.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	clear(j.resolved)
	clear(j.unread)
	for _, at := range slices.Concat(found...) {
		j.resolved[at] = true
	}
	for i, err := range errs {
		if err != nil && ctx.Err() == nil {
			j.unread[j.targets[i].host] = err
		}
	}
	j.at = time.Now()
}

// choose picks whom to join: of the join list and of the lost, so that neither stale names nor dead
// nodes take all places.
func (j *joins) choose(there, own map[netip.AddrPort]bool, now time.Time) []netip.AddrPort {
	j.mu.Lock()
	defer j.mu.Unlock()
	missing := func(at netip.AddrPort) bool {
		return !there[at] && !own[at] && (len(there) == 0 || j.alias[at].Before(now))
	}
	listed, lost := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for at := range j.resolved {
		if missing(at) {
			listed[at] = true
		}
	}
	for at, when := range j.book {
		if now.Sub(when) > lostFor || there[at] {
			delete(j.book, at)
		} else if missing(at) && !listed[at] {
			lost[at] = true
		}
	}
	for at, until := range j.alias {
		if until.Before(now) {
			delete(j.alias, at)
		}
	}
	chosen := firstOf(listed, max(joinAtOnce-1, joinAtOnce-len(lost)))
	return append(chosen, firstOf(lost, joinAtOnce-len(chosen))...)
}

// firstOf returns n addresses of a set in random order, fewer if there are fewer.
func firstOf(set map[netip.AddrPort]bool, n int) []netip.AddrPort {
	all := make([]netip.AddrPort, 0, len(set))
	for at := range set {
		all = append(all, at)
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	return all[:min(n, len(all))]
}

// ownAddresses are the addresses that lead to this agent.
func (m *Members) ownAddresses() map[netip.AddrPort]bool {
	self := netip.MustParseAddrPort(m.self.Address)
	own := map[netip.AddrPort]bool{self: true}
	if m.opts.Sockets != nil {
		return own
	}
	if addr, err := netip.ParseAddr(m.opts.Bind); err == nil && !addr.IsUnspecified() {
		own[netip.AddrPortFrom(addr.Unmap(), uint16(m.port))] = true
		return own
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			own[netip.AddrPortFrom(prefix.Addr().Unmap(), uint16(m.port))] = true
		}
	}
	return own
}
