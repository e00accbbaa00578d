package members

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// piped is a stream on which somebody says something, and stays.
func piped(t *testing.T, message []byte, room *room) *stream {
	t.Helper()
	near, far := net.Pipe()
	t.Cleanup(func() { near.Close() })
	go far.Write(message)
	return &stream{Conn: near, release: func() {}, drops: new(drops), room: room}
}

// What a header announces takes room before there is any of it, as memberlist takes the
// memory then. In a sealed list it does so, too.
func TestAnnouncedMembers(t *testing.T) {
	key := keyText(1, 32)
	opens := sealsOf(t, key)
	for _, announced := range []int{0, 100, 5000, 2 * maxMembers} {
		header := pack(t, pushPullMessage, stateHeader{Nodes: announced})
		for name, message := range map[string][]byte{"plain": header, "sealed": sealedStream(t, key, header, cipherVersion)} {
			want := max(0, len(message)+announced*nodeSize-freeStreaming)
			enough := newRoom(want, want)
			if _, err := vet(piped(t, message, enough), opens); err != nil || enough.held() != want {
				t.Errorf("%d members, %s: %d bytes are held, want %d: %v", announced, name, enough.held(), want, err)
			}
			if want == 0 {
				continue
			}
			if _, err := vet(piped(t, message, newRoom(want-1, want-1)), opens); !errors.Is(err, errStreaming) {
				t.Errorf("%d members, %s: where a byte of room is missing: %v", announced, name, err)
			}
		}
	}
}

// Where nobody makes way, a small stream has room all the same, and not a byte more.
func TestSmallStreamsHaveRoom(t *testing.T) {
	for size, want := range map[int]error{1: nil, freeStreaming: nil, freeStreaming + 1: errStreaming} {
		s := piped(t, make([]byte, size), newRoom(0, 0))
		if got, err := io.CopyN(io.Discard, s, int64(size)); !errors.Is(err, want) || err == nil && got != int64(size) {
			t.Errorf("%d bytes: %d were read, %v, want %v", size, got, err, want)
		}
	}
}

// Whoever comes here takes no room of the answers on streams that begin here, nor the other
// way round.
func TestAnswersHaveTheirOwnRoom(t *testing.T) {
	key := keyText(1, 32)
	n := open(t, 1, func(o *Options) { o.KeyFile = keyFile(t, key) })
	inner := n.transport.NodeAwareTransport.(*network)
	const size, here = 1 << 20, 2 << 20
	dialFrom(t, 100, n).Write(labelled(longSeal(here)))
	eventually(t, "a stranger takes room", func() bool { return inner.incoming.held() > here-freeStreaming })
	if held := inner.streaming.held(); held != 0 {
		t.Errorf("of answers %d bytes are held", held)
	}

	listener, err := net.Listen("tcp", "127.0.0.99:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := inner.DialTimeout(listener.Addr().String(), time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	far, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		io.Copy(io.Discard, conn)
	}()
	far.Write(longSeal(size))
	eventually(t, "an answer takes room", func() bool { return inner.streaming.held() > size-freeStreaming })
	if held := inner.incoming.held(); held > here {
		t.Errorf("of streams to here %d bytes are held", held)
	}
	conn.Close()
	<-done
	eventually(t, "it gives it back", func() bool { return inner.streaming.held() == 0 })
}
