package members

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// The bytes of all streams that came here may be so many at one time, and those of one
	// address. The same holds for answers on streams that began here.
	maxStreaming     = 16 << 20
	maxStreamingFrom = maxStream
	// freeStreaming is what a stream may have beside: the list of some hundred members.
	// So nobody can keep small clusters from exchanging theirs by sending much.
	freeStreaming = 64 << 10
	// stillFor is how long a stream may say nothing while it holds more than that and is read.
	stillFor = 2 * time.Second
)

var (
	errStreaming = errors.New("no room for more of the stream")
	errStill     = errors.New("the stream is silent")
)

// stream is a connection that says when it is closed, and of which not more is read than
// there is room for: what was read is somewhere in memory until then. One goroutine may
// use it at a time; its room may cut it off meanwhile.
type stream struct {
	net.Conn
	once    sync.Once
	release func()

	drops   *drops
	refused atomic.Bool // and counted

	from        netip.Addr
	room        *room
	taken, held int         // bytes; what was taken of the room
	cut         atomic.Bool // it has to make way

	until time.Time // what was set for reading; zero is no end
}

// Read implements net.Conn.
func (s *stream) Read(p []byte) (int, error) {
	hurried := false
	if s.held > 0 {
		still := time.Now().Add(stillFor)
		if hurried = s.until.IsZero() || still.Before(s.until); !hurried {
			still = s.until
		}
		if err := s.Conn.SetReadDeadline(still); err != nil {
			return 0, s.reason(err)
		}
	}
	size, err := s.Conn.Read(p)
	if full := s.take(size); full != nil {
		return 0, full
	}
	if hurried && errors.Is(err, os.ErrDeadlineExceeded) && !s.cut.Load() {
		s.refuse()
		err = errStill
	}
	return size, s.reason(err)
}

// Write implements net.Conn.
func (s *stream) Write(p []byte) (int, error) {
	size, err := s.Conn.Write(p)
	return size, s.reason(err)
}

// reason is why something failed.
func (s *stream) reason(err error) error {
	if err != nil && s.cut.Load() {
		return errStreaming
	}
	return err
}

// take makes room for some bytes until the end of the stream.
func (s *stream) take(size int) error {
	s.taken += size
	if more := s.taken - freeStreaming - s.held; more > 0 {
		if !s.room.take(s, more) {
			s.refuse()
			return errStreaming
		}
		s.held += more
	}
	return nil
}

// refuse counts the stream as one that was not taken, once, whoever reads it. It is safe
// for concurrent use.
func (s *stream) refuse() {
	if !s.refused.Swap(true) {
		s.drops.add(dropStream)
	}
}

// SetDeadline implements net.Conn.
func (s *stream) SetDeadline(t time.Time) error {
	s.until = t
	return s.reason(s.Conn.SetDeadline(t))
}

// SetReadDeadline implements net.Conn.
func (s *stream) SetReadDeadline(t time.Time) error {
	s.until = t
	return s.reason(s.Conn.SetReadDeadline(t))
}

// Close implements net.Conn.
func (s *stream) Close() error {
	s.once.Do(func() {
		s.room.leave(s)
		s.release()
	})
	return s.Conn.Close()
}

// onEnd closes a connection when ctx ends, unless it is stopped before.
func onEnd(ctx context.Context, conn net.Conn) (stop func()) {
	end := context.AfterFunc(ctx, func() { conn.Close() })
	return func() { end() }
}
