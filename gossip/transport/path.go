package transport

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/gossip/recent"
)

const (
	// To an address that is not proven go amplification bytes for each byte that came from there, and
	// beyond that one datagram in freeEvery, freeRate a second to all such addresses.
	amplification = 3
	freeEvery     = time.Second
	freeRate      = 50
	maxBudget     = 64 * MaxDatagram
	tokenSize     = 16
	probeSize     = headerSize + tokenSize
	// maxProven and maxUnproven bound the addresses that are remembered; twice as many are for some time.
	maxProven, maxUnproven = 16384, 4096
)

// paths bounds what is sent to addresses of which nobody proved that they want it: without a key, anybody can name any
// address as that of a member, and have all agents send there (RFC 9000, section 8.1). An address is proven when an
// agent there has accepted a stream, or when it returned a token that was sent to it.
//
// It is safe for concurrent use.
type paths struct {
	secret [32]byte
	free   *rate.Limiter

	mu       sync.Mutex
	proven   recent.Map[netip.AddrPort, struct{}]
	unproven recent.Map[netip.AddrPort, path]
}

type path struct {
	budget   int // bytes
	lastFree time.Time
	waiting  []byte // a datagram, until the address is proven
}

func newPaths() *paths {
	p := &paths{free: rate.NewLimiter(freeRate, freeRate)}
	p.proven.Half, p.unproven.Half = maxProven, maxUnproven
	rand.Read(p.secret[:])
	return p
}

// prove notes that an address is proven.
func (p *paths) prove(at netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.proven.Get(at, func() *struct{} { return new(struct{}) })
}

// outgoing returns what to send to an address instead of a datagram: the datagram itself, a token to be
// returned, or nothing. A datagram that waits for the token replaces the previous one.
func (p *paths) outgoing(at netip.AddrPort, b []byte, label uint32, now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.proven.Get(at, nil) != nil {
		return b
	}
	to := p.unproven.Get(at, func() *path { return new(path) })
	switch {
	case to.budget >= len(b):
		to.budget -= len(b)
		return b
	case now.Sub(to.lastFree) < freeEvery || !p.free.AllowN(now, 1):
		return nil
	}
	to.lastFree, to.waiting = now, b
	return append(appendHeader(nil, byteProbe, label, 0), p.token(at)...)
}

// incoming notes that a datagram came from an address. If it has a token it is done, and out is what to send back.
func (p *paths) incoming(b []byte, from netip.AddrPort, label uint32) (out []byte, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := new(path)
	if p.proven.Get(from, nil) == nil {
		of = p.unproven.Get(from, func() *path { return of })
		of.budget = min(of.budget+amplification*len(b), maxBudget)
	}
	if len(b) != probeSize || b[0] != byteProbe && b[0] != byteAnswer || binary.BigEndian.Uint32(b[1:]) != label {
		return nil, false
	}
	token := b[headerSize:]
	if b[0] == byteProbe {
		of.budget -= probeSize
		return append(appendHeader(nil, byteAnswer, label, 0), token...), true
	}
	if hmac.Equal(token, p.token(from)) {
		p.proven.Get(from, func() *struct{} { return new(struct{}) })
		out, of.waiting = of.waiting, nil
	}
	return out, true
}

// token is what only this agent can make and only who receives at an address can return.
func (p *paths) token(at netip.AddrPort) []byte {
	mac := hmac.New(sha256.New, p.secret[:])
	text, _ := at.MarshalBinary() // never fails
	mac.Write(text)
	return mac.Sum(nil)[:tokenSize]
}

const (
	// Without a key, so many datagrams of one address are taken at once and per second, and so many of all.
	sourceRate, sourceBurst = 2000, 8000
	allRate, allBurst       = 20000, 40000
	maxSources              = 8192
)

// sources bounds the datagrams of each address. Only the goroutine that receives uses it.
type sources struct {
	all *rate.Limiter
	of  recent.Map[netip.Addr, rate.Limiter]
}

func newSources() *sources {
	return &sources{rate.NewLimiter(allRate, allBurst), recent.Map[netip.Addr, rate.Limiter]{Half: maxSources}}
}

func (s *sources) allow(from netip.Addr, now time.Time) bool {
	of := s.of.Get(from, func() *rate.Limiter { return rate.NewLimiter(sourceRate, sourceBurst) })
	return of.AllowN(now, 1) && s.all.AllowN(now, 1)
}
