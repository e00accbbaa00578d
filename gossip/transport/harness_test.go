package transport

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

// patience is how long a test waits for what must happen.
const patience = time.Minute

// node is a transport on loopback, and all that it received. Streams for memberlist are echoed.
type node struct {
	*Transport
	at  netip.AddrPort
	log *output

	mu       sync.Mutex
	received []message
	lastFrom netip.AddrPort
	serve    func(ctx context.Context, request []byte) []byte
	inner    sync.WaitGroup
	stop     func()
}

type message struct {
	from       wire.MemberID
	memberlist bool
	payload    string
}

// open starts a transport that ends with the test.
func open(t testing.TB, id wire.MemberID, change ...func(*Options)) *node {
	t.Helper()
	n := &node{log: &output{}}
	opts := Options{
		Log: slog.New(slog.NewTextHandler(n.log, nil)), ID: id, Label: "test", Handler: (*handler)(n), MemberID: idOf, AllowLocal: true,
	}
	for _, change := range change {
		change(&opts)
	}
	if opts.Sockets == nil {
		opts.Sockets = listenAt(t, "127.0.0.1")
	}
	if l, ok := opts.Sockets.(*Listener); ok {
		n.at = netip.AddrPortFrom(l.TCPListener.Addr().(*net.TCPAddr).AddrPort().Addr().Unmap(), uint16(l.Port()))
	}
	var err error
	if n.Transport, err = New(opts); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	n.inner.Go(func() { n.memberlist(done) })
	n.stop = sync.OnceFunc(func() {
		n.Shutdown()
		close(done)
		n.inner.Wait()
	})
	t.Cleanup(n.stop)
	return n
}

func listenAt(t testing.TB, bind string) *Listener {
	t.Helper()
	l, err := Listen(bind, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// at makes a transport listen at an address of this machine.
func at(t testing.TB, bind string) func(*Options) {
	return func(o *Options) { o.Sockets = listenAt(t, bind) }
}

func label(name string) func(*Options) { return func(o *Options) { o.Label = name } }

// keys give a transport a file of keys, each of so many times one byte.
func keys(t testing.TB, all ...byte) func(*Options) {
	path := filepath.Join(t.TempDir(), "keys")
	writeKeys(t, path, all...)
	return func(o *Options) { o.KeyFile = path }
}

func writeKeys(t testing.TB, path string, all ...byte) {
	t.Helper()
	var text strings.Builder
	for _, b := range all {
		fmt.Fprintln(&text, keyText(b, 32))
	}
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func keyText(b byte, size int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, size))
}

// nameOf and idOf are the names of members here.
func nameOf(id wire.MemberID) string { return fmt.Sprint("n", uint64(id)) }

func idOf(name string) (id wire.MemberID, ok bool) {
	_, err := fmt.Sscanf(name, "n%d", &id)
	return id, err == nil
}

// memberlist takes what is memberlist's.
func (n *node) memberlist(done chan struct{}) {
	for {
		select {
		case p := <-n.PacketCh():
			n.add(message{memberlist: true, payload: string(p.Buf)})
		case conn := <-n.StreamCh():
			n.inner.Go(func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // then it is closed
				io.Copy(conn, conn)                        //nolint:errcheck // the other side sees it
			})
		case <-done:
			return
		}
	}
}

func (n *node) add(m message) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received = append(n.received, m)
}

func (n *node) got(m message) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range n.received {
		if other == m {
			return true
		}
	}
	return false
}

func (n *node) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.received)
}

type handler node

func (h *handler) Receive(from wire.MemberID, at netip.AddrPort, payload []byte) {
	h.mu.Lock()
	h.lastFrom = at
	h.mu.Unlock()
	(*node)(h).add(message{from: from, payload: string(payload)})
}

func (h *handler) Serve(ctx context.Context, request []byte) []byte {
	h.mu.Lock()
	serve := h.serve
	h.mu.Unlock()
	if serve == nil {
		return request
	}
	return serve(ctx, request)
}

func serving(f func(ctx context.Context, request []byte) []byte) func(*Options) {
	return func(o *Options) { o.Handler.(*handler).serve = f }
}

// dropped are the reasons that were counted, and how often.
func (n *node) dropped() string {
	var all []string
	for why := drop(1); why < dropCount; why++ {
		if count := n.Dropped()[dropNames[why]]; count > 0 {
			all = append(all, fmt.Sprint(dropNames[why], " ", count))
		}
	}
	return strings.Join(all, ", ")
}

func (n *node) problem() string { return strings.Join(n.Problems(time.Now()), "\n") }

// echo opens a stream for memberlist to another node and uses it.
func (n *node) echo(to *node) error {
	conn, err := n.DialAddressTimeout(memberlist.Address{Addr: to.at.String(), Name: nameOf(to.ID)}, patience)
	if err != nil {
		return err
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(patience)) //nolint:errcheck // then it fails
	const ping = "\x00\x81\xa4echo\x01"
	if _, err := io.WriteString(conn, ping); err != nil {
		return err
	}
	var b [len(ping)]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return err
	}
	if string(b[:]) != ping {
		return fmt.Errorf("echo of %q", b)
	}
	return nil
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, is func() bool) {
	t.Helper()
	for until := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("it does not come to: %s", what)
		}
	}
}

// output is a log.
type output struct {
	mu sync.Mutex
	b  strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// outsider is a UDP socket of loopback that is no agent's.
func outsider(t testing.TB) *net.UDPConn {
	t.Helper()
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func addressOf(conn *net.UDPConn) netip.AddrPort { return conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func sendTo(t testing.TB, from *net.UDPConn, to *node, b []byte) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort(b, to.at); err != nil {
		t.Fatal(err)
	}
}

// dialFrom connects an address of this machine to a node, as somebody who is no agent.
func dialFrom(t testing.TB, from string, to *node) net.Conn {
	t.Helper()
	conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.ParseIP(from)}, net.TCPAddrFromAddrPort(to.at))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func timedOut(err error) bool {
	failed, ok := errors.AsType[net.Error](err)
	return ok && failed.Timeout()
}

// pipes are sockets in memory, for fake clocks. Datagrams are lost.
type pipes struct {
	conns chan net.Conn
	ended chan struct{}
}

func newPipes() *pipes { return &pipes{make(chan net.Conn), make(chan struct{})} }

func (p *pipes) ReadFromUDPAddrPort([]byte) (int, netip.AddrPort, error) {
	<-p.ended
	return 0, netip.AddrPort{}, net.ErrClosed
}

func (p *pipes) WriteToUDPAddrPort([]byte, netip.AddrPort) (int, error) { return 0, nil }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.conns:
		return conn, nil
	case <-p.ended:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Dial(ctx context.Context, _ netip.AddrPort) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case p.conns <- far:
		return near, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *pipes) Close() error {
	close(p.ended)
	return nil
}

// idAt is the incarnation of the node with that index.
func idAt(i int) wire.MemberID { return wire.MemberID(i + 1) }

// last reports whether a message is the last that its sender sent here.
func (n *node) last(m message) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, other := range slices.Backward(n.received) {
		if other.from == m.from {
			return other == m
		}
	}
	return false
}
