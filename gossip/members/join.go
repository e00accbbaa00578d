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
	// joinAtOnce is how many are joined in one round. Each exchanges the whole list of
	// members.
	joinAtOnce = 3
	// Who is alone tries again after firstRetry, then later and later; who is not looks
	// for lost members every lookAgain. After a cut of a minute memberlist does not find
	// them by itself.
	firstRetry = time.Second
	lookAgain  = 30 * time.Second
	// Lost members are looked for that long, the latest maxLost of them.
	lostFor = 24 * time.Hour
	maxLost = 256
	// An address that leads to a member which has another one, as that of a service does,
	// is not joined again before aliasFor has passed.
	aliasFor = 10 * time.Minute
)

// joins is what is known of joining.
type joins struct {
	targets []target
	lookup  lookup
	sought  chan netip.AddrPort

	mu     sync.Mutex
	book   map[netip.AddrPort]time.Time // lost members, and when
	alias  map[netip.AddrPort]time.Time // not to be joined until then
	failed uint64
	err    error // of the last round that joined nobody
	unread map[string]error
}

func newJoins(targets []target, known []netip.AddrPort, now time.Time) *joins {
	j := &joins{
		targets: targets, lookup: net.DefaultResolver.LookupNetIP, sought: make(chan netip.AddrPort, maxSought),
		book: map[netip.AddrPort]time.Time{}, alias: map[netip.AddrPort]time.Time{}, unread: map[string]error{},
	}
	for _, at := range known {
		j.book[at] = now
	}
	return j
}

// lost notes a member that died.
func (j *joins) lost(address string, now time.Time) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return
	}
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
		case <-timer.C:
		}
		began := time.Now()
		m.table.expire(began)
		m.joinRound(ctx)
		wait := lookAgain
		if m.table.live() == 1 {
			wait, retry = retry, min(2*retry, lookAgain)
		} else {
			retry = firstRetry
		}
		timer.Reset(max(jitter(wait)-time.Since(began), firstRetry/2))
	}
}

// jitter is about as long, so that many nodes do not do the same at once.
func jitter(d time.Duration) time.Duration {
	return d*8/10 + rand.N(d*4/10)
}

// joinRound joins some of those that should be members and are not.
func (m *Members) joinRound(ctx context.Context) {
	listed := m.joins.resolve(ctx)
	there := m.table.addresses()
	chosen := m.joins.choose(listed, there, m.ownAddresses(), time.Now())
	if len(chosen) == 0 || ctx.Err() != nil {
		if len(chosen) == 0 {
			m.joins.outcome(nil, 0)
		}
		return
	}
	errs := make([]error, len(chosen))
	var wg sync.WaitGroup
	for i, at := range chosen {
		wg.Go(func() { errs[i] = m.joinOne(at) })
	}
	wg.Wait()
	if ctx.Err() != nil {
		return // that is why
	}
	failed := 0
	for _, err := range errs {
		if err != nil {
			failed++
			m.log.Debug("joining", "error", err)
		}
	}
	var err error
	if failed == len(errs) && len(there) == 0 {
		err = errs[0]
	}
	m.joins.outcome(err, failed)
}

// joinOne exchanges the members with whoever has an address.
func (m *Members) joinOne(at netip.AddrPort) error {
	if _, err := m.list.Join([]string{at.String()}); err != nil {
		return joinError(at, err)
	}
	there := m.table.addresses()
	m.joins.mu.Lock()
	defer m.joins.mu.Unlock()
	delete(m.joins.book, at)
	if !there[at] {
		m.joins.alias[at] = time.Now().Add(aliasFor)
	}
	return nil
}

// joinError says in one line what is wrong. memberlist gives a list, of one here, and only
// its text.
func joinError(at netip.AddrPort, err error) error {
	if list, ok := errors.AsType[interface {
		error
		WrappedErrors() []error
	}](err); ok && len(list.WrappedErrors()) > 0 {
		err = list.WrappedErrors()[0]
	}
	text := err.Error()
	text = text[strings.LastIndex(text, "failed to join "+at.String()+": ")+1:]
	text = strings.TrimPrefix(text, "ailed to join "+at.String()+": ")
	switch {
	case strings.HasSuffix(text, "EOF"), strings.Contains(text, "connection reset"):
		text = "it hung up; does its --cluster have another name?"
	case strings.Contains(text, "encryption is configured but remote state is not"),
		strings.Contains(text, "encrypted and encryption is not configured"):
		text = "one of the two has a --gossip-key-file and the other has not"
	case strings.Contains(text, "no installed keys"), strings.Contains(text, "No installed keys"):
		text = "it has other keys in its --gossip-key-file"
	}
	return fmt.Errorf("joining %s: %s", at, text)
}

// outcome notes what came of a round.
func (j *joins) outcome(err error, failed int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.err = err
	j.failed += uint64(failed)
}

// resolve finds the addresses of the join list.
func (j *joins) resolve(ctx context.Context) []netip.AddrPort {
	found := make([][]netip.AddrPort, len(j.targets))
	errs := make([]error, len(j.targets))
	var wg sync.WaitGroup
	for i, t := range j.targets {
		wg.Go(func() { found[i], errs[i] = t.resolve(ctx, j.lookup) })
	}
	wg.Wait()
	j.mu.Lock()
	defer j.mu.Unlock()
	for i, err := range errs {
		delete(j.unread, j.targets[i].host)
		if err != nil && ctx.Err() == nil {
			j.unread[j.targets[i].host] = err
		}
	}
	return slices.Concat(found...)
}

// choose picks whom to join: of the join list and of the lost, so that neither stale names
// nor dead nodes take all places.
func (j *joins) choose(listed []netip.AddrPort, there, own map[netip.AddrPort]bool, now time.Time) []netip.AddrPort {
	j.mu.Lock()
	defer j.mu.Unlock()
	missing := func(at netip.AddrPort) bool {
		return !there[at] && !own[at] && (len(there) == 0 || j.alias[at].Before(now))
	}
	first, second := map[netip.AddrPort]bool{}, map[netip.AddrPort]bool{}
	for _, at := range listed {
		if missing(at) {
			first[at] = true
		}
	}
	for at, when := range j.book {
		if now.Sub(when) > lostFor || there[at] {
			delete(j.book, at)
		} else if missing(at) && !first[at] {
			second[at] = true
		}
	}
	for at, until := range j.alias {
		if until.Before(now) {
			delete(j.alias, at)
		}
	}
	names, lost := shuffled(first), shuffled(second)
	places := min(len(names), max(joinAtOnce-1, joinAtOnce-len(lost)))
	return append(names[:places], lost[:min(len(lost), joinAtOnce-places)]...)
}

// ownAddresses are the addresses that lead to this agent.
func (m *Members) ownAddresses() map[netip.AddrPort]bool {
	own := map[netip.AddrPort]bool{}
	self, err := netip.ParseAddrPort(m.table.me().Address)
	if err != nil {
		return own
	}
	own[self] = true
	bound, ok := m.transport.NodeAwareTransport.(*network)
	if !ok {
		return own
	}
	port := uint16(bound.port())
	if addr, err := netip.ParseAddr(m.opts.Bind); err == nil && !addr.IsUnspecified() {
		own[netip.AddrPortFrom(addr.Unmap(), port)] = true
		return own
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return own
	}
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil {
			own[netip.AddrPortFrom(prefix.Addr().Unmap(), port)] = true
		}
	}
	return own
}
