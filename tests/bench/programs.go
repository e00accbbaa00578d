package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/tests/lab"
)

// loopback is the ifindex that BPF_PROG_TEST_RUN takes a packet to come from, whatever the
// netns.
const loopback = 1

// observed is an observer that is attached to the loopback device of a netns of its own, and
// a handle on the program.
type observed struct {
	observer *bpf.Observer
	program  *ebpf.Program
}

// observe loads an observer of its own, with empty tables, in TC or XDP mode. The program is
// the one that runs under tcx, too.
func observe(n *lab.Node, name string, opts bpf.Options) (*observed, error) {
	sandbox, err := n.AddSandbox(name)
	if err != nil {
		return nil, err
	}
	observer, err := bpf.Load(opts)
	if err != nil {
		return nil, err
	}
	o := &observed{observer: observer}
	if err := sandbox.Exec(func() error {
		_, err := observer.Attach(loopback, bpf.AttachOptions{Generation: 1, CreateQdisc: true})
		return err
	}); err != nil {
		return nil, errors.Join(err, o.close())
	}
	id, err := attachedProgram(sandbox.Netlink(), opts.Mode)
	if err == nil {
		o.program, err = ebpf.NewProgramFromID(id)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("find the program: %w", err), o.close())
	}
	return o, nil
}

func (o *observed) close() error {
	if o.program != nil {
		_ = o.program.Close()
	}
	return o.observer.Close()
}

// attachedProgram asks the kernel what is attached to the loopback device.
func attachedProgram(nl *netlink.Handle, mode bpf.Mode) (ebpf.ProgramID, error) {
	lo, err := nl.LinkByIndex(loopback)
	if err != nil {
		return 0, err
	}
	if mode == bpf.XDP {
		if xdp := lo.Attrs().Xdp; xdp != nil && xdp.Attached {
			return ebpf.ProgramID(xdp.ProgId), nil
		}
		return 0, errors.New("no XDP program is attached")
	}
	filters, err := nl.FilterList(lo, netlink.HANDLE_MIN_INGRESS)
	if err != nil {
		return 0, err
	}
	for _, f := range filters {
		if f, ok := f.(*netlink.BpfFilter); ok {
			return ebpf.ProgramID(f.Id), nil
		}
	}
	return 0, errors.New("no tc filter is attached")
}

// empty makes a program that does nothing.
func empty(kind ebpf.ProgramType) (*ebpf.Program, error) {
	return newProgram(kind, asm.Mov.Imm(asm.R0, 2), asm.Return())
}

// rotation is how a source address is counted up: its last byte is the highest of a word of
// this size at this offset. The word is what the observer loads: a wider load after a
// narrower store would make the CPU wait, and be counted as the observer's.
type rotation struct {
	size  asm.Size
	at    int16
	shift int32
	// sources is how many addresses take turns, a power of two of at most 256.
	sources int
}

func rotateIPv4(sources int) *rotation { return &rotation{asm.Word, 26, 24, sources} }
func rotateIPv6(sources int) *rotation { return &rotation{asm.DWord, 30, 56, sources} }

// before makes a program that counts the source up and goes on with the next program, for as
// long as the map that is returned is open.
func (r *rotation) before(next *ebpf.Program) (*ebpf.Program, *ebpf.Map, error) {
	programs, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: next}},
	})
	if err != nil {
		return nil, nil, fmt.Errorf("make a program array: %w", err)
	}
	data, end := int16(76), int16(80) // struct __sk_buff
	if next.Type() == ebpf.XDP {
		data, end = 0, 4 // struct xdp_md
	}
	program, err := newProgram(next.Type(),
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 40),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R5, asm.R2, r.at, r.size),
		asm.Mov.Imm(asm.R4, 1),
		asm.LSh.Imm(asm.R4, r.shift),
		asm.Add.Reg(asm.R5, asm.R4),
		asm.LoadImm(asm.R4, ^(int64(256-r.sources)<<r.shift), asm.DWord),
		asm.And.Reg(asm.R5, asm.R4),
		asm.StoreMem(asm.R2, r.at, asm.R5, r.size),
		asm.LoadMapPtr(asm.R2, programs.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("out"),
		asm.Return(),
	)
	if err != nil {
		return nil, nil, errors.Join(err, programs.Close())
	}
	return program, programs, nil
}

func newProgram(kind ebpf.ProgramType, instructions ...asm.Instruction) (*ebpf.Program, error) {
	spec := &ebpf.ProgramSpec{Type: kind, License: "Dual BSD/GPL", Instructions: instructions}
	if kind == ebpf.XDP {
		spec.AttachType = ebpf.AttachXDP // a tail call wants both programs to say the same
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		return nil, fmt.Errorf("load a program to measure with: %w", err)
	}
	return program, nil
}

// cost runs a program on a packet so many times and returns the nanoseconds of CPU time that
// one took. The caller's goroutine is locked to its thread. The kernel's own count has whole
// nanoseconds, too coarse for an empty program of five.
func cost(program *ebpf.Program, packet []byte, repeat int) (float64, error) {
	began := threadTime()
	// A signal makes the kernel start all over.
	_, _, err := program.Benchmark(packet, repeat, func() { began = threadTime() })
	if err != nil {
		return 0, err
	}
	return float64(threadTime()-began) / float64(repeat) / float64(time.Nanosecond), nil
}
