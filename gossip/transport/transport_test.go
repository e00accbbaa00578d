package transport

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// Whatever is under way when a transport ends, it ends soon and leaves nothing behind.
func TestShutdown(t *testing.T) {
	sealed := append(appendHeader(nil, byteSealed, hashLabel("test"), 0), byte(kindOwn))
	for name, key := range map[string]func(*Options){"plain": func(*Options) {}, "sealed": keys(t, 1)} {
		t.Run(name, func(t *testing.T) {
			before := runtime.NumGoroutine()
			n := open(t, 1, key, serving(func(ctx context.Context, _ []byte) []byte { <-ctx.Done(); return nil }))
			member := open(t, 2, key)
			silent := listenAt(t, "127.0.0.1")
			errs := make(chan error, 3)
			go func() { _, err := n.DialTimeout(silent.TCPListener.Addr().String(), time.Minute); errs <- err }()
			go func() {
				_, err := n.request(t.Context(), &node{at: silent.TCPListener.Addr().(*net.TCPAddr).AddrPort()}, 0, nil)
				errs <- err
			}()
			go func() { _, err := member.request(t.Context(), n, 1, nil); errs <- err }()
			for range 2 {
				if _, err := silent.Accept(); err != nil {
					t.Fatal(err)
				}
			}
			stream, err := member.DialTimeout(n.at.String(), patience)
			if err != nil {
				t.Fatal(err)
			}
			dialFrom(t, "127.0.0.1", n)
			dialFrom(t, "127.0.0.1", n).Write(sealed[:3])
			begun := dialFrom(t, "127.0.0.1", n)
			begun.Write(append(sealed[:0:0], append(appendHeader(nil, n.first, n.label, 0), byte(kindMemberlist))...))
			io.ReadFull(begun, make([]byte, 1)) //nolint:errcheck // its status
			eventually(t, "all are open", func() bool { return n.opened() == 5 })

			began := time.Now()
			n.stop()
			for range 3 {
				if err := <-errs; err == nil {
					t.Error("a stream is open")
				}
			}
			if took := time.Since(began); took > time.Second {
				t.Errorf("it takes %v", took)
			}
			if size, err := stream.Read(make([]byte, 1)); err == nil || timedOut(err) {
				t.Errorf("a stream of memberlist: %d, %v", size, err)
			}
			near, late := net.Pipe()
			n.conns.add(late, &n.drops)
			near.SetReadDeadline(time.Now().Add(patience)) //nolint:errcheck // then it fails
			if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
				t.Errorf("a stream that comes too late: %v", err)
			}
			stream.Close()
			member.stop()
			silent.Close()
			eventually(t, "nothing is left", func() bool { return runtime.NumGoroutine() <= before })
		})
	}
}

// Nobody takes what is memberlist's, as when it has ended, or could not begin.
func TestShutdownWithoutMemberlist(t *testing.T) {
	for name, send := range map[string]func(n, other *node){
		"a datagram": func(n, other *node) { other.send(n.ID, n.at, kindMemberlist, []byte(newsOf(7))) }, //nolint:errcheck // the test waits for it then
		"a stream": func(n, other *node) {
			if conn, err := other.DialTimeout(n.at.String(), patience); err == nil {
				defer conn.Close()
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			key, l := keys(t, 1), listenAt(t, "127.0.0.1")
			opts := Options{ID: 1, Label: "test", Sockets: l, AllowLocal: true}
			key(&opts)
			n, err := New(opts)
			if err != nil {
				t.Fatal(err)
			}
			send(&node{Transport: n, at: netip.MustParseAddrPort(l.TCPListener.Addr().String())}, open(t, 2, key))
			eventually(t, "it waits", func() bool {
				stacks := make([]byte, 1<<20)
				stacks = stacks[:runtime.Stack(stacks, true)]
				return bytes.Contains(stacks, []byte("(*Transport).take(")) || bytes.Contains(stacks, []byte("(*Transport).greet("))
			})
			ended := make(chan error, 1)
			go func() { ended <- n.Shutdown() }()
			select {
			case err := <-ended:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(patience):
				t.Error("it does not end")
			}
		})
	}
}

func TestListenErrors(t *testing.T) {
	n := open(t, 1)
	for _, test := range []struct {
		bind string
		port int
		want string
	}{
		{"127.0.0.1", int(n.at.Port()), "listening for gossip: the port is in use; stop the program that uses it, or choose another --gossip-port"},
		{"192.0.2.1", 7951, "listening for gossip: this node does not have the address; choose another --bind"},
	} {
		if _, err := Listen(test.bind, test.port); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", test.bind, err)
		}
	}
	// A port that only one of both has free is given back. Others on this machine may take it meanwhile.
	var err error
	for range 10 {
		udp := outsider(t)
		port := int(addressOf(udp).Port())
		if _, twice := Listen("127.0.0.1", port); twice == nil {
			t.Error("it listens twice")
		}
		var tcp net.Listener
		if tcp, err = net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			tcp.Close()
			return
		}
	}
	t.Error(err)
}

// An address for all families takes datagrams and streams of both, and names the sender as others do.
func TestBothFamilies(t *testing.T) {
	key := keys(t, 1)
	for _, test := range []struct {
		bind string
		from []string
	}{
		{"", []string{"127.0.0.1", "::1"}},
		{"::", []string{"127.0.0.1", "::1"}},
		{"0.0.0.0", []string{"127.0.0.1"}},
		{"::1", []string{"::1"}},
	} {
		n := open(t, 1, key, at(t, test.bind))
		for i, from := range test.from {
			other := open(t, wire.MemberID(2+i), key, at(t, from))
			there := netip.AddrPortFrom(netip.MustParseAddr(from), n.at.Port())
			if err := other.Send(1, there, []byte("to")); err != nil {
				t.Errorf("%q from %s: %v", test.bind, from, err)
			}
			eventually(t, "it is received", func() bool { return n.got(message{other.ID, false, "to"}) })
			n.mu.Lock()
			if n.lastFrom != other.at {
				t.Errorf("%q: from %s, want %s", test.bind, n.lastFrom, other.at)
			}
			n.mu.Unlock()
			if err := n.Send(other.ID, other.at, []byte("back")); err != nil {
				t.Errorf("%q back to %s: %v", test.bind, from, err)
			}
			eventually(t, "it is received", func() bool { return other.got(message{1, false, "back"}) })
			if err := other.echo(&node{Transport: n.Transport, at: there}); err != nil {
				t.Errorf("%q from %s: %v", test.bind, from, err)
			}
			if err := n.echo(other); err != nil {
				t.Errorf("%q to %s: %v", test.bind, from, err)
			}
		}
	}
}

func TestFinalAdvertiseAddr(t *testing.T) {
	n := open(t, 1)
	for text, want := range map[string]string{"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "fd00::1": "fd00::1", "name": "<nil>"} {
		if ip, port, err := n.FinalAdvertiseAddr(text, 7); ip.String() != want || (err == nil) != (port == 7) {
			t.Errorf("%s: %s, %d, %v", text, ip, port, err)
		}
	}
}
