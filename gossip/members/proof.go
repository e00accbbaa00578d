package members

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// Memberlist believes what members say of each other. The handler is notified of a member when that has answered a challenge at
// its address, and of its end when it says that it leaves, or is given up by memberlist and does not answer.

const (
	// maxChallenges are under way at a time, one of each member at most. Others wait for about a second.
	maxChallenges = 1024
	// A member that does not answer is challenged again after proveAgain, then less and less often, and one that answers
	// although memberlist has given it up every stillAgain.
	proveAgain, maxProveAgain = time.Second, 30 * time.Second
	stillAgain                = 5 * time.Second
	// One that has not answered so often is worth a problem: memberlist names the dead for some seconds.
	unprovedTries = 5
	// Datagrams in the name of a member start doubtRate challenges of it a second.
	doubtRate, doubtBurst = 1, 3
)

// proof is what this node knows of a member by itself.
type proof struct {
	presence      // what is challenged; of one that has joined it stays as it was then, but for left
	joined   bool // it has answered, and the handler knows it
	tries    int  // in vain, one after the other
	doubts   *rate.Limiter
	busy     bool // a challenge is under way
	again    bool // another one is due after that
	waits    bool // a timer runs for another one
}

// listed notes what memberlist says of a member. Call it with the lock.
func (m *Members) listed(p presence) {
	known := m.proofs[p.ID]
	if known == nil {
		known = &proof{presence: p, doubts: rate.NewLimiter(doubtRate, doubtBurst)}
		m.proofs[p.ID] = known
	}
	moved, left := known.at != p.at, p.left && !known.left
	if known.left = p.left; !known.joined {
		known.presence = p
	}
	if !known.joined && (known.tries == 0 || moved) || known.joined && (moved || left) {
		m.challenge(known)
	}
}

// challenge challenges a member soon. Call it with the lock.
func (m *Members) challenge(p *proof) {
	if p.busy {
		p.again = true
		return
	}
	select {
	case m.challenges <- struct{}{}:
		p.busy = true
		go m.prove(p)
	default:
		m.later(p, time.Second)
	}
}

// later challenges a member after some time. Call it with the lock.
func (m *Members) later(p *proof, wait time.Duration) {
	if p.waits {
		return
	}
	p.waits = true
	time.AfterFunc(jitter(wait), func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if p.waits = false; m.proofs[p.ID] == p {
			m.challenge(p)
		}
	})
}

// prove challenges a member and notifies the handler of what is new. What others say of its end counts if it does not answer.
func (m *Members) prove(p *proof) {
	m.mu.Lock()
	id, at := p.ID, p.at // memberlist may say it again meanwhile
	m.mu.Unlock()
	leaving, err := m.transport.Challenge(id, at)
	<-m.challenges
	if errors.Is(err, context.Canceled) {
		return // this agent has ended
	}
	m.mu.Lock()
	listed, there := m.present[p.ID]
	was, gracefully, member := p.joined, leaving || p.left, p.Member
	switch {
	case err == nil:
		p.joined, p.tries = !leaving, 0
	case there && listed.at == p.at: // memberlist decides when it is dead
		p.tries++
	default:
		p.joined = false
		p.tries++
	}
	joined := p.joined
	m.mu.Unlock()
	if joined && !was {
		m.opts.Handler.Joined(member)
	} else if was && !joined {
		m.opts.Handler.Left(member, gracefully)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	p.busy = false
	listed, there = m.present[p.ID]
	switch {
	case !there && !p.joined:
		delete(m.proofs, p.ID)
	case p.again:
		p.again = false
		m.challenge(p)
	case !there:
		m.later(p, stillAgain)
	case !p.joined:
		p.presence = listed
		m.later(p, min(proveAgain<<min(p.tries, 10)/2, maxProveAgain))
	}
}

// unlisted notes that memberlist has given a member up, or that it has left, and reports whether it had answered before. Call it
// with the lock.
func (m *Members) unlisted(id wire.MemberID) (joined bool) {
	p := m.proofs[id]
	switch {
	case p == nil:
	case p.joined:
		m.challenge(p)
		return true
	case !p.busy:
		delete(m.proofs, id)
	}
	return false
}

// proved is where a member has proved to be, not valid if it has not.
func (m *Members) proved(id wire.MemberID) netip.AddrPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	if p := m.proofs[id]; p != nil && p.joined {
		return p.at
	}
	return netip.AddrPort{}
}

// agents are where other agents have proved to be, in no order.
func (m *Members) agents() map[netip.AddrPort]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[netip.AddrPort]bool, len(m.proofs))
	for _, p := range m.proofs {
		if p.joined && p.Role == cluster.Agent {
			all[p.at] = true
		}
	}
	return all
}

// Leaving implements [transport.Proofs].
func (h *hooks) Leaving() bool { return h.leaving.Load() }

// Doubted implements [transport.Proofs].
func (h *hooks) Doubted(id wire.MemberID, from netip.AddrPort) {
	m := (*Members)(h)
	m.mu.Lock()
	p := m.proofs[id]
	if p != nil && p.doubts.Allow() {
		m.challenge(p)
	}
	m.mu.Unlock()
	if p == nil {
		m.receivedUnknown(id, from)
	}
}

// unproved is a clause for people about members that are listed and do not answer.
func (m *Members) unproved() (all []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var one *proof
	count := 0
	for _, p := range m.proofs {
		if !p.joined && p.tries >= unprovedTries {
			if count++; one == nil || p.Name < one.Name {
				one = p
			}
		}
	}
	if count > 0 {
		all = append(all, fmt.Sprintf("%d members that others list do not answer this node, %s at %s among them: if they run, allow UDP and TCP %d between them and %s",
			count, one.Name, one.at, one.at.Port(), m.self.Address))
	}
	return all
}
