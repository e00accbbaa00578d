package simnet

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"time"
)

// errFull is returned to a writer whose reader does not read.
var errFull = errors.New("too many bytes on their way")

// pipe is one direction of a stream: chunks in order, each with the time it arrives.
type pipe struct {
	mu     sync.Mutex
	chunks []chunk
	size   int
	closed bool          // no more will be written
	wake   chan struct{} // cap 1: something was written or closed
}

type chunk struct {
	at    time.Time
	bytes []byte
}

// stream is one end of a stream, which has one reader at a time.
type stream struct {
	local, remote *Endpoint
	in, out       *pipe

	mu       sync.Mutex
	deadline time.Time
	closed   chan struct{}
	once     sync.Once
}

func newStream(from, to *Endpoint) (ours, theirs *stream) {
	there := &pipe{wake: make(chan struct{}, 1)}
	back := &pipe{wake: make(chan struct{}, 1)}
	ours = &stream{local: from, remote: to, in: back, out: there, closed: make(chan struct{})}
	theirs = &stream{local: to, remote: from, in: there, out: back, closed: make(chan struct{})}
	return ours, theirs
}

// Write waits only while its node is suspended. In a partition it drops the bytes, and the reader reaches its
// deadline.
func (s *stream) Write(b []byte) (int, error) {
	s.local.Awake()
	select {
	case <-s.closed:
		return 0, s.fail("write", net.ErrClosed)
	default:
	}
	packets := uint64((len(b) + segment - 1) / segment)
	s.local.count(Traffic{StreamPackets: packets, StreamBytes: uint64(len(b)) + packets*tcpHeaders})
	if !s.local.network.connected(s.local, s.remote) {
		return len(b), nil
	}
	lost, delay := s.local.draw()
	if lost {
		delay += Resend
	}
	p := s.out
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.size+len(b) > maxStream {
		return 0, s.fail("write", errFull)
	}
	at := time.Now().Add(delay)
	if n := len(p.chunks); n > 0 && p.chunks[n-1].at.After(at) {
		at = p.chunks[n-1].at // in order
	}
	p.chunks = append(p.chunks, chunk{at, append([]byte(nil), b...)})
	p.size += len(b)
	p.signal()
	return len(b), nil
}

func (s *stream) Read(b []byte) (int, error) {
	for {
		s.local.Awake()
		n, wait, err := s.in.take(b)
		if n > 0 || err != nil || len(b) == 0 {
			return n, err
		}
		s.mu.Lock()
		deadline := s.deadline
		s.mu.Unlock()
		var timeout <-chan time.Time
		if !deadline.IsZero() {
			left := time.Until(deadline)
			if left <= 0 {
				return 0, s.fail("read", os.ErrDeadlineExceeded)
			}
			timeout = time.After(left)
		}
		var arrived <-chan time.Time
		if wait > 0 {
			arrived = time.After(wait)
		}
		select {
		case <-s.in.wake:
		case <-arrived:
		case <-timeout:
		case <-s.closed:
			return 0, s.fail("read", net.ErrClosed)
		case <-s.local.down:
			return 0, s.fail("read", net.ErrClosed)
		}
	}
}

// take copies what has arrived. If nothing has, it returns the time until something does, or 0 if that
// is unknown.
func (p *pipe) take(b []byte) (int, time.Duration, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.chunks) == 0 {
		if p.closed {
			return 0, 0, io.EOF
		}
		return 0, 0, nil
	}
	first := &p.chunks[0]
	if wait := time.Until(first.at); wait > 0 {
		return 0, wait, nil
	}
	n := copy(b, first.bytes)
	first.bytes = first.bytes[n:]
	p.size -= n
	if len(first.bytes) == 0 {
		p.chunks = p.chunks[1:]
	}
	return n, 0, nil
}

func (p *pipe) signal() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// Close ends both directions; what was written still arrives.
func (s *stream) Close() error {
	s.once.Do(func() {
		close(s.closed)
		s.out.mu.Lock()
		defer s.out.mu.Unlock()
		s.out.closed = true
		s.out.signal()
	})
	return nil
}

func (s *stream) LocalAddr() net.Addr  { return net.TCPAddrFromAddrPort(s.local.addr) }
func (s *stream) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(s.remote.addr) }

func (s *stream) SetDeadline(t time.Time) error {
	s.mu.Lock()
	s.deadline = t
	s.mu.Unlock()
	s.in.signal() // whoever reads looks at it
	return nil
}

func (s *stream) SetReadDeadline(t time.Time) error { return s.SetDeadline(t) }

// SetWriteDeadline does nothing: writes never wait.
func (s *stream) SetWriteDeadline(time.Time) error { return nil }

func (s *stream) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: s.LocalAddr(), Addr: s.RemoteAddr(), Err: err}
}
