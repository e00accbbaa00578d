package transport

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/wire"
)

// The key proves membership, not identity. What proves identity is an address: only who is there gets what is sent there.
//
// A challenge goes to the address that a member has. The answer proves that the member is there, and has the number from which
// the member counts its datagrams to this node: any of 2^61, which nobody else learns. So what comes with another number is
// somebody else's, whatever address it comes from, or the member has forgotten how far it had counted: a challenge tells.

const (
	// A challenge is a datagram, sent challengeTries times with a pause after each, and then a stream, for networks
	// that let no UDP through. All of it takes challengeTime at most.
	challengeTries = 3
	challengePause = 100 * time.Millisecond
	challengeTime  = time.Second
	// maxProbing streams of challenges are open at a time. Others wait, within their time.
	maxProbing = 64
	nonceSize  = 16
	// One member gets answerRate answers a second, far more than it needs: others can use them up in its name. The
	// challenges that were answered are remembered, so that a repeated one is not answered again: maxAnswered, twice as
	// many for some time.
	answerRate, answerBurst = 1000, 1000
	maxAnswered             = 4096
	// maxJump is how many datagrams of a member may be lost, one after the other, without a challenge.
	maxJump = 1 << 16
)

// Proofs are what a transport must know to challenge and to answer. Its methods must not block.
type Proofs interface {
	// Leaving reports whether this agent leaves now.
	Leaving() bool
	// Doubted is called for a datagram in the name of a member that has not proved that it sends this.
	Doubted(id wire.MemberID, from netip.AddrPort)
}

// proofs is the state of challenges and answers.
type proofs struct {
	mu      sync.Mutex
	open    map[nonce]*challenge
	numbers recent.Map[wire.MemberID, uint64] // by receiver
	probing chan struct{}

	// Of the goroutine that receives: who has answered challenges, limits of answers, challenges that were answered.
	senders  recent.Map[wire.MemberID, sender]
	limits   recent.Map[wire.MemberID, rate.Limiter]
	answered recent.Map[nonce, struct{}]
	owing    recent.Map[wire.MemberID, nonce] // the last challenges that this node owes its number to
}

// nonce is what a challenge carries; none is no challenge.
type nonce [nonceSize]byte

var none nonce

// challenge is one under way.
type challenge struct {
	to      wire.MemberID
	at      netip.AddrPort
	leaving chan bool
}

// sender is a member that has answered a challenge.
type sender struct {
	at     netip.AddrPort
	window *window // nil until it has told its number
	// owed is the challenge to which it owes its number: it will tell when this node has proved where it is.
	owed nonce
}

func newProofs() proofs {
	return proofs{
		open: make(map[nonce]*challenge), probing: make(chan struct{}, maxProbing),
		numbers: recent.Map[wire.MemberID, uint64]{Half: maxWindows}, senders: recent.Map[wire.MemberID, sender]{Half: maxWindows},
		limits: recent.Map[wire.MemberID, rate.Limiter]{Half: maxAnswered}, answered: recent.Map[nonce, struct{}]{Half: maxAnswered},
		owing: recent.Map[wire.MemberID, nonce]{Half: maxAnswered},
	}
}

// number returns the next number for a receiver. Where it begins is forgotten with it.
func (p *proofs) number(to wire.MemberID) uint64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.numbers.Get(to, func() *uint64 {
		var b [8]byte
		rand.Read(b[:])
		return new(binary.BigEndian.Uint64(b[:])>>3 | 1<<61)
	})
	*n++
	return *n
}

// Challenge asks whether an incarnation is at an address, and whether it is about to leave. It takes a second at most.
func (t *Transport) Challenge(to wire.MemberID, at netip.AddrPort) (leaving bool, err error) {
	ctx, cancel := context.WithTimeout(t.ctx, challengeTime)
	defer cancel()
	c := &challenge{to, at, make(chan bool, 1)}
	var first nonce // the last byte counts the tries: no datagram is a repeated one
	rand.Read(first[:nonceSize-1])
	t.proofs.mu.Lock()
	t.proofs.open[first] = c
	t.proofs.mu.Unlock()
	defer func() {
		t.proofs.mu.Lock()
		delete(t.proofs.open, first)
		t.proofs.mu.Unlock()
	}()
	for try := range challengeTries {
		sent := first
		sent[nonceSize-1] = byte(try)
		t.send(to, at, kindChallenge, sent[:]) //nolint:errcheck // as good as lost
		select {
		case leaving := <-c.leaving:
			return leaving, nil
		case <-time.After(challengePause):
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	select {
	case t.proofs.probing <- struct{}{}:
		defer func() { <-t.proofs.probing }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	conn, err := t.dial(ctx, at, kindOwn, to)
	if err == nil {
		conn.Close()
	}
	select {
	case leaving := <-c.leaving: // late
		return leaving, nil
	default:
		return false, err
	}
}

// admit returns why a datagram that was opened is refused, and handles challenges and answers.
func (t *Transport) admit(d content, from netip.AddrPort) drop {
	var p sender // what is not known is zero
	if known := t.proofs.senders.Get(d.from, nil); known != nil {
		p = *known
	}
	switch {
	case d.kind == kindAnswer:
		return t.receiveAnswer(d, p)
	case d.kind == kindChallenge:
		return t.answer(d, from, p)
	case p.window == nil && (d.kind == kindMemberlist || t.Proofs == nil): // who joins has proved nothing yet
		if !t.strangers.Get(d.from, func() *window { return new(window) }).accept(d.seq) {
			return dropReplay
		}
	case !p.window.near(d.seq):
		t.Proofs.Doubted(d.from, from)
		return dropUnproved
	case !p.window.accept(d.seq):
		return dropReplay
	}
	return 0
}

// answer answers a challenge. Only the address where its sender has proved to be learns this node's number for it, if need be
// as soon as it has proved that.
func (t *Transport) answer(d content, from netip.AddrPort, p sender) drop {
	if len(d.payload) != nonceSize || t.Proofs == nil {
		return dropMalformed
	}
	asked := nonce(d.payload)
	if t.proofs.answered.Get(asked, nil) != nil {
		return dropReplay
	}
	if !t.proofs.limits.Get(d.from, func() *rate.Limiter { return rate.NewLimiter(answerRate, answerBurst) }).Allow() {
		return dropChallenge
	}
	t.proofs.answered.Get(asked, func() *struct{} { return new(struct{}) })
	if p.at.IsValid() {
		t.tell(d.from, p.at, asked, t.proofs.number(d.from))
	} else {
		*t.proofs.owing.Get(d.from, func() *nonce { return new(nonce) }) = asked
		t.tell(d.from, from, asked, 0)
	}
	if !p.window.near(d.seq) && p.owed == none {
		t.Proofs.Doubted(d.from, from)
	}
	return 0
}

// tell sends an answer.
func (t *Transport) tell(to wire.MemberID, at netip.AddrPort, asked nonce, seq uint64) {
	payload := append(asked[:], 0)
	if t.Proofs.Leaving() {
		payload[nonceSize] = 1
	}
	t.write(at, t.seal(to, kindAnswer, seq, payload)) //nolint:errcheck // it is counted
}

// receiveAnswer handles the answer to a challenge. It is of the member that was challenged: the challenge went to its address only.
func (t *Transport) receiveAnswer(d content, p sender) drop {
	if len(d.payload) <= nonceSize {
		return dropMalformed
	}
	sent := nonce(d.payload)
	first := sent
	first[nonceSize-1] = 0
	t.proofs.mu.Lock()
	c := t.proofs.open[first]
	if c != nil && c.to == d.from {
		delete(t.proofs.open, first)
	}
	t.proofs.mu.Unlock()
	switch {
	case c != nil && c.to == d.from: // Challenge returns last, when the answer has been handled
		p.at, p.owed = c.at, sent
		defer func() { c.leaving <- d.payload[nonceSize] != 0 }()
	case p.owed == none || sent != p.owed || d.seq == 0:
		return dropReplay
	}
	if d.seq != 0 {
		if p.owed = none; p.window == nil {
			p.window = new(window)
			if stranger := t.strangers.Get(d.from, nil); stranger != nil {
				*p.window = *stranger
			}
		}
		p.window.prove(d.seq)
	}
	*t.proofs.senders.Get(d.from, func() *sender { return new(sender) }) = p
	if owing := t.proofs.owing.Get(d.from, nil); owing != nil && *owing != none {
		t.tell(d.from, p.at, *owing, t.proofs.number(d.from))
		*owing = none
	}
	return 0
}

// near reports whether the member of a window may have sent a number.
func (w *window) near(seq uint64) bool {
	return w != nil && seq-w.top+windowSize-1 < windowSize-1+maxJump
}

// prove begins a window anew with a number that its member has proved to be at, if the window is not there. What was
// sent before counts as received.
func (w *window) prove(seq uint64) {
	if !w.near(seq) {
		w.top = seq - 1
		for i := range w.seen {
			w.seen[i] = ^uint64(0)
		}
	}
	w.accept(seq)
}
