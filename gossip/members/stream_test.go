package members

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

// listOf is a list of so many members as memberlist sends it. They are at addresses of this
// machine where nobody listens.
func listOf(t *testing.T, count int) []byte {
	t.Helper()
	b := pack(t, pushPullMessage, stateHeader{Nodes: count})
	for i := range count {
		id := identity{
			Name: fmt.Sprintf("node-%d.cluster.example", i), Boot: "8d0f3d1e-3c4c-4c55-a3a5-0f3a5b0f9c11", Epoch: int64(i), Version: "v1.2.3",
		}
		b = append(b, pack(t, 0, struct {
			Name        string
			Addr        []byte
			Port        uint16
			Meta        []byte
			Incarnation uint32
			State       memberlist.NodeStateType
			Vsn         []uint8
		}{memberName(id.Name, id.id()), []byte{127, 1, byte(i >> 8), byte(i)}, 7951, id.encode(), 1, memberlist.StateAlive, []byte{1, 5, 2, 0, 0, 0}})[1:]...)
	}
	return b
}

// longText begins a list of one member whose name has so many bytes.
func longText(t *testing.T, announced, size int) []byte {
	t.Helper()
	b := append(pack(t, pushPullMessage, stateHeader{Nodes: announced}), "\x87\xa4Name\xdb"...)
	return append(binary.BigEndian.AppendUint32(b, uint32(size)), make([]byte, size)...)
}

// longSeal begins a sealed message of the largest size, of which so many bytes follow.
func longSeal(size int) []byte {
	b := binary.BigEndian.AppendUint32([]byte{encryptedMessage}, maxState)
	return append(append(b, cipherVersion), make([]byte, size)...)
}

// dialFrom connects an address of this machine to a node.
func dialFrom(t *testing.T, from byte, to *node) net.Conn {
	t.Helper()
	conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, from)}, net.TCPAddrFromAddrPort(mustAddrPort(to)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

// drip goes on with a stream, a byte at a time, until it is closed.
func drip(conn net.Conn, every time.Duration) {
	for {
		if _, err := conn.Write([]byte{0}); err != nil {
			return
		}
		time.Sleep(every)
	}
}

// Two strangers take all the room that there is, and go on. A member's list of 5,000, ten
// times what always has room, is taken and answered all the same.
func TestStrangersMakeWay(t *testing.T) {
	key := keyText(1, 32)
	list := listOf(t, 5000)
	if size := len(list); size < 8*freeStreaming {
		t.Fatalf("a list of 5,000 has %d bytes only", size)
	}
	for name, test := range map[string]struct {
		option func(*Options)
		begin  func(size int) []byte
		list   []byte
	}{
		"sealed": {
			func(o *Options) { o.KeyFile = keyFile(t, key) }, longSeal, sealedStream(t, key, list, cipherVersion),
		},
		"without keys": {
			func(*Options) {}, func(size int) []byte { return longText(t, 1, size+1<<10)[:size] }, list,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // with the other one only: ending takes time
			n := open(t, 1, test.option)
			inner := n.transport.NodeAwareTransport.(*network)
			const spare = 20 << 10
			for i, size := range []int{maxState - spare, maxStreaming - maxState + freeStreaming} {
				conn := dialFrom(t, byte(100+i), n)
				if _, err := conn.Write(labelled(test.begin(size))); err != nil {
					t.Fatal(err)
				}
				go drip(conn, time.Second/2)
			}
			eventually(t, "there is no room", func() bool { return maxStreaming-inner.incoming.held() < 8*spare })

			conn := dialFrom(t, 50, n)
			conn.SetDeadline(time.Now().Add(20 * time.Second))
			if _, err := conn.Write(labelled(test.list)); err != nil {
				t.Errorf("the list is not taken: %v", err)
			}
			answer, err := io.ReadAll(conn)
			if len(answer) < 50 || err != nil {
				t.Errorf("answered %d bytes, %v", len(answer), err)
			}
			eventually(t, "all are members", func() bool { return n.table.live() == 5001 })
		})
	}
}

// Who says too much is counted, once, though it is memberlist that reads it; and it is not
// said that it cannot be read.
func TestRefusedStreamsAreCounted(t *testing.T) {
	n := open(t, 1)
	inner := n.transport.NodeAwareTransport.(*network)
	counted := func(what string) {
		t.Helper()
		eventually(t, what, func() bool { return inner.incoming.held()+inner.streaming.held() == 0 })
		if got := n.drops[dropStream].Swap(0); got != 1 || n.drops[dropMalformed].Load() != 0 {
			t.Errorf("%s: %d counted, %d as malformed", what, got, n.drops[dropMalformed].Load())
		}
	}
	hungUp := func(conn net.Conn) {
		t.Helper()
		conn.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := io.Copy(io.Discard, conn); errIsTimeout(err) {
			t.Error("it still listens")
		}
	}
	// What the header announces counts, too.
	tooMuch := longText(t, 2*maxMembers, maxStream-2*maxMembers*nodeSize+freeStreaming)
	conn := dialFrom(t, 100, n)
	conn.Write(labelled(tooMuch))
	hungUp(conn)
	counted("a plain list")

	conn = dialFrom(t, 100, n)
	conn.Write(labelled(longText(t, 1, 1<<20)[:1<<20]))
	hungUp(conn)
	counted("a plain list that breaks off")

	listener, err := net.Listen("tcp", "127.0.0.99:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for what, answer := range map[string][]byte{
		"an answer":          tooMuch,
		"no member's answer": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"),
	} {
		joined := make(chan error, 1)
		go func() {
			_, err := n.list.Join([]string{listener.Addr().String()})
			joined <- err
		}()
		conn, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		conn.Write(answer)
		if err := <-joined; err == nil {
			t.Errorf("%s is taken", what)
		}
		conn.Close()
		counted(what)
	}
	if log := n.log.String(); strings.Contains(log, "WARN") {
		t.Errorf("the log is not quiet:\n%s", log)
	}
}

// A stream that says nothing more gives its room back soon; one of few bytes, and one that
// goes on, have as long as any.
func TestStillStreams(t *testing.T) {
	opens := sealsOf(t, keyText(1, 32))
	accepted := func(s *stream) error {
		_, err := vet(s, opens)
		return err
	}
	dialled := func(patience time.Duration) func(*stream) error {
		return func(s *stream) error {
			d := newDialled(s, opens)
			if err := d.SetDeadline(time.Now().Add(patience)); err != nil {
				return err
			}
			_, err := io.ReadAll(d)
			return err
		}
	}
	const large = 1 << 20
	silence := func(net.Conn) {}
	whole := sealedStream(t, keyText(1, 32), listOf(t, 5000), cipherVersion)
	for name, test := range map[string]struct {
		read   func(*stream) error
		begins []byte
		then   func(net.Conn)
		want   time.Duration
		taken  bool
	}{
		"silent":                 {accepted, longSeal(large), silence, stillFor, false},
		"silent, small":          {accepted, longSeal(freeStreaming / 2), silence, sealedTimeout, false},
		"a byte a second":        {accepted, longSeal(large), func(c net.Conn) { drip(c, time.Second) }, sealedTimeout, false},
		"small, a byte a second": {accepted, longSeal(1), func(c net.Conn) { drip(c, time.Second) }, sealedTimeout, false},
		"a whole list, slowly": {accepted, whole[:large/2], func(c net.Conn) {
			for rest := whole[large/2:]; len(rest) > 0; {
				time.Sleep(time.Second)
				size := min(len(rest), 1+(len(whole)-large/2)/8)
				c.Write(rest[:size])
				rest = rest[size:]
			}
		}, 8 * time.Second, true},
		"an answer":              {dialled(time.Minute), longSeal(large), silence, stillFor, false},
		"an answer to the hasty": {dialled(time.Second), longSeal(large), silence, time.Second, false},
		"a small answer":         {dialled(time.Minute), longSeal(1), silence, time.Minute, false},
		"a plain answer":         {dialled(time.Minute), longText(t, 1, large), silence, stillFor, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := net.Pipe()
				s := &stream{Conn: near, release: func() {}, drops: new(drops), room: newRoom(maxStreaming, maxStreamingFrom)}
				done := make(chan struct{})
				go func() {
					defer close(done)
					far.Write(test.begins)
					test.then(far)
				}()
				began := time.Now()
				err := test.read(s)
				if took := time.Since(began); took != test.want || (err == nil) != test.taken || err != nil && !errIsTimeout(err) && !errors.Is(err, errStill) {
					t.Errorf("after %v, want %v: %v", took, test.want, err)
				}
				s.Close()
				far.Close()
				<-done
				if counted := s.drops[dropStream].Load() == 1; counted != errors.Is(err, errStill) {
					t.Errorf("counted: %t, after %v", counted, err)
				}
				if held := s.room.held(); held != 0 {
					t.Errorf("%d bytes are held", held)
				}
			})
		})
	}
}
