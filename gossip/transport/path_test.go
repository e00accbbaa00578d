package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"
)

var someLabel = hashLabel("test")

// address is one of many.
func address(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}), 7951)
}

// token is a datagram that returns the token that another one has.
func returned(probe []byte) []byte {
	b := bytes.Clone(probe)
	b[0] = byteAnswer
	return b
}

// Whatever is sent and received, an address that is not proven gets 3 bytes for each of its own, and one
// token a second beyond that; all of them together get 50 tokens a second.
func TestAmplification(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct{ addresses, incoming int }{{1, 50}, {10, 50}, {1000, 50}, {1, 0}, {10, 0}, {1000, 0}} {
		addresses := test.addresses
		p, began := newPaths(), time.Now()
		now := began
		bytesIn, bytesOut, tokens, all := map[netip.AddrPort]int{}, map[netip.AddrPort]int{}, map[netip.AddrPort]int{}, 0
		for range 100_000 {
			now = now.Add(time.Duration(random.IntN(int(time.Millisecond))))
			at := address(random.IntN(addresses))
			if random.IntN(100) < test.incoming {
				b := make([]byte, random.IntN(MaxDatagram))
				if random.IntN(10) == 0 { // somebody else's token
					b = returned(append(appendHeader(nil, byteProbe, someLabel, 0), p.token(address(-1))...))
				} else if random.IntN(10) == 0 {
					b = append(appendHeader(nil, byteProbe, someLabel, 0), make([]byte, tokenSize)...)
				}
				out, _ := p.incoming(b, at, someLabel)
				bytesIn[at] += len(b)
				bytesOut[at] += len(out)
				continue
			}
			b := append([]byte{bytePlain}, make([]byte, random.IntN(MaxDatagram))...)
			out := p.outgoing(at, b, someLabel, now)
			if len(out) > 0 && out[0] == byteProbe {
				all++
				tokens[at]++
				if len(out) > len(b) && len(out) != probeSize {
					t.Fatalf("a token of %d bytes", len(out))
				}
			} else {
				bytesOut[at] += len(out)
			}
			seconds := int(now.Sub(began)/time.Second) + 1
			if bytesOut[at] > 3*bytesIn[at] || tokens[at] > seconds || all > 50*(seconds+1) {
				t.Fatalf("after %d s %d bytes went to one that sent %d; and %d tokens, %d to all", seconds, bytesOut[at], bytesIn[at], tokens[at], all)
			}
		}
		if least := min(addresses, freeRate) * int(now.Sub(began)/time.Second) * 9 / 10; test.incoming == 0 && all < least {
			t.Errorf("%d tokens, want %d", all, least)
		}
	}
}

// An address is proven by the token that was sent to it, once and for all; by nothing else.
func TestProven(t *testing.T) {
	b, now := make([]byte, MaxDatagram), time.Now()
	p, other := newPaths(), newPaths()
	probe := p.outgoing(address(1), b, someLabel, now)
	if len(probe) != probeSize || probe[0] != byteProbe {
		t.Fatalf("a token of %d bytes", len(probe))
	}
	changed := returned(probe)
	changed[len(changed)-1] ^= 1
	for what, forged := range map[string][]byte{
		"a forged token":                append(appendHeader(nil, byteAnswer, someLabel, 0), make([]byte, tokenSize)...),
		"one of another address":        append(appendHeader(nil, byteAnswer, someLabel, 0), p.token(address(2))...),
		"one of another port":           append(appendHeader(nil, byteAnswer, someLabel, 0), p.token(netip.AddrPortFrom(address(1).Addr(), 1))...),
		"one of another agent":          append(appendHeader(nil, byteAnswer, someLabel, 0), other.token(address(1))...),
		"one bit is another":            changed,
		"half of it":                    returned(probe)[:probeSize-1],
		"one of another cluster":        append(appendHeader(nil, byteAnswer, hashLabel("other"), 0), p.token(address(1))...),
		"not returned, but sent":        probe,
		"from somebody else, unchanged": nil,
	} {
		from := address(1)
		if forged == nil {
			forged, from = returned(probe), address(2)
		}
		if out, _ := p.incoming(forged, from, someLabel); len(out) > len(forged) {
			t.Errorf("%s: %d bytes are sent", what, len(out))
		}
		for _, at := range []netip.AddrPort{address(1), address(2)} {
			if p.proven.Get(at, nil) != nil {
				t.Fatalf("%s proves %s", what, at)
			}
		}
	}
	if out, done := p.incoming(returned(probe), address(1), someLabel); !done || !bytes.Equal(out, b) {
		t.Errorf("%d bytes have waited", len(out))
	}
	if out, done := p.incoming(returned(probe), address(1), someLabel); !done || out != nil {
		t.Errorf("%d bytes wait again", len(out))
	}
	for range 1000 {
		if out := p.outgoing(address(1), b, someLabel, now); !bytes.Equal(out, b) {
			t.Fatal("it is not proven")
		}
	}
}

// 5,000 members that join at once are all proven within 2 minutes, though every answer in ten is lost.
func TestManyAreProven(t *testing.T) {
	const members = 5000
	p, now := newPaths(), time.Now()
	began := now
	for left := members; left > 0; now = now.Add(200 * time.Millisecond) {
		left = 0
		for i := range members {
			out := p.outgoing(address(i), make([]byte, 200), someLabel, now)
			if len(out) == 200 {
				continue
			}
			left++
			if out != nil && rand.IntN(10) > 0 {
				p.incoming(returned(out), address(i), someLabel)
			}
		}
	}
	if took := now.Sub(began); took > 2*time.Minute || took < members/freeRate*time.Second/2 {
		t.Errorf("it takes %v", took)
	}
}

// Who sends from many addresses makes an agent forget neither those that are proven, nor use memory
// without end.
func TestPathsAreBounded(t *testing.T) {
	p, now := newPaths(), time.Now()
	p.prove(address(-1))
	for i := range 10 * maxUnproven {
		p.incoming(make([]byte, MaxDatagram), address(i), someLabel)
		p.outgoing(address(i+1), make([]byte, MaxDatagram), someLabel, now)
	}
	if out := p.outgoing(address(-1), make([]byte, MaxDatagram), someLabel, now); len(out) != MaxDatagram {
		t.Error("it is not proven any more")
	}
	if kept := p.unproven.Len(); kept > 2*maxUnproven {
		t.Errorf("%d addresses are kept", kept)
	}
	for range 1000 {
		p.incoming(make([]byte, MaxDatagram), address(0), someLabel)
	}
	if to := p.unproven.Get(address(0), nil); to == nil || to.budget != maxBudget {
		t.Errorf("the budget is %+v", to)
	}
}

// Real agents: the first datagram to an address waits for the token, or a stream proves it.
func TestPaths(t *testing.T) {
	first, second, third := open(t, 1), open(t, 2), open(t, 3)
	if err := first.Send(2, second.at, []byte("one")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it has waited for the token", func() bool { return second.got(message{1, false, "one"}) })
	if err := first.echo(third); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		for _, to := range []*node{second, third} {
			m := message{1, false, fmt.Sprint("datagram ", i)}
			if err := first.Send(to.ID, to.at, []byte(m.payload)); err != nil {
				t.Fatal(err)
			}
			eventually(t, "it is received", func() bool { return to.got(m) })
		}
	}
	if first.dropped() != "" {
		t.Error(first.dropped())
	}
	// Nobody is there, or it is no agent: one token a second.
	conn := outsider(t)
	began := time.Now()
	for range 100 {
		if err := first.Send(4, addressOf(conn), []byte("datagram")); err != nil {
			t.Fatal(err)
		}
	}
	most := int(time.Since(began)/time.Second) + 1
	if dropped := int(first.Dropped()["unproven"]); dropped < 100-most {
		t.Errorf("%d of 100 are not sent", dropped)
	}
	b := make([]byte, MaxDatagram)
	if size, err := conn.Read(b); err != nil || size != probeSize {
		t.Errorf("%d bytes arrive, %v", size, err)
	}
}

// One address that sends too much is not heard; others are.
func TestSources(t *testing.T) {
	n, flood, other := open(t, 9), outsider(t), open(t, 1)
	eventually(t, "it is too much", func() bool {
		for range 1000 {
			sendTo(t, flood, n, []byte("garbage"))
		}
		return n.Dropped()["source"] > 0
	})
	far, err := net.DialUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 7)}, net.UDPAddrFromAddrPort(n.at))
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	eventually(t, "others are received", func() bool {
		far.Write(other.record(9, "payload")) //nolint:errcheck // again
		return n.got(message{1, false, "payload"})
	})
}

func TestSourcesAreBounded(t *testing.T) {
	s, now := newSources(), time.Now()
	one := address(1).Addr()
	taken := 0
	for range 3 * sourceBurst {
		if s.allow(one, now) {
			taken++
		}
	}
	for i := range 3 * allBurst {
		if s.allow(address(i).Addr(), now) {
			taken++
		}
	}
	if taken != allBurst {
		t.Errorf("%d are taken at once, want %d", taken, allBurst)
	}
	if kept := s.of.Len(); kept > 2*maxSources {
		t.Errorf("%d addresses are kept", kept)
	}
	if now = now.Add(time.Second); !s.allow(one, now) {
		t.Error("nothing is taken later")
	}
}
