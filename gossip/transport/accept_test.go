package transport

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// opened are the connections that a node accepted and that are open.
func (n *node) opened() int { return n.conns.count(true) + n.conns.count(false) }

func (c *conns) count(authenticated bool) (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for in := range c.open {
		if in.authenticated == authenticated {
			count++
		}
	}
	return count
}

// Who opens connections and sends nothing keeps nobody else out, from however many addresses.
func TestManyStreams(t *testing.T) {
	for name, addresses := range map[string]int{"one address": 1, "a few": 4, "many": 2 * maxUnauthenticated} {
		for _, key := range []func(*Options){keys(t, 1), func(*Options) {}} {
			n, member := open(t, 1, key), open(t, 2, key)
			t.Run(fmt.Sprintf("%s, sealed %t", name, n.keys != nil), func(t *testing.T) {
				var conns []net.Conn
				for i := range 2 * maxUnauthenticated {
					conns = append(conns, dialFrom(t, fmt.Sprint("127.0.2.", 1+i%addresses), n))
				}
				eventually(t, "what is too much is closed", func() bool {
					return n.opened() == maxUnauthenticated && n.dropped() == fmt.Sprint("stream ", maxUnauthenticated)
				})
				if err := member.echo(n); err != nil {
					t.Error(err)
				}
				for _, conn := range conns {
					conn.Close()
				}
				eventually(t, "none is left", func() bool { return n.opened() == 0 })
				if want := fmt.Sprint("stream ", maxUnauthenticated+1); n.dropped() != want {
					t.Errorf("%s, want %s", n.dropped(), want)
				}
			})
		}
	}
}

// Connections of a few addresses come all the time, each goes as far as it can without a key, and members
// are served all the same. What they hold stays bounded.
func TestStrangersMakeWay(t *testing.T) {
	hello := []byte{0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff} // of 64 KiB, in records of 16
	long := append(hello, make([]byte, 0x4000-4)...)
	for range 2 {
		long = append(append(long, 0x16, 3, 1, 0x40, 0), make([]byte, 0x4000)...)
	}
	sealed := append(appendHeader(nil, byteSealed, hashLabel("test"), 0), byte(kindMemberlist))
	plain := append(appendHeader(nil, bytePlain, hashLabel("test"), 0), byte(kindOwn))
	frame := append(binary.BigEndian.AppendUint16(plain, math.MaxUint16), make([]byte, math.MaxUint16-1)...)
	for name, test := range map[string]struct {
		option func(*Options)
		send   []byte
	}{
		"sealed, silent":       {keys(t, 1), nil},
		"sealed, a header":     {keys(t, 1), sealed},
		"sealed, a long hello": {keys(t, 1), append(sealed, long...)},
		"plain, a header":      {func(*Options) {}, plain},
		"plain, a request":     {func(*Options) {}, frame},
	} {
		t.Run(name, func(t *testing.T) {
			n, member := open(t, 1, test.option), open(t, 2, test.option)
			before := heap()
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for i := range 4 {
				wg.Go(func() {
					var conns []net.Conn
					for {
						select {
						case <-stop:
							for _, conn := range conns {
								conn.Close()
							}
							return
						default:
						}
						conn, err := net.DialTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 3, byte(1+i))}, net.TCPAddrFromAddrPort(n.at))
						if err != nil {
							t.Error(err)
							return
						}
						conn.Write(test.send) //nolint:errcheck // it may be closed
						if conns = append(conns, conn); len(conns) > maxUnauthenticated {
							conns[0].Close()
							conns = conns[1:]
						}
					}
				})
			}
			eventually(t, "there are too many", func() bool { return n.Dropped()["stream"] > 2*maxUnauthenticated })
			for i := range 20 {
				if err := member.echo(n); err != nil {
					t.Errorf("%d: %v", i, err)
				}
				if open := n.conns.count(false); open > maxUnauthenticated {
					t.Errorf("%d connections are open", open)
				}
			}
			grown := heap() - before
			close(stop)
			wg.Wait()
			t.Logf("%.1f MiB are held", float64(grown)/(1<<20))
			if limit := 32 << 20; grown > limit {
				t.Errorf("%d MiB are held", grown>>20)
			}
		})
	}
}

func heap() int {
	var held runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&held)
	return int(held.HeapAlloc)
}

// Of those with a key there are so many at most. More learn why, and are welcome when others have gone.
func TestManyMembers(t *testing.T) {
	key := keys(t, 1)
	n, member := open(t, 1, key), open(t, 2, key)
	var conns []net.Conn
	for i := range maxAuthenticated {
		conn, err := member.DialTimeout(n.at.String(), patience)
		if err != nil {
			t.Fatal(err)
		}
		if conns = append(conns, conn); n.conns.count(true) != i+1 {
			t.Fatalf("%d with a key, want %d", n.conns.count(true), i+1)
		}
	}
	for range 2 {
		if err := member.echo(n); err == nil || err.Error() != "it has too many connections" {
			t.Errorf("one too many: %v", err)
		}
	}
	eventually(t, "both are counted", func() bool { return n.dropped() == "stream 2" && n.conns.count(true) == maxAuthenticated })
	for _, conn := range conns {
		conn.Close()
	}
	eventually(t, "all are gone", func() bool { return n.opened() == 0 })
	if err := member.echo(n); err != nil {
		t.Error(err)
	}
}

// A stream that sends nothing more ends, and so does one that sends a byte a second; but not one that
// memberlist has.
func TestStillStreams(t *testing.T) {
	sealed := append(appendHeader(nil, byteSealed, hashLabel("test"), 0), byte(kindOwn))
	plain := append(appendHeader(nil, bytePlain, hashLabel("test"), 0), byte(kindOwn))
	silence := func(net.Conn, *Transport) {}
	send := func(b []byte) func(net.Conn, *Transport) { return func(c net.Conn, _ *Transport) { c.Write(b) } }
	// begin goes on after the status.
	begin := func(header []byte, then func(net.Conn, *Transport)) func(net.Conn, *Transport) {
		return func(c net.Conn, client *Transport) {
			c.Write(header)
			io.ReadFull(c, make([]byte, 1)) //nolint:errcheck // the test fails then
			then(c, client)
		}
	}
	// authenticate goes on within TLS.
	authenticate := func(then func(net.Conn, *Transport)) func(net.Conn, *Transport) {
		return begin(sealed, func(c net.Conn, client *Transport) {
			inner := tls.Client(c, client.keys.tls(sealed))
			if err := inner.Handshake(); err == nil && readStatus(inner) == nil {
				then(inner, client)
			}
		})
	}
	dripping := func(c net.Conn, _ *Transport) {
		for _, b := range append(slices.Clone(sealed), make([]byte, 100)...) {
			if _, err := c.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(time.Second)
		}
	}
	frame := func(size, have int) []byte {
		return append(binary.BigEndian.AppendUint16(nil, uint16(size)), make([]byte, have)...)
	}
	const blocks = 100 // a request of that size is not answered, any other by a long reply
	for name, test := range map[string]struct {
		key    bool
		client func(net.Conn, *Transport)
		want   time.Duration
	}{
		"silent":                           {true, silence, greetTimeout},
		"silent, plain":                    {false, silence, greetTimeout},
		"half a header":                    {true, send(sealed[:8]), greetTimeout},
		"a byte a second":                  {true, dripping, greetTimeout},
		"no status is read":                {true, send(sealed), greetTimeout},
		"no handshake":                     {true, begin(sealed, silence), greetTimeout},
		"half a handshake":                 {true, begin(sealed, send([]byte{0x16, 3, 1, 0, 200, 1, 0, 0, 100})), greetTimeout},
		"a handshake, a byte a second":     {true, begin(sealed, func(c net.Conn, t *Transport) { c.Write([]byte{0x16, 3, 1, 0, 200}); dripping(c, t) }), greetTimeout},
		"no request":                       {true, authenticate(silence), serveTimeout},
		"no request, plain":                {false, begin(plain, silence), serveTimeout},
		"half a request":                   {true, authenticate(send(frame(200, 100))), serveTimeout},
		"a request, a byte a second":       {true, authenticate(func(c net.Conn, t *Transport) { c.Write(frame(200, 100)); dripping(c, t) }), serveTimeout},
		"a request that nothing answers":   {true, authenticate(send(frame(blocks, blocks))), serveTimeout},
		"a reply that is not read":         {true, authenticate(send(frame(1, 1))), serveTimeout},
		"a plain reply that is not read":   {false, begin(plain, send(frame(1, 1))), serveTimeout},
		"a plain request without a answer": {false, begin(plain, send(frame(blocks, blocks))), serveTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				key := func(*Options) {}
				if test.key {
					key = keys(t, 1)
				}
				p := newPipes()
				n := open(t, 1, key, func(o *Options) { o.Sockets = p }, serving(func(ctx context.Context, request []byte) []byte {
					if len(request) == blocks {
						<-ctx.Done()
						return nil
					}
					return bytes.Repeat([]byte("r"), MaxReply)
				}))
				near, far := net.Pipe()
				began := time.Now()
				p.conns <- far
				var client sync.WaitGroup
				client.Go(func() { test.client(near, n.Transport) })
				for n.opened() > 0 || time.Since(began) == 0 {
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
				}
				if took := time.Since(began); took != test.want {
					t.Errorf("it ends after %v, want %v", took, test.want)
				}
				near.Close()
				client.Wait()
				n.stop()
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		n := open(t, 1, keys(t, 1), func(o *Options) { o.Sockets = newPipes() })
		conn, err := n.DialTimeout(anywhere.String(), time.Second) // itself
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(patience - time.Second)
		if _, err := conn.Write([]byte("\x00\x80")); err != nil {
			t.Error(err)
		}
		if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
			t.Errorf("a stream of memberlist: %v", err)
		}
		conn.Close()
		n.stop()
	})
}
