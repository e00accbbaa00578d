package transport

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// proving has a transport demand proofs.
type proving struct {
	mu      sync.Mutex
	leaving bool
	doubted map[wire.MemberID]int
}

func (p *proving) Leaving() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

func (p *proving) Doubted(id wire.MemberID, _ netip.AddrPort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doubted[id]++
}

func (p *proving) doubts(id wire.MemberID) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doubted[id]
}

func proofsOf(p *proving) func(*Options) {
	p.doubted = make(map[wire.MemberID]int)
	return func(o *Options) { o.Proofs = p }
}

// challenge has a node challenge another one.
func (n *node) challenge(t *testing.T, to *node) (leaving bool) {
	t.Helper()
	leaving, err := n.Challenge(to.ID, to.at)
	if err != nil {
		t.Fatal(err)
	}
	return leaving
}

// What comes in a member's name is refused until the member has told its number, then all that does not follow it, from
// whatever address.
func TestUnproved(t *testing.T) {
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(t, 1)} {
		var mine, its proving
		n, member, rogue := open(t, 1, key, proofsOf(&mine)), open(t, 2, key, proofsOf(&its)), open(t, 2, key)
		send := func(from *node, text string, refused int) {
			t.Helper()
			if err := from.Send(1, n.at, []byte(text)); err != nil {
				t.Fatal(err)
			}
			eventually(t, name+": "+text, func() bool {
				return refused > 0 && int(n.Dropped()["unproved"]) == refused || refused == 0 && n.got(message{2, false, text})
			})
			if refused > 0 && (n.got(message{2, false, text}) || mine.doubts(2) == 0) {
				t.Errorf("%s: %q counts", name, text)
			}
		}
		send(member, "before it has proved anything", 1)
		n.challenge(t, member) // which does not know where this node is, and owes its number
		send(member, "without a number", 2)
		for _, forged := range []nonce{none, {1}} { // nor can somebody else tell it
			rogue.Sockets.WriteToUDPAddrPort(rogue.datagram(1, kindAnswer, append(forged[:], 0)), n.at) //nolint:errcheck // it is counted
		}
		eventually(t, "the forged numbers are refused", func() bool { return n.Dropped()["replay"] == 2 })
		member.challenge(t, n)
		send(member, "in order", 0)
		for i := range 3 {
			send(rogue, fmt.Sprint("forged ", i), 3+i)
			send(member, fmt.Sprint("after that ", i), 0)
		}
		// The member has forgotten its number.
		member.proofs.mu.Lock()
		member.proofs.numbers.Half = 1
		member.proofs.mu.Unlock()
		member.proofs.number(8)
		member.proofs.number(9)
		send(member, "with another number", 6)
		n.challenge(t, member)
		send(member, "with the new one", 0)
		mine.mu.Lock()
		mine.leaving = true
		mine.mu.Unlock()
		if !member.challenge(t, n) {
			t.Errorf("%s: it does not say that it leaves", name)
		}
	}
}

// A challenge finds the incarnation that is there, by streams also without datagrams, and no other one, within a second.
func TestChallenge(t *testing.T) {
	var mine, its proving
	n, member := open(t, 1, keys(t, 1), proofsOf(&mine)), open(t, 2, keys(t, 1), proofsOf(&its))
	free := listenAt(t, "127.0.0.1")
	nobody := netip.MustParseAddrPort(free.TCPListener.Addr().String())
	free.Close()
	for name, test := range map[string]struct {
		to    wire.MemberID
		at    netip.AddrPort
		there bool
	}{
		"it is there": {2, member.at, true}, "another incarnation": {3, member.at, false}, "nobody": {2, nobody, false}, "itself": {2, n.at, false},
	} {
		if _, err := n.Challenge(test.to, test.at); (err == nil) != test.there {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(n.proofs.open) != 0 {
		t.Error("challenges are left")
	}
	deaf := open(t, 4, keys(t, 1)) // it answers no datagram
	if _, err := n.Challenge(4, deaf.at); err != nil {
		t.Error(err)
	}
	if _, err := open(t, 5, keys(t, 2), proofsOf(&proving{})).Challenge(2, member.at); err == nil {
		t.Error("somebody with another key is answered")
	}
	synctest.Test(t, func(t *testing.T) {
		silent := open(t, 6, func(o *Options) { o.Sockets = silence{newPipes()} }, proofsOf(&proving{}))
		began := time.Now()
		if _, err := silent.Challenge(7, netip.MustParseAddrPort("10.0.0.1:1")); err == nil || time.Since(began) != challengeTime {
			t.Errorf("after %s: %v", time.Since(began), err)
		}
	})
}

// silence is a network from which nothing comes back.
type silence struct{ *pipes }

func (silence) Dial(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// However many challenges come, a member gets few answers, and nobody gets one to a repeated challenge.
func TestManyChallenges(t *testing.T) {
	var mine, its proving
	n, conn := open(t, 1, keys(t, 1), proofsOf(&mine)), outsider(t)
	member := open(t, 2, keys(t, 1), proofsOf(&its))
	answers := make(chan int)
	go func() {
		count := 0
		for {
			if _, err := conn.Read(make([]byte, MaxDatagram)); err != nil {
				answers <- count
				return
			}
			count++
		}
	}()
	var sent nonce
	repeated := member.datagram(1, kindChallenge, sent[:])
	for range 3 {
		sendTo(t, conn, n, repeated)
	}
	const many = 2 * answerBurst
	for i := range many {
		sent[0], sent[1] = byte(i), 1+byte(i>>8)
		sendTo(t, conn, n, member.datagram(1, kindChallenge, sent[:]))
	}
	sendTo(t, conn, n, member.datagram(1, kindChallenge, sent[1:]))
	sendTo(t, conn, n, member.datagram(1, kindAnswer, sent[1:]))
	sendTo(t, conn, n, member.datagram(1, kindAnswer, append(sent[:], 0)))
	eventually(t, "all are handled", func() bool { return n.Dropped()["malformed"] == 2 && n.Dropped()["replay"] == 3 })
	if got := n.Dropped()["challenge"]; got < many/10 || got > many-answerBurst+1 { // it takes a fraction of a second
		t.Errorf("%d are refused", got)
	}
	conn.SetReadDeadline(time.Now().Add(time.Second))                                //nolint:errcheck // then it never ends
	if got := <-answers; got == 0 || uint64(got)+n.Dropped()["challenge"] > many+1 { // the kernel drops some
		t.Errorf("%d answers", got)
	}
}

// A number that a member has proved to be at begins a window anew, unless that is there: nothing counts twice.
func TestProve(t *testing.T) {
	const there = 1 << 61
	for name, test := range map[string]struct {
		proved   uint64
		accepted map[uint64]bool
	}{
		"near":           {there + 10, map[uint64]bool{there + 5: true, there: false, there + 10: false, there + 11: true}},
		"lower, near":    {there - 10, map[uint64]bool{there: false, there - 10: false, there + 1: true, there - 9: true}},
		"a lawful jump":  {there + maxJump - 1, map[uint64]bool{there + maxJump - 2: true, there + maxJump: true}},
		"somewhere else": {there << 1, map[uint64]bool{there << 1: false, there<<1 - 1: false, there<<1 + 1: true}},
	} {
		w := window{top: there - 1}
		w.accept(there)
		w.prove(test.proved)
		for seq, want := range test.accepted {
			if got := w.near(seq) && w.accept(seq); got != want {
				t.Errorf("%s: %d more than was proved is accepted: %t", name, int64(seq-test.proved), got)
			}
		}
	}
	w := window{top: there}
	for seq, want := range map[uint64]bool{there + maxJump - 1: true, there + maxJump: false, there - windowSize + 1: true, there - windowSize: false, 0: false, 1<<64 - 1: false} {
		if w.near(seq) != want {
			t.Errorf("%d is near: %t", int64(seq-there), !want)
		}
	}
}
