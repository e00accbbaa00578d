package members

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/dupip/dupip/detector/cluster"
)

// pack makes a message of memberlist's.
func pack(t testing.TB, kind byte, message any) []byte {
	b := bytes.NewBuffer([]byte{kind})
	if err := codec.NewEncoder(b, new(codec.MsgpackHandle)).Encode(message); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// labelled puts the label of the tests' cluster before a message.
func labelled(message []byte) []byte {
	return append([]byte{labelMessage, 4, 't', 'e', 's', 't'}, message...)
}

type aliveMessage struct {
	Incarnation uint32
	Node        string
	Addr        []byte
	Port        uint16
	Meta        []byte
	Vsn         []uint8
}

func TestHostileStreams(t *testing.T) {
	n := open(t, 1)
	huge := binary.BigEndian.AppendUint32([]byte{encryptedMessage}, 20<<20)
	for name, b := range map[string][]byte{
		"many nodes":           labelled(pack(t, pushPullMessage, stateHeader{Nodes: 1 << 20})),
		"fewer than none":      labelled(pack(t, pushPullMessage, stateHeader{Nodes: -1})),
		"state":                labelled(pack(t, pushPullMessage, stateHeader{UserStateLen: 20 << 20})),
		"many, in other words": labelled(append([]byte{pushPullMessage}, "\x81\xa5Nodes\xce\x00\x0f\xff\xff"...)),
		"an endless header":    labelled(append([]byte{pushPullMessage}, "\x81\xda\xff\xff"+strings.Repeat("x", 4096)...)),
		"much that is sealed":  labelled(huge),
		"a user message":       labelled([]byte{8, 0}),
		"a compressed one":     labelled([]byte{9, 0}),
		"no gossip":            []byte("GET / HTTP/1.1\r\n\r\n"),
	} {
		before := n.drops[dropStream].Load()
		began := time.Now()
		var held runtime.MemStats
		runtime.ReadMemStats(&held)
		taken := held.TotalAlloc
		conn, err := net.Dial("tcp", n.Self().Address)
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(b)
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if answer, err := conn.Read(make([]byte, 1)); answer > 0 || errIsTimeout(err) {
			t.Errorf("%s: answered %d bytes, %v", name, answer, err)
		}
		conn.Close()
		runtime.ReadMemStats(&held)
		if taken := held.TotalAlloc - taken; taken > 4<<20 {
			t.Errorf("%s: cost %d MiB", name, taken>>20)
		}
		if n.drops[dropStream].Load() != before+1 {
			t.Errorf("%s: not counted (%v)", name, time.Since(began))
		}
	}
	if log := n.log.String(); strings.Contains(log, "panic") || n.Status().Members[cluster.Alive] != 1 {
		t.Errorf("members %v, log\n%s", n.Status().Members, log)
	}
}

func errIsTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// Who opens connections and says nothing keeps nobody else out.
func TestManyStreams(t *testing.T) {
	n := open(t, 1)
	var conns []net.Conn
	for range 3 * maxStreamsFrom {
		conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 99)}, net.TCPAddrFromAddrPort(mustAddrPort(n)))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns = append(conns, conn)
	}
	eventually(t, "the many are cut off", func() bool { return n.drops[dropStream].Load() >= 2*maxStreamsFrom })
	second := open(t, 2, joining(n))
	eventually(t, "another joins", func() bool { return second.states() == "n1:alive n2:alive" })
	for _, conn := range conns {
		conn.Close()
	}
	inner := n.transport.NodeAwareTransport.(*network)
	eventually(t, "none is counted any more", func() bool {
		return inner.open.held() == 0
	})
}

func TestHostileDatagrams(t *testing.T) {
	n := open(t, 1)
	other := open(t, 2, joining(n))
	const all = "n1:alive n2:alive"
	eventually(t, "two", func() bool { return n.states() == all })
	conn, err := net.Dial("udp", n.Self().Address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()

	vsn := []uint8{1, 5, 2, 0, 0, 0}
	id := identity{Name: "fake", Boot: "b"}
	good := aliveMessage{1, memberName(id.Name, id.id()), []byte{127, 0, 0, 9}, 7951, id.encode(), vsn}
	change := func(f func(*aliveMessage)) []byte {
		m := good
		f(&m)
		return pack(t, 4, m)
	}
	refused := [][]byte{
		change(func(m *aliveMessage) { m.Meta = nil }),
		change(func(m *aliveMessage) { m.Meta = m.Meta[:20] }),
		change(func(m *aliveMessage) { m.Node = "fake" }),
		change(func(m *aliveMessage) { m.Node = other.list.LocalNode().Name }),
		change(func(m *aliveMessage) { m.Addr = nil }),
		change(func(m *aliveMessage) { m.Addr = []byte("members.example") }),
		change(func(m *aliveMessage) { m.Addr = []byte{0, 0, 0, 0} }),
		change(func(m *aliveMessage) { m.Addr = []byte{224, 0, 0, 1} }),
		change(func(m *aliveMessage) { m.Vsn = []uint8{3, 5, 3, 0, 0, 0} }),
		change(func(m *aliveMessage) { m.Vsn = []uint8{1, 5, 2, 1, 1, 1} }),
	}
	before := n.drops[dropMetadata].Load()
	for _, b := range refused {
		conn.Write(labelled(b))
	}
	eventually(t, "they are refused", func() bool { return n.drops[dropMetadata].Load() == before+uint64(len(refused)) })

	random := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		b := make([]byte, random.IntN(200))
		for j := range b {
			b[j] = byte(random.Uint32())
		}
		if len(b) > 0 && i%2 == 0 {
			b[0] = byte(i/2) % 16 // a type
		}
		conn.Write(labelled(b))
	}
	// A ping whose answer would go to a name.
	ping := labelled(pack(t, pingMessage, struct {
		SeqNo      uint32
		Node       string
		SourceAddr []byte
		SourcePort uint16
	}{1, "", []byte("members.example"), 53}))
	eventually(t, "it is counted", func() bool {
		// Again and again: what finds a full socket is lost.
		conn.Write(bytes.Repeat([]byte{'x'}, maxDatagram+100))
		conn.Write([]byte{labelMessage})
		conn.Write(append([]byte{labelMessage, 5}, "other"...))
		conn.Write(ping)
		dropped := n.Status().Dropped
		return dropped["malformed"] > 0 && dropped["label"] > 0 && dropped["oversize"] > 0
	})
	eventually(t, "all is said", func() bool {
		problems := strings.Join(n.Status().Problems, "\n")
		return strings.Contains(problems, "cannot be read") && strings.Contains(problems, "of another cluster, the last from 127.0.0.1:")
	})
	if count := strings.Count(n.log.String(), "level=WARN"); count > 6 {
		t.Errorf("%d warnings:\n%s", count, n.log)
	}
	if got := n.states(); got != all {
		t.Error(got)
	}
	if err := other.Send(n.Self().ID, []byte("still here")); err != nil {
		t.Error(err)
	}
	eventually(t, "packets arrive", func() bool { return n.got("still here") })
}

func FuzzVet(f *testing.F) {
	f.Add(pack(f, pushPullMessage, stateHeader{Nodes: 3}))
	f.Add(labelled([]byte{encryptedMessage, 0, 0, 1, 0, 1}))
	f.Add([]byte{labelMessage, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		near, far := net.Pipe()
		defer near.Close()
		go func() {
			far.Write(b)
			far.Close()
		}()
		conn, err := vet(&stream{Conn: near, release: func() {}, drops: new(drops), room: newRoom(0, 0)}, nil)
		if err != nil {
			return
		}
		var first [512]byte
		size := 0
		for size < len(b) && size < len(first) {
			n, err := conn.Read(first[size:])
			if size += n; err != nil {
				break
			}
		}
		if !bytes.Equal(first[:size], b[:size]) {
			t.Errorf("%q begins as %q", b, first[:size])
		}
	})
}

func TestNoise(t *testing.T) {
	out := &output{}
	var drops drops
	var trouble trouble
	n := newNoise(logTo(out), &drops, &trouble)
	for i := range 1000 {
		fmt.Fprintf(n, "[ERR] memberlist: Decrypt packet failed: no installed keys could decrypt the message from=10.0.0.%d:1\n", i%200)
		fmt.Fprintf(n, "[WARN] memberlist: something new %d\n", i)
		fmt.Fprintf(n, "[DEBUG] memberlist: Stream connection from=10.0.0.1:1\n")
		fmt.Fprintf(n, "[WARN] memberlist: Refuting a suspect message (from: x)\n")
	}
	fmt.Fprintf(n, "[ERR] memberlist: %s", strings.Repeat("x", 1<<20))
	if got := drops[dropKey].Load(); got != 1000 {
		t.Errorf("%d counted", got)
	}
	if lines := strings.Count(out.String(), "\n"); lines != 2 || len(out.String()) > 1000 {
		t.Errorf("%d lines:\n%s", lines, out)
	}
	now := time.Now()
	if got := n.problems(now); len(got) != 1 || !strings.Contains(got[0], "1000 messages that none of the keys decrypts, the last from 10.0.0.199:1:") {
		t.Errorf("problems: %q", got)
	}
	if got := n.problems(now.Add(recent + time.Second)); len(got) != 0 {
		t.Errorf("later: %q", got)
	}
}

// Whoever makes up a label does not make up whom it came from.
func TestNoiseNamesTheSender(t *testing.T) {
	for _, label := range []string{"from=10.6.6.6:1", "from=10.6.6.6:1 " + strings.Repeat("\x01", 200)} {
		var drops drops
		n := newNoise(logTo(&output{}), &drops, new(trouble))
		fmt.Fprintf(n, "[ERR] memberlist: discarding packet with unacceptable label %q: from=10.0.0.7:1\n", label)
		if got := n.problems(time.Now()); len(got) != 1 || !strings.Contains(got[0], "the last from 10.0.0.7:1:") {
			t.Errorf("problems: %q", got)
		}
	}
}

func TestTroubleIsBounded(t *testing.T) {
	var trouble trouble
	var members []Member
	now := time.Now()
	for i := range 3 * maxTrouble {
		m, _, node := someMember(i, "b", 1, "10.0.0.1:1")
		m.State = cluster.Alive
		members = append(members, m)
		for range unheardAfter {
			trouble.hear("memberlist: Failed UDP ping: "+node.Name+" (timeout reached)", now)
		}
	}
	trouble.hear("memberlist: Failed UDP ping: nobody (timeout reached)", now)
	if got := trouble.problems(members, "10.0.0.9:1", now); len(trouble.unheard) != maxTrouble || len(got) != maxNamed+1 ||
		!strings.HasPrefix(got[maxNamed], fmt.Sprintf("%d more", maxTrouble-maxNamed)) {
		t.Errorf("%d kept, %q", len(trouble.unheard), got)
	}
	later := now.Add(unheardFor + time.Second)
	_, _, node := someMember(math.MaxInt32, "b", 1, "10.0.0.1:1")
	trouble.hear("memberlist: Failed UDP ping: "+node.Name+" (timeout reached)", later)
	if len(trouble.unheard) != 1 {
		t.Errorf("%d kept later", len(trouble.unheard))
	}
}
