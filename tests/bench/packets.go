package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

// packetCase is one kind of traffic at one interface.
type packetCase struct {
	what  string
	frame []byte
	// turns makes each packet come from another address than the one before; nil is one
	// address.
	turns *rotation
	// records is how many the observer writes, whatever the number of packets: it shows
	// that the case is what it says.
	records int64
	goal    string
}

const (
	oneAddress    = "≤ 2 × empty"
	moreAddresses = "≤ 4 × empty"
)

var packetCases = []packetCase{
	{"parsed, no address in it", brokenFrame(), nil, 0, ""},
	{"one IPv4 address", ipFrame("10.0.0.1", 0), nil, 1, oneAddress},
	{"one IPv6 address", ipFrame("2001:db8::1", 0), nil, 1, oneAddress},
	{"one IPv4 address, tag in the packet", ipFrame("10.0.0.1", 7), nil, 1, moreAddresses},
	{"two IPv4 addresses in turns", ipFrame("10.0.0.1", 0), rotateIPv4(2), 2, moreAddresses},
	{"256 IPv4 addresses in turns", ipFrame("10.0.0.1", 0), rotateIPv4(256), 256, moreAddresses},
	{"256 IPv6 addresses in turns", ipFrame("2001:db8::1", 0), rotateIPv6(256), 256, moreAddresses},
}

const (
	etherIPv4 uint16 = 0x0800
	etherARP  uint16 = 0x0806
	etherIPv6 uint16 = 0x86dd
)

var (
	podMAC  = net.HardwareAddr{2, 0, 0, 0, 0, 1}
	nodeMAC = net.HardwareAddr{2, 0, 0, 0, 0, 2}
)

// ipFrame is the frame of a small datagram.
func ipFrame(source string, vlan uint16) []byte {
	src, dst, etherType := netip.MustParseAddr(source), "10.9.9.9", etherIPv4
	if src.Is6() {
		dst, etherType = "2001:db8::ffff", etherIPv6
	}
	packet := lab.UDP(netip.AddrPortFrom(src, 9), netip.AddrPortFrom(netip.MustParseAddr(dst), 9), make([]byte, 18))
	return lab.Ethernet(nodeMAC, podMAC, vlan, etherType, packet)
}

// brokenFrame has an IPv4 header that is shorter than one can be, which the observer finds
// out last of all in a header.
func brokenFrame() []byte {
	frame := ipFrame("10.0.0.1", 0)
	frame[14] = 0x44
	return frame
}

func measurePackets(ctx context.Context, s settings) ([]block, error) {
	var blocks []block
	err := inLab(ctx, func(l *lab.Lab) error {
		n, err := l.AddNode("")
		if err != nil {
			return err
		}
		for _, mode := range []bpf.Mode{bpf.TC, bpf.XDP} {
			b, err := packetBlock(ctx, n, mode, s)
			if err != nil {
				return fmt.Errorf("%s: %w", mode, err)
			}
			blocks = append(blocks, b)
		}
		return nil
	})
	return blocks, err
}

// packetBlock runs all cases of a mode in turns.
func packetBlock(ctx context.Context, n *lab.Node, mode bpf.Mode, s settings) (b block, err error) {
	// CPU time is a thread's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var trials []*trial
	defer func() {
		for _, t := range trials {
			err = errors.Join(err, t.close())
		}
	}()
	for i, c := range packetCases {
		t, err := newTrial(n, fmt.Sprintf("%s%d", mode, i), mode, c)
		if err != nil {
			return block{}, fmt.Errorf("%s: %w", c.what, err)
		}
		trials = append(trials, t)
	}
	nothing, err := empty(trials[0].observed.program.Type())
	if err != nil {
		return block{}, err
	}
	defer nothing.Close()

	ordinary := ipFrame("10.0.0.1", 0)
	var base []float64
	for round := range s.rounds + 1 {
		least, err := cost(nothing, ordinary, s.repeat)
		if err != nil {
			return block{}, err
		}
		for _, t := range trials {
			ns, err := t.run(s.repeat, least)
			if err != nil {
				return block{}, fmt.Errorf("%s: %w", t.what, err)
			}
			// The first round is for the tables to fill and the caches to get warm.
			if round > 0 {
				t.ns = append(t.ns, ns)
				t.ratio = append(t.ratio, ns/least)
			}
		}
		if round > 0 {
			base = append(base, least)
		}
		if ctx.Err() != nil {
			return block{}, ctx.Err()
		}
	}
	b.title = fmt.Sprintf("ONE PACKET, %s (BPF_PROG_TEST_RUN, %d rounds in turns)", map[bpf.Mode]string{bpf.TC: "tc and tcx", bpf.XDP: "xdp"}[mode], s.rounds)
	b.rows = []row{{"empty program", fmt.Sprintf("%5.1f ns", median(base)), ""}}
	for _, t := range trials {
		if err := t.check(ctx); err != nil {
			return block{}, fmt.Errorf("%s: %w", t.what, err)
		}
		b.rows = append(b.rows, row{t.what, fmt.Sprintf("%5.1f ns, %.1f × empty", median(t.ns), median(t.ratio)), t.goal})
	}
	return b, nil
}

// trial is a case under way, with an observer of its own: what one case has left in the
// tables would be another's luck.
type trial struct {
	packetCase
	observed *observed
	// tested is what is run, floor the same without the observer: both nil for one address.
	tested, floor *ebpf.Program
	closers       []io.Closer
	records       atomic.Int64
	read          chan struct{}
	ns, ratio     []float64
}

func newTrial(n *lab.Node, name string, mode bpf.Mode, c packetCase) (*trial, error) {
	o, err := observe(n, name, bpf.Options{
		Mode: mode, Refresh: time.Hour, DataRate: bpf.Rate{PerSecond: 1000, Burst: 1000},
		RingBytes: 1 << 16, MaxAddresses: 4096, MaxInterfaces: 64,
	})
	if err != nil {
		return nil, err
	}
	t := &trial{packetCase: c, observed: o, read: make(chan struct{})}
	go func() {
		defer close(t.read)
		for record := (bpf.Record{}); o.observer.Read(&record) == nil; {
			t.records.Add(1)
		}
	}()
	if c.turns == nil {
		return t, nil
	}
	nothing, err := empty(o.program.Type())
	if err != nil {
		return nil, errors.Join(err, t.close())
	}
	defer nothing.Close()
	for _, way := range []struct {
		to   **ebpf.Program
		next *ebpf.Program
	}{{&t.tested, o.program}, {&t.floor, nothing}} {
		program, array, err := c.turns.before(way.next)
		if err != nil {
			return nil, errors.Join(err, t.close())
		}
		*way.to = program
		t.closers = append(t.closers, program, array)
	}
	return t, nil
}

// run returns the nanoseconds of a packet. What it takes to count the address up is taken off
// again: the same is run in front of an empty program.
func (t *trial) run(repeat int, least float64) (float64, error) {
	if t.turns == nil {
		return cost(t.observed.program, t.frame, repeat)
	}
	with, err := cost(t.tested, t.frame, repeat)
	if err != nil {
		return 0, err
	}
	without, err := cost(t.floor, t.frame, repeat)
	return with - without + least, err
}

// check compares the records with those that the case must give.
func (t *trial) check(ctx context.Context) error {
	deadline := time.Now().Add(5 * time.Second)
	for t.records.Load() < t.packetCase.records && time.Now().Before(deadline) && ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	if got := t.records.Load(); got != t.packetCase.records {
		return fmt.Errorf("the observer wrote %d records, want %d: the figure is not of what it says", got, t.packetCase.records)
	}
	return nil
}

func (t *trial) close() error {
	for _, c := range t.closers {
		_ = c.Close()
	}
	err := t.observed.close()
	<-t.read
	return err
}
