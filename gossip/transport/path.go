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
)

const (
	// To an address that is not proven go amplification bytes for each byte that came from there, and
	// beyond that one datagram in freeEvery, freeRate a second to all such addresses.
	amplification = 3
	freeEvery     = time.Second
	freeRate      = 50
	// maxPaths bounds the addresses that are remembered; twice as many are for some time.
	maxPaths  = 16384
	tokenSize = 16
	probeSize = headerSize + tokenSize
)

// paths bounds what is sent to addresses of which nobody proved that they want it: without a key,
// anybody can name any address as that of a member, and have all agents send there (RFC 9000, section
// 8.1). An address is proven when a TCP handshake with it has completed, or when it returned a token
// that was sent to it.
//
// It is safe for concurrent use.
type paths struct {
	secret [32]byte
	free   *rate.Limiter

	mu sync.Mutex
	// As with windows, addresses that were not used for long make room.
	young, old map[netip.AddrPort]*path
}

type path struct {
	proven   bool
	budget   int // bytes
	lastFree time.Time
	waiting  []byte // a datagram, until the address is proven
}

func newPaths() *paths {
	p := &paths{free: rate.NewLimiter(freeRate, freeRate)}
	rand.Read(p.secret[:])
	return p
}

func (p *paths) get(at netip.AddrPort) *path {
	of := p.young[at]
	if of == nil {
		if of = p.old[at]; of == nil {
			of = new(path)
		}
		if p.young == nil || len(p.young) >= maxPaths {
			p.young, p.old = make(map[netip.AddrPort]*path), p.young
		}
		p.young[at] = of
	}
	return of
}

// prove notes that an address is proven.
func (p *paths) prove(at netip.AddrPort) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.get(at).proven = true
}

// outgoing returns what to send to an address instead of a datagram: the datagram itself, a token to be
// returned, or nothing. A datagram that waits for the token replaces the previous one.
func (p *paths) outgoing(at netip.AddrPort, b []byte, label uint32, now time.Time) []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(at)
	switch {
	case of.proven:
		return b
	case of.budget >= len(b):
		of.budget -= len(b)
		return b
	case now.Sub(of.lastFree) < freeEvery || !p.free.AllowN(now, 1):
		return nil
	}
	of.lastFree, of.waiting = now, b
	return append(appendHeader(nil, byteProbe, label, 0), p.token(at)...)
}

// incoming notes that a datagram came from an address. If it is a token it is handled, and out is what
// to send back.
func (p *paths) incoming(b []byte, from netip.AddrPort, label uint32, now time.Time) (out []byte, done bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	of := p.get(from)
	of.budget = min(of.budget+amplification*len(b), 64*MaxDatagram)
	if len(b) != probeSize || b[0] != byteProbe && b[0] != byteAnswer || binary.BigEndian.Uint32(b[1:]) != label {
		return nil, false
	}
	token := b[headerSize:]
	if b[0] == byteProbe {
		of.budget -= probeSize
		return append(appendHeader(nil, byteAnswer, label, 0), token...), true
	}
	if hmac.Equal(token, p.token(from)) {
		of.proven = true
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
	// Without a key, so many datagrams of one address are taken at once and per second, and so many
	// of all.
	sourceRate, sourceBurst = 2000, 8000
	allRate, allBurst       = 20000, 40000
	maxSources              = 8192
)

// sources bounds the datagrams of each address. Only the goroutine that receives uses it.
type sources struct {
	all        *rate.Limiter
	young, old map[netip.Addr]*rate.Limiter
}

func newSources() *sources { return &sources{all: rate.NewLimiter(allRate, allBurst)} }

func (s *sources) allow(from netip.Addr, now time.Time) bool {
	of := s.young[from]
	if of == nil {
		if of = s.old[from]; of == nil {
			of = rate.NewLimiter(sourceRate, sourceBurst)
		}
		if s.young == nil || len(s.young) >= maxSources {
			s.young, s.old = make(map[netip.Addr]*rate.Limiter), s.young
		}
		s.young[from] = of
	}
	return of.AllowN(now, 1) && s.all.AllowN(now, 1)
}
