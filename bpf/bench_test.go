package bpf

import (
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
)

// BenchmarkProgram measures what a packet costs under BPF_PROG_TEST_RUN, next to an empty program
// that is run in turns with it: x/empty is the figure that travels between machines.
func BenchmarkProgram(b *testing.B) {
	for _, mode := range []Mode{TC, XDP} {
		b.Run(string(mode), func(b *testing.B) {
			o := load(b, Options{Mode: mode, Refresh: time.Hour, DataRate: Rate{Burst: 1000}})
			enter(b, o, loopback, 1)
			empty := emptyProgram(b, o.program.Type())
			tagged := frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 7})

			for _, c := range []struct {
				name   string
				packet []byte
			}{
				{"other", frame(podMAC, 0x88cc, make([]byte, 46))},
				{"cached-ipv4", ipv4Frame("10.0.0.1")},
				{"cached-ipv6", ipv6Frame("2001:db8::1")},
				{"cached-vlan", tagged},
			} {
				b.Run(c.name, func(b *testing.B) { compare(b, o.program, empty, empty, c.packet) })
			}
			// In front of both runs the same program, which makes each packet another source
			// than the one before; what it costs is taken off again.
			for _, c := range []struct {
				name   string
				packet []byte
				size   asm.Size
				at     int16
				shift  int32
			}{
				{"uncached-ipv4", ipv4Frame("10.0.0.1"), asm.Word, 26, 24},
				{"uncached-ipv6", ipv6Frame("2001:db8::1"), asm.DWord, 30, 56},
			} {
				rotating := rotateSource(b, o.program, c.size, c.at, c.shift)
				floor := rotateSource(b, empty, c.size, c.at, c.shift)
				b.Run(c.name, func(b *testing.B) { compare(b, rotating, floor, empty, c.packet) })
			}
		})
	}
}

func emptyProgram(b *testing.B, kind ebpf.ProgramType) *ebpf.Program {
	b.Helper()
	return newProgram(b, kind, asm.Mov.Imm(asm.R0, 2), asm.Return())
}

// rotateSource makes a program that counts up the last byte of an address, modulo 64, and goes on with
// the next program. It stores as many bytes as the observer loads: a wider load after a narrower store
// would make the CPU wait, and be counted as the observer's.
func rotateSource(b *testing.B, next *ebpf.Program, size asm.Size, at int16, shift int32) *ebpf.Program {
	b.Helper()
	programs, err := ebpf.NewMap(&ebpf.MapSpec{
		Type: ebpf.ProgramArray, KeySize: 4, ValueSize: 4, MaxEntries: 1,
		Contents: []ebpf.MapKV{{Key: uint32(0), Value: next}},
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = programs.Close() })

	data, end := int16(76), int16(80) // struct __sk_buff
	if next.Type() == ebpf.XDP {
		data, end = 0, 4 // struct xdp_md
	}
	return newProgram(b, next.Type(),
		asm.LoadMem(asm.R2, asm.R1, data, asm.Word),
		asm.LoadMem(asm.R3, asm.R1, end, asm.Word),
		asm.Mov.Reg(asm.R4, asm.R2),
		asm.Add.Imm(asm.R4, 40),
		asm.JGT.Reg(asm.R4, asm.R3, "out"),
		asm.LoadMem(asm.R5, asm.R2, at, size),
		asm.Mov.Imm(asm.R4, 1),
		asm.LSh.Imm(asm.R4, shift),
		asm.Add.Reg(asm.R5, asm.R4),
		asm.LoadImm(asm.R4, ^(int64(0xc0)<<shift), asm.DWord),
		asm.And.Reg(asm.R5, asm.R4),
		asm.StoreMem(asm.R2, at, asm.R5, size),
		asm.LoadMapPtr(asm.R2, programs.FD()),
		asm.Mov.Imm(asm.R3, 0),
		asm.FnTailCall.Call(),
		asm.Mov.Imm(asm.R0, 2).WithSymbol("out"),
		asm.Return(),
	)
}

func newProgram(tb testing.TB, kind ebpf.ProgramType, instructions ...asm.Instruction) *ebpf.Program {
	tb.Helper()
	spec := &ebpf.ProgramSpec{Type: kind, License: "Dual BSD/GPL", Instructions: instructions}
	if kind == ebpf.XDP {
		spec.AttachType = ebpf.AttachXDP // a tail call wants both programs to say the same
	}
	program, err := ebpf.NewProgram(spec)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = program.Close() })
	return program
}

// compare reports what program costs beyond floor, added to the cost of empty: the kernel's own count in
// whole nanoseconds, of each the least of many runs, since other processes can only make one slower.
func compare(b *testing.B, program, floor, empty *ebpf.Program, packet []byte) {
	programs := []*ebpf.Program{program, floor, empty}
	least := []time.Duration{time.Hour, time.Hour, time.Hour}
	for b.Loop() {
		for i, program := range programs {
			_, cost, err := program.Benchmark(packet, 200_000, nil)
			if err != nil {
				b.Fatal(err)
			}
			least[i] = min(least[i], cost)
		}
	}
	cost := least[0] - least[1] + least[2]
	b.ReportMetric(float64(cost), "ns/packet")
	b.ReportMetric(float64(cost)/float64(least[2]), "x/empty")
	b.ReportMetric(0, "ns/op")
}

// BenchmarkRead measures the way of a record from the ring to a Record.
func BenchmarkRead(b *testing.B) {
	const batch = 1000
	o := load(b, Options{Mode: TC, AnswerRate: Rate{PerSecond: 1e6, Burst: 1e6}})
	enter(b, o, loopback, 1)
	reply := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9"))
	b.ReportAllocs()
	var record Record
	for left := 0; b.Loop(); left-- {
		if left == 0 {
			b.StopTimer()
			enter(b, o, loopback, 1) // a full bucket
			_, err := o.program.Run(&ebpf.RunOptions{Data: reply, Repeat: batch})
			if err != nil {
				b.Fatal(err)
			}
			left = batch
			b.StartTimer()
		}
		if err := o.Read(&record); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "records/s")
}
