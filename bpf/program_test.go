package bpf

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/dupip/dupip/internal/testneeds"
)

// loopback is the interface that BPF_PROG_TEST_RUN takes a packet to come from.
const loopback = 1

func load(tb testing.TB, opts Options) *Observer {
	tb.Helper()
	testneeds.Root(tb)
	o, err := Load(opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := o.Close(); err != nil {
			tb.Error(err)
		}
	})
	return o
}

// enter does what Attach does, without a program at the interface.
func enter(tb testing.TB, o *Observer, ifindex int, generation uint32) {
	tb.Helper()
	if err := o.interfaces.Put(uint32(ifindex), &observerInterface{Generation: generation}); err != nil {
		tb.Fatal(err)
	}
	if err := o.nextEpoch(); err != nil {
		tb.Fatal(err)
	}
}

// skbContext is the head of struct __sk_buff, for ctx_in of BPF_PROG_TEST_RUN.
type skbContext struct {
	_       [10]uint32
	Ifindex uint32
	_       [37]uint32
}

// run gives a frame to the program as if it came in at an interface, and checks that it goes on.
func run(tb testing.TB, o *Observer, ifindex int, frame []byte) {
	tb.Helper()
	if err := tryRun(tb, o, ifindex, frame); err != nil {
		tb.Fatalf("run %d bytes: %v", len(frame), err)
	}
}

func tryRun(tb testing.TB, o *Observer, ifindex int, frame []byte) error {
	tb.Helper()
	opts := &ebpf.RunOptions{Data: frame}
	want := uint32(0xffffffff) // TC_ACT_UNSPEC
	if o.mode == XDP {
		want = 2 // XDP_PASS
	} else if ifindex != loopback {
		opts.Context = &skbContext{Ifindex: uint32(ifindex)}
	}
	got, err := o.program.Run(opts)
	if err == nil && got != want {
		tb.Fatalf("the program returned %#x, want %#x", got, want)
	}
	return err
}

// records takes all records that are in the ring.
func records(tb testing.TB, o *Observer) []Record {
	tb.Helper()
	o.records.SetDeadline(time.Now())
	var all []Record
	for {
		var record Record
		err := o.Read(&record)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return all
		}
		if err != nil {
			tb.Fatal(err)
		}
		all = append(all, record)
	}
}

func newProgram(tb testing.TB, kind ebpf.ProgramType, instructions ...asm.Instruction) *ebpf.Program {
	tb.Helper()
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: kind, License: "Dual BSD/GPL", Instructions: instructions})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = program.Close() })
	return program
}
