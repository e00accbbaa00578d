package members

import (
	"bytes"
	"compress/lzw"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
)

// squeezed is a message in the compressed form, which no agent sends.
func squeezed(t *testing.T, message []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := lzw.NewWriter(&b, lzw.LSB, 8)
	if _, err := w.Write(message); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return pack(t, compressedMessage, struct {
		Algo uint8
		Buf  []byte
	}{0, b.Bytes()})
}

// together puts messages into one, as memberlist does.
func together(parts ...[]byte) []byte {
	b := []byte{compoundMessage, byte(len(parts))}
	for _, part := range parts {
		b = binary.BigEndian.AppendUint16(b, uint16(len(part)))
	}
	return append(b, bytes.Join(parts, nil)...)
}

// allocated is what was taken from the heap while f ran, in MiB.
func allocated(f func()) uint64 {
	var held runtime.MemStats
	runtime.ReadMemStats(&held)
	before := held.TotalAlloc
	f()
	runtime.ReadMemStats(&held)
	return (held.TotalAlloc - before) >> 20
}

// A datagram must not become more than it is: what is compressed may unpack to megabytes,
// and again.
func TestCompressedDatagrams(t *testing.T) {
	key := keyText(1, 32)
	for name, test := range map[string]struct {
		option func(*Options)
		send   func(message []byte) []byte
	}{
		"without keys": {func(*Options) {}, labelled},
		"sealed": {
			func(o *Options) { o.KeyFile = keyFile(t, key) },
			func(message []byte) []byte { return sealedDatagram(t, key, message, cipherVersion) },
		},
	} {
		t.Run(name, func(t *testing.T) {
			n := open(t, 1, test.option)
			conn, err := net.Dial("udp", n.Self().Address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			large := squeezed(t, append([]byte{userMessage}, make([]byte, 300<<10)...))
			checked := binary.BigEndian.AppendUint32([]byte{checksumMessage}, 0)
			bad := [][]byte{
				large,
				squeezed(t, large),
				together(squeezed(t, []byte{userMessage})),
				together([]byte{userMessage}, together([]byte{userMessage})),
				together([]byte{userMessage}, large),
				append(checked, large...),
			}
			const rounds = 50
			taken := allocated(func() {
				before := n.drops[dropMalformed].Load()
				for range rounds {
					want := n.drops[dropMalformed].Load() + uint64(len(bad))
					for _, b := range bad {
						conn.Write(test.send(b))
					}
					eventually(t, "they are counted", func() bool { return n.drops[dropMalformed].Load() >= want })
				}
				if got, want := n.drops[dropMalformed].Load()-before, uint64(rounds*len(bad)); got != want {
					t.Errorf("%d counted, want %d", got, want)
				}
			})
			if taken > 20 {
				t.Errorf("%d packets of up to %d bytes cost %d MiB", rounds*len(bad), len(large), taken)
			}
			// What memberlist makes of several is still heard.
			conn.Write(test.send(together(append([]byte{userMessage}, "one"...), append([]byte{userMessage}, "two"...))))
			eventually(t, "both parts", func() bool { return n.got("one") && n.got("two") })
		})
	}
}

// Who has the key cannot make a stream more than it is, either.
func TestSealedStreams(t *testing.T) {
	key := keyText(1, 32)
	n := open(t, 1, func(o *Options) { o.KeyFile = keyFile(t, key) })
	for name, plain := range map[string][]byte{
		"a compressed list": squeezed(t, append(pack(t, pushPullMessage, stateHeader{Nodes: 1}), make([]byte, 30<<20)...)),
		"many nodes":        pack(t, pushPullMessage, stateHeader{Nodes: 1 << 20}),
		"state":             pack(t, pushPullMessage, stateHeader{UserStateLen: 20 << 20}),
		"a user message":    pack(t, userMessage, struct{ UserMsgLen int }{20 << 20}),
		"sealed twice":      sealedStream(t, key, []byte{pingMessage}, cipherVersion),
		"no gossip":         []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		before := n.drops[dropStream].Load()
		taken := allocated(func() {
			conn, err := net.Dial("tcp", n.Self().Address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			conn.Write(labelled(sealedStream(t, key, plain, cipherVersion)))
			conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if answer, err := conn.Read(make([]byte, 1)); answer > 0 || errIsTimeout(err) {
				t.Errorf("%s: answered %d bytes, %v", name, answer, err)
			}
		})
		if taken > 4 {
			t.Errorf("%s: %d bytes cost %d MiB", name, len(plain), taken)
		}
		if n.drops[dropStream].Load() != before+1 {
			t.Errorf("%s: not counted", name)
		}
	}
}

// Who has no key may open streams, and say that they are long. What is held for all of
// them is bounded, and members join meanwhile.
func TestLongStreams(t *testing.T) {
	key := keyText(1, 32)
	secret := func(o *Options) { o.KeyFile = keyFile(t, key) }
	n := open(t, 1, secret)
	to := net.TCPAddrFromAddrPort(mustAddrPort(n))
	began := binary.BigEndian.AppendUint32([]byte{encryptedMessage}, maxState)
	message := append(labelled(append(began, cipherVersion)), make([]byte, maxState-10)...)

	runtime.GC()
	var held runtime.MemStats
	runtime.ReadMemStats(&held)
	before := held.HeapAlloc
	dropped := n.drops[dropStream].Load()
	var senders sync.WaitGroup
	var conns []net.Conn
	for i := range 24 {
		conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(100+i%4))}, to)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
		senders.Go(func() { conn.Write(message) }) // it is cut off, or says no more
	}
	senders.Wait()
	runtime.GC()
	runtime.ReadMemStats(&held)
	if grown := int(held.HeapAlloc-before) >> 20; grown > 50 {
		t.Errorf("%d MiB are held for %d streams", grown, len(conns))
	}
	if got := n.drops[dropStream].Load() - dropped; got < 20 {
		t.Errorf("%d of %d were cut off", got, len(conns))
	}

	second := open(t, 2, secret, joining(n))
	eventually(t, "another joins", func() bool { return second.states() == "n1:alive n2:alive" })
	for _, conn := range conns {
		conn.Close()
	}
	inner := n.transport.NodeAwareTransport.(*network)
	eventually(t, "nothing is held any more", func() bool { return inner.incoming.held() == 0 && inner.streaming.held() == 0 })
	if got := n.Status().Members[cluster.Alive]; got != 2 {
		t.Error(got, " members")
	}
}

func TestQuota(t *testing.T) {
	q := newQuota(10, 6)
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	for i, step := range []struct {
		from netip.Addr
		size int
		want bool
	}{
		{a, 6, true},
		{a, 1, false}, // of its own
		{b, 5, false}, // of all
		{b, 4, true},
		{b, 1, false},
		{a, -6, true},
		{b, 2, true},
		{a, 5, false},
		{a, 4, true},
	} {
		got := true
		if step.size < 0 {
			q.give(step.from, -step.size)
		} else {
			got = q.take(step.from, step.size)
		}
		if got != step.want {
			t.Errorf("step %d: %v", i, fmt.Sprint(got))
		}
	}
	q.give(a, 4)
	q.give(b, 6)
	if q.held() != 0 || len(q.from) != 0 {
		t.Errorf("%d are held, by %v", q.held(), q.from)
	}
}

// Whatever a datagram is, what is let through has nothing compressed in it that memberlist
// would find.
func FuzzDatagram(f *testing.F) {
	f.Add(together([]byte{userMessage, 1}, []byte{pingMessage}))
	f.Add(append([]byte{checksumMessage, 0, 0, 0, 0}, together([]byte{compressedMessage, 1})...))
	f.Add([]byte{compoundMessage, 255, 0})
	f.Add(labelled([]byte{compressedMessage}))
	f.Fuzz(func(t *testing.T, b []byte) {
		passed := vetDatagram(bytes.Clone(b), nil)
		if len(b) > 1 && b[0] == labelMessage {
			b = b[min(len(b), 2+int(b[1])):]
		}
		if len(b) >= 5 && b[0] == checksumMessage {
			b = b[5:]
		}
		if passed && unpacks(b) {
			t.Errorf("%x is let through", b)
		}
	})
}

// unpacks follows memberlist's handleCommand and decodeCompoundMessage.
func unpacks(b []byte) bool {
	if len(b) == 0 || b[0] != compoundMessage {
		return len(b) > 0 && b[0] == compressedMessage
	}
	if len(b) < 2 || len(b[2:]) < 2*int(b[1]) {
		return false
	}
	sizes, rest := b[2:2+2*int(b[1])], b[2+2*int(b[1]):]
	for ; len(sizes) > 0; sizes = sizes[2:] {
		size := int(binary.BigEndian.Uint16(sizes))
		if len(rest) < size {
			return false
		}
		if unpacks(rest[:size]) {
			return true
		}
		rest = rest[size:]
	}
	return false
}

func BenchmarkVetSealed(b *testing.B) {
	key := bytes.Repeat([]byte{1}, 32)
	ring, err := memberlist.NewKeyring(nil, key)
	if err != nil {
		b.Fatal(err)
	}
	gcm, err := newGCM(key)
	if err != nil {
		b.Fatal(err)
	}
	plain := append([]byte{userMessage}, make([]byte, 1200)...)
	nonce := make([]byte, nonceSize)
	message := gcm.Seal(append([]byte{cipherVersion}, nonce...), nonce, plain, []byte("test"))
	opens := &seals{ring: ring, label: "test"}
	b.ReportAllocs()
	for b.Loop() {
		if !vetDatagram(message, opens) {
			b.Fatal("it is refused")
		}
	}
}
