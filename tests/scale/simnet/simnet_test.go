package simnet

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// bubble runs f in virtual time, with a network of n endpoints.
func bubble(t *testing.T, opts Options, n int, f func(t *testing.T, network *Network, ends []*Endpoint)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		network := New(opts)
		defer network.Close()
		ends := make([]*Endpoint, n)
		for i := range ends {
			e, err := network.Listen(netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 7951))
			if err != nil {
				t.Fatal(err)
			}
			ends[i] = e
		}
		f(t, network, ends)
	})
}

func number(i int) []byte { return binary.BigEndian.AppendUint32(nil, uint32(i)) }

// inbox empties the inbox of an endpoint.
func inbox(e *Endpoint) []int {
	var got []int
	for len(e.packets) > 0 {
		var b [5]byte
		if n, _, err := e.ReadFromUDPAddrPort(b[:]); err == nil && n == 4 {
			got = append(got, int(binary.BigEndian.Uint32(b[:])))
		}
	}
	return got
}

func send(t *testing.T, from, to *Endpoint, b []byte) {
	t.Helper()
	if _, err := from.WriteToUDPAddrPort(b, to.Addr()); err != nil {
		t.Fatal(err)
	}
}

// dial opens a stream within a second.
func dial(from, to *Endpoint) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	return from.Dial(ctx, to.Addr())
}

func TestPackets(t *testing.T) {
	tests := []struct {
		name          string
		opts          Options
		least, most   int  // of 1000 that arrive
		ordered       bool // at the same pace
		before, after time.Duration
	}{
		{
			name: "at once", opts: Options{},
			least: 1000, most: 1000, ordered: true, after: 2 * time.Millisecond,
		},
		{
			name: "late", opts: Options{Delay: 20 * time.Millisecond},
			least: 1000, most: 1000, ordered: true,
			before: 19 * time.Millisecond, after: 22 * time.Millisecond,
		},
		{
			name: "out of order", opts: Options{Delay: time.Millisecond, Jitter: 20 * time.Millisecond},
			least: 1000, most: 1000, after: 25 * time.Millisecond,
		},
		{
			name: "lost", opts: Options{Loss: 0.1},
			least: 850, most: 950, ordered: true, after: 2 * time.Millisecond,
		},
		{
			name: "too many", opts: Options{Inbox: 100},
			least: 100, most: 100, ordered: true, after: 2 * time.Millisecond,
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			bubble(t, test.opts, 2, func(t *testing.T, _ *Network, ends []*Endpoint) {
				for i := range 1000 {
					send(t, ends[0], ends[1], number(i))
				}
				if test.before > 0 {
					time.Sleep(test.before)
					if got := inbox(ends[1]); len(got) > 0 {
						t.Errorf("%d packets arrived before their time", len(got))
					}
				}
				time.Sleep(test.after - test.before)
				synctest.Wait()
				got := inbox(ends[1])
				if len(got) < test.least || len(got) > test.most {
					t.Errorf("%d of 1000 packets arrived, want %d to %d", len(got), test.least, test.most)
				}
				if sorted := slices.IsSorted(got); sorted != test.ordered {
					t.Errorf("in order is %v, want %v", sorted, test.ordered)
				}
				sent := ends[0].Traffic()
				if sent.Packets != 1000 || sent.Bytes != 1000*(4+headers) || sent.Lost != uint64(1000-len(got)) {
					t.Errorf("counted %+v when %d of 1000 arrived", sent, len(got))
				}
			})
		})
	}
}

func TestSenderMayReuseItsBuffer(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, _ *Network, ends []*Endpoint) {
		b := number(1)
		send(t, ends[0], ends[1], b)
		copy(b, number(2))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := inbox(ends[1]); !slices.Equal(got, []int{1}) {
			t.Errorf("got %v, want what was sent", got)
		}
	})
}

func TestPartition(t *testing.T) {
	bubble(t, Options{}, 4, func(t *testing.T, network *Network, ends []*Endpoint) {
		arrives := func(from, to int) bool {
			t.Helper()
			send(t, ends[from], ends[to], number(7))
			time.Sleep(2 * time.Millisecond)
			synctest.Wait()
			return len(inbox(ends[to])) == 1
		}
		network.Partition(func(a netip.AddrPort) int { return int(a.Addr().As4()[3]) / 3 })
		if !arrives(0, 1) || !arrives(2, 3) || arrives(0, 2) || arrives(3, 1) {
			t.Error("the partition is not where it was made")
		}
		began := time.Now()
		if _, err := dial(ends[0], ends[2]); err == nil || time.Since(began) != time.Second {
			t.Errorf("dialling across the partition: %v after %s, want an error after 1s", err, time.Since(began))
		}
		network.Partition(nil)
		if !arrives(0, 2) {
			t.Error("nothing arrives after the partition was healed")
		}
	})
}

// Nothing reaches a node that is suspended, and what it does happens when it resumes.
func TestSuspend(t *testing.T) {
	const lasts = 6 * time.Minute
	bubble(t, Options{}, 2, func(t *testing.T, _ *Network, ends []*Endpoint) {
		ours, err := dial(ends[0], ends[1])
		if err != nil {
			t.Fatal(err)
		}
		defer ours.Close()
		ends[1].Suspend()
		began := time.Now()
		took := make(map[string]chan time.Duration)
		for name, f := range map[string]func(){
			"sends": func() { _, _ = ends[1].WriteToUDPAddrPort(number(2), ends[0].Addr()) },
			"dials": func() { _, _ = dial(ends[1], ends[0]) },
			"accepts": func() {
				conn, _ := ends[1].Accept()
				_, _ = conn.Write(number(3))
			},
		} {
			took[name] = make(chan time.Duration, 1)
			go func() {
				f()
				took[name] <- time.Since(began)
			}()
		}
		send(t, ends[0], ends[1], number(1))
		if _, err := dial(ends[0], ends[1]); err == nil {
			t.Error("a suspended node accepts a stream")
		}
		time.Sleep(lasts - time.Since(began))
		synctest.Wait()
		if got := inbox(ends[0]); len(got) > 0 {
			t.Errorf("a suspended node has sent %v", got)
		}
		ends[1].Resume()
		time.Sleep(2 * time.Millisecond)
		for name, d := range took {
			if d := <-d; d != lasts {
				t.Errorf("it %s after %s, want when it resumes", name, d)
			}
		}
		synctest.Wait()
		if got := inbox(ends[0]); !slices.Equal(got, []int{2}) {
			t.Errorf("got %v, want what it sent", got)
		}
		if got := inbox(ends[1]); len(got) > 0 {
			t.Errorf("what was sent to it meanwhile came: %v", got)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, network *Network, ends []*Endpoint) {
		addr := ends[1].Addr()
		if _, err := network.Listen(addr); err == nil {
			t.Error("two endpoints have one address")
		}
		if err := ends[1].Close(); err != nil {
			t.Fatal(err)
		}
		send(t, ends[0], ends[1], number(1))
		if lost := ends[0].Traffic().Lost; lost != 1 {
			t.Errorf("%d packets lost to an endpoint that is gone, want 1", lost)
		}
		next, err := network.Listen(addr)
		if err != nil {
			t.Fatal(err)
		}
		send(t, ends[0], next, number(2))
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		if got := inbox(next); !slices.Equal(got, []int{2}) {
			t.Errorf("the next at the address got %v, want [2]", got)
		}
	})
}

func TestStream(t *testing.T) {
	opts := Options{Loss: 0.2, Delay: time.Millisecond, Jitter: 10 * time.Millisecond}
	bubble(t, opts, 2, func(t *testing.T, _ *Network, ends []*Endpoint) {
		ours, err := dial(ends[0], ends[1])
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := ends[1].Accept()
		if err != nil {
			t.Fatal(err)
		}
		var want []byte
		for i := range 500 {
			b := bytes.Repeat(number(i), 1+rand.IntN(500))
			want = append(want, b...)
			if _, err := ours.Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if err := ours.Close(); err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(theirs)
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("read %d bytes (%v), want the %d that were written", len(got), err, len(want))
		}
		if _, err := ours.Write(number(1)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("writing to a closed stream: %v", err)
		}
		if sent := ends[0].Traffic(); sent.Streams != 1 || sent.StreamBytes <= uint64(len(want)) {
			t.Errorf("counted %+v for a stream of %d bytes", sent, len(want))
		}
	})
}

func TestStreamDeadline(t *testing.T) {
	bubble(t, Options{}, 2, func(t *testing.T, _ *Network, ends []*Endpoint) {
		ours, err := dial(ends[0], ends[1])
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = ours.Close() }()
		if err := ours.SetDeadline(time.Now().Add(3 * time.Second)); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = ours.Read(make([]byte, 1))
		if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 3*time.Second {
			t.Errorf("reading from a silent stream: %v after %s, want the deadline after 3s", err, time.Since(began))
		}
		if err := ours.SetDeadline(time.Time{}); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Second, func() { _ = ours.SetDeadline(time.Unix(1, 0)) })
		if _, err := ours.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != 4*time.Second {
			t.Errorf("a deadline set while somebody reads: %v after %s, want 4s", err, time.Since(began))
		}
		if timeout, ok := errors.AsType[net.Error](err); !ok || !timeout.Timeout() {
			t.Errorf("%v is no timeout", err)
		}
	})
}
