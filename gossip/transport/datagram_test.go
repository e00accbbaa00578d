package transport

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/recent"
	"github.com/dupip/dupip/gossip/wire"
)

// record returns a datagram as a node would send it.
func (n *node) record(to wire.MemberID, payload string) []byte {
	return n.datagram(to, kindOwn, []byte(payload))
}

func TestSealAndOpen(t *testing.T) {
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(t, 1)} {
		t.Run(name, func(t *testing.T) {
			first, second := open(t, 1, key), open(t, 2, key)
			if err := first.echo(second); err != nil {
				t.Fatal(err)
			}
			for _, size := range []int{0, 1, 100, MaxPayload} {
				payload := strings.Repeat("p", size)
				if err := first.Send(2, second.at, []byte(payload)); err != nil {
					t.Fatal(err)
				}
				news := newsOf(max(size, 7))
				if _, err := first.WriteToAddress([]byte(news), memberlist.Address{Addr: second.at.String(), Name: "n2"}); err != nil {
					t.Fatal(err)
				}
				eventually(t, fmt.Sprint("both of ", size), func() bool {
					return second.got(message{1, false, payload}) && second.got(message{0, true, news})
				})
				b := first.record(2, payload)
				if seen := bytes.Contains(b, []byte(payload)); size >= 100 && seen != (name == "plain") {
					t.Errorf("%d bytes can be read on their way: %t", size, seen)
				}
				if len(b) > MaxDatagram {
					t.Errorf("a datagram of %d bytes", len(b))
				}
			}
			if err := first.Send(2, second.at, make([]byte, MaxPayload+1)); err == nil || first.dropped() != "oversize 1" {
				t.Errorf("too much is sent: %v, %s", err, first.dropped())
			}
			if second.dropped() != "" {
				t.Error(second.dropped())
			}
		})
	}
}

// Every reason: what comes is refused for one, counted once, and received by nobody.
func TestRefusals(t *testing.T) {
	plain := func(*Options) {}
	one, other, both := keys(t, 1), keys(t, 2), keys(t, 2, 1)
	from := func(change ...func(*Options)) *node { return open(t, 1, change...) }
	sealedShort := from(one)
	datagrams := map[string]struct {
		to   func(*Options)
		b    []byte
		want string
	}{
		"nothing":                      {one, nil, "malformed 1"},
		"a header that ends":           {one, from(one).record(9, "p")[:headerSize-1], "malformed 1"},
		"another first byte":           {one, append([]byte{'x'}, from(one).record(9, "p")[1:]...), "malformed 1"},
		"a header only":                {plain, from().record(9, "p")[:headerSize], "malformed 1"},
		"sealed nothing":               {one, sealedShort.keys.list()[0].aead.Seal(append(sealedShort.record(9, "")[:headerSize], make([]byte, 24)...), make([]byte, 24), nil, sealedShort.record(9, "")[:headerSize]), "malformed 1"},
		"an unknown kind":              {one, from(one).datagram(9, kindAnswer+1, []byte("p")), "malformed 1"},
		"an unknown kind, plain":       {plain, from().datagram(9, 0, []byte("p")), "malformed 1"},
		"too large":                    {one, from(one).datagram(9, kindOwn, make([]byte, MaxPayload+1)), "oversize 1"},
		"nothing of memberlist":        {one, from(one).datagram(9, kindMemberlist, []byte("p")), "memberlist 1"},
		"much too large":               {plain, append(from().record(9, "p"), make([]byte, 10000)...), "oversize 1"},
		"another label":                {one, from(one, label("other")).record(9, "p"), "label 1"},
		"another label, plain":         {plain, from(label("other")).record(9, "p"), "label 1"},
		"an empty label":               {one, from(one, label("")).record(9, "p"), "label 1"},
		"another incarnation":          {one, from(one).record(8, "p"), "receiver 1"},
		"another incarnation, plain":   {plain, from().record(8, "p"), "receiver 1"},
		"nobody":                       {one, from(one).record(0, "p"), "receiver 1"},
		"another key":                  {one, from(other).record(9, "p"), "key 1"},
		"a key that is not here":       {one, from(both).record(9, "p"), "key 1"},
		"plain, and a key here":        {one, from().record(9, "p"), "key 1"},
		"sealed, and no key here":      {plain, from(one).record(9, "p"), "key 1"},
		"sealed, with no nonce":        {one, from(one).record(9, "p")[:headerSize+10], "key 1"},
		"sealed, its end is missing":   {one, from(one).record(9, "p")[:50], "key 1"},
		"sealed, with a byte too much": {one, append(from(one).record(9, "p"), 0), "key 1"},
	}
	for name, test := range datagrams {
		t.Run(name, func(t *testing.T) {
			n, conn := open(t, 9, test.to), outsider(t)
			sendTo(t, conn, n, test.b)
			eventually(t, test.want, func() bool { return n.dropped() != "" })
			if n.dropped() != test.want || n.count() > 0 {
				t.Errorf("%s, want %s; received %v", n.dropped(), test.want, n.received)
			}
		})
	}
	covered := map[string]bool{ // by other tests: TestReplay, TestJudge, TestUnsent, TestUnproved, TestManyChallenges and TestShortList
		"replay": true, "stream": true, "unsent": true, "unproved": true, "challenge": true, "short_list": true,
	}
	for _, test := range datagrams {
		covered[strings.TrimSuffix(test.want, " 1")] = true
	}
	for _, why := range dropNames[1:] {
		if !covered[why] {
			t.Errorf("nothing is refused as %q", why)
		}
	}
}

// What is sent nowhere is counted.
func TestUnsent(t *testing.T) {
	n := open(t, 1, func(o *Options) { o.AllowLocal = false })
	want := 0
	for _, to := range []string{
		"127.0.0.1:1", "[::1]:1", "[::ffff:127.0.0.1]:1", "169.254.1.1:1", "[fe80::1]:1", "[fe80::1%lo]:1", "[fd00::1%lo]:1", // local
		"0.0.0.0:1", "[::]:1", "[::ffff:0.0.0.0]:1", "224.0.0.1:1", "[ff02::1]:1", "255.255.255.255:1", "[::ffff:255.255.255.255]:1", "10.0.0.1:0",
	} {
		at := netip.MustParseAddrPort(to)
		want++
		if err := n.Send(2, at, nil); err == nil || n.dropped() != fmt.Sprint("unsent ", want) {
			t.Errorf("sent to %s: %v, %s", to, err, n.dropped())
		}
		if _, err := n.DialTimeout(to, time.Second); err == nil || timedOut(err) {
			t.Errorf("dialled %s: %v", to, err)
		}
	}
	for _, to := range []memberlist.Address{{Addr: "localhost:1", Name: "n2"}, {Addr: "10.0.0.1", Name: "n2"}, {Addr: "10.0.0.1:1", Name: "two"}, {}} {
		if _, err := n.WriteToAddress(nil, to); err == nil {
			t.Errorf("sent to %+v", to)
		}
	}
	if _, err := n.WriteTo(nil, "10.0.0.1:1"); err == nil {
		t.Error("sent to nobody")
	}
}

// Somebody who has recorded a datagram changes its first byte, which version 1 did not protect: to make
// an agent open it in another way, or not open it at all.
func TestOldCipher(t *testing.T) {
	first, second, conn := open(t, 1, keys(t, 1)), open(t, 2, keys(t, 1)), outsider(t)
	if err := first.Send(2, addressOf(conn), []byte("recorded")); err != nil {
		t.Fatal(err)
	}
	recorded := make([]byte, MaxDatagram)
	size, err := conn.Read(recorded)
	if err != nil {
		t.Fatal(err)
	}
	recorded = recorded[:size]
	if recorded[0] != byteSealed {
		t.Fatalf("a datagram begins with %d", recorded[0])
	}
	want := make(map[string]int)
	for first := range 256 {
		switch first {
		case byteSealed:
			continue
		case bytePlain:
			want["key"]++
		default:
			want["malformed"]++
		}
		b := bytes.Clone(recorded)
		b[0] = byte(first)
		sendTo(t, conn, second, b)
		sum := 0
		eventually(t, "it is counted", func() bool {
			sum = 0
			for _, count := range second.Dropped() {
				sum += int(count)
			}
			return sum > 0 && sum == want["key"]+want["version"]+want["malformed"]
		})
	}
	for why, count := range want {
		if got := second.Dropped()[why]; got != uint64(count) {
			t.Errorf("%d refused as %s, want %d", got, why, count)
		}
	}
	for i := range recorded[1:] { // and every other byte
		b := bytes.Clone(recorded)
		b[1+i] ^= 1
		if _, why := second.open2(b); why != dropLabel && why != dropReceiver && why != dropKey {
			t.Errorf("with another byte %d it is refused as %q", 1+i, dropNames[why])
		}
	}
	if second.count() > 0 {
		t.Errorf("received %v", second.received)
	}
	sendTo(t, conn, second, recorded)
	eventually(t, "as it was sent it is received", func() bool { return second.got(message{1, false, "recorded"}) })
}

// What memberlist gets it may keep.
func TestPacketsAreCopied(t *testing.T) {
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(t, 1)} {
		opts := Options{ID: 9, Label: "test", Sockets: listenAt(t, "127.0.0.1"), Handler: (*handler)(&node{})}
		key(&opts)
		n, err := New(opts)
		if err != nil {
			t.Fatal(err)
		}
		from, conn := open(t, 1, key), outsider(t)
		to := &node{at: opts.Sockets.(*Listener).UDPConn.LocalAddr().(*net.UDPAddr).AddrPort()}
		var packets []*memberlist.Packet
		for _, payload := range []string{newsOf(10), "\x00\x80"} {
			sendTo(t, conn, to, from.datagram(9, kindMemberlist, []byte(payload)))
			packets = append(packets, <-n.PacketCh())
		}
		if got := string(packets[0].Buf); got != newsOf(10) || packets[0].From.String() != addressOf(conn).String() {
			t.Errorf("%s: %q from %s", name, got, packets[0].From)
		}
		n.Shutdown()
	}
}

// open2 opens a datagram with the keys of a node that receives meanwhile.
func (n *node) open2(b []byte) (content, drop) {
	return (&Transport{Options: n.Options, label: n.label, first: n.first, keys: n.keys}).open(b)
}

func newWindows() recent.Map[wire.MemberID, window] {
	return recent.Map[wire.MemberID, window]{Half: maxWindows}
}

// Each step sends the datagram with that number; the numbers of a sender begin with 0 here.
func TestReplay(t *testing.T) {
	const last = windowSize + 100
	type step struct {
		number   int
		accepted bool
	}
	for name, steps := range map[string][]step{
		"in order":            {{0, true}, {1, true}, {2, true}},
		"repeated":            {{0, true}, {0, false}, {1, true}, {1, false}, {0, false}},
		"reordered":           {{5, true}, {0, true}, {3, true}, {4, true}, {3, false}, {6, true}, {5, false}},
		"late, just in time":  {{windowSize - 1, true}, {0, true}, {0, false}},
		"late, too late":      {{windowSize, true}, {0, false}, {1, true}},
		"after a jump":        {{0, true}, {last, true}, {0, false}, {last - 1, true}, {last, false}},
		"the first is missed": {{1, true}, {0, true}},
	} {
		t.Run(name, func(t *testing.T) {
			from, to, conn := open(t, 1, keys(t, 1)), open(t, 2, keys(t, 1)), outsider(t)
			var sent [last + 1][]byte
			for i := range sent {
				sent[i] = from.record(2, fmt.Sprint(i))
			}
			for i, step := range steps {
				count, replays := to.count(), to.Dropped()["replay"]
				sendTo(t, conn, to, sent[step.number])
				eventually(t, "it is received or refused", func() bool { return to.count() > count || to.Dropped()["replay"] > replays })
				if accepted := to.count() > count; accepted != step.accepted {
					t.Errorf("step %d: number %d is accepted: %t", i, step.number, accepted)
				}
			}
		})
	}
}

// After a restart of the receiver nothing that was sent before is accepted; a restarted sender has a new
// window; senders do not share one.
func TestReplayToAnotherIncarnation(t *testing.T) {
	key, conn := keys(t, 1), outsider(t)
	from, old, restarted := open(t, 1, key), open(t, 2, key), open(t, 3, key)
	sent := from.record(old.ID, "sent")
	sendTo(t, conn, old, sent)
	eventually(t, "it is received", func() bool { return old.got(message{1, false, "sent"}) })
	sendTo(t, conn, restarted, sent)
	eventually(t, "it is refused", func() bool { return restarted.dropped() == "receiver 1" })
	again := open(t, 4, key)
	for i, b := range [][]byte{again.record(old.ID, "sent"), open(t, 5, key).record(old.ID, "sent")} {
		sendTo(t, conn, old, b)
		eventually(t, "another sender's is received", func() bool { return old.got(message{wire.MemberID(4 + i), false, "sent"}) })
	}
	if old.dropped() != "" {
		t.Error(old.dropped())
	}
}

// The window agrees with a list of all numbers so far; also where numbers end, which only somebody with
// the key can send.
func TestWindow(t *testing.T) {
	ends := window{top: 1<<64 - 1 - windowSize}
	if !ends.accept(1<<64-1) || ends.accept(1<<64-1) || !ends.accept(1<<64-windowSize) || ends.accept(1<<64-1-windowSize) {
		t.Error("where numbers end it is wrong")
	}
	for _, start := range []uint64{0, 1, windowSize, 1 << 40, 1<<64 - windowSize - 1, 1<<64 - windowSize, 1<<64 - 2*windowSize} {
		random := rand.New(rand.NewPCG(start, 1))
		var w window
		seen, top := map[uint64]bool{}, uint64(0)
		for range 20000 {
			seq := start + random.Uint64N(windowSize*uint64(1+random.IntN(3)))
			if start > 1<<63 && seq < start { // it ends there
				seq = 1<<64 - 1
			}
			want := !seen[seq] && (seq > top || top-seq < windowSize)
			if got := w.accept(seq); got != want {
				t.Fatalf("from %d: %d is accepted: %t, highest %d", start, seq, got, top)
			}
			seen[seq], top = true, max(top, seq)
			if random.IntN(50) == 0 && start < 1<<63 {
				start += random.Uint64N(100)
			}
		}
	}
}

// With a key nothing is sent in reply to what cannot be opened: what comes back first is the answer to
// the one datagram that can.
func TestNoReply(t *testing.T) {
	conn := outsider(t)
	n, other := open(t, 9, keys(t, 1)), open(t, 1, keys(t, 2))
	member := open(t, 2, keys(t, 1))
	recorded := member.record(9, "recorded")
	all := [][]byte{
		{},
		[]byte("garbage"),
		other.record(9, "p"), member.record(8, "p"),
		open(t, 3).record(9, "p"), open(t, 4, label("other"), keys(t, 1)).record(9, "p"), recorded, recorded,
		make([]byte, MaxDatagram), make([]byte, 2*MaxDatagram),
	}
	for _, b := range all {
		sendTo(t, conn, n, b)
	}
	eventually(t, "all are refused", func() bool {
		refused := 1 // recorded
		for _, count := range n.Dropped() {
			refused += int(count)
		}
		return refused == len(all)
	})
	if err := n.Send(2, addressOf(conn), []byte("answer")); err != nil {
		t.Fatal(err)
	}
	conn.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // then it fails
	b := make([]byte, MaxDatagram)
	size, err := conn.Read(b)
	if d, why := member.open2(b[:size]); err != nil || string(d.payload) != "answer" {
		t.Errorf("%d bytes come back, %v; they are refused as %q", size, err, dropNames[why])
	}
}

// Whatever comes, opening it does not fail, and what nobody with the key has sealed is refused.
func FuzzOpen(f *testing.F) {
	sealed, plain := open(f, 9, keys(f, 1, 2)), open(f, 9)
	for _, n := range []*node{open(f, 1), open(f, 1, keys(f, 2))} {
		b := n.record(9, "payload")
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(b[:headerSize])
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if d, why := sealed.open2(b); why == 0 && (d.from != 1 || d.kind != kindOwn || string(d.payload) != "payload") {
			t.Errorf("%x is %+v", b, d)
		}
		d, why := plain.open2(b)
		if why == 0 {
			want := append(appendHeader(nil, bytePlain, plain.label, 9), b[headerSize:headerSize+innerSize]...)
			if !bytes.Equal(append(want, d.payload...), b) || d.kind < kindMemberlist || d.kind > kindAnswer {
				t.Errorf("%x is %+v", b, d)
			}
		}
	})
}
