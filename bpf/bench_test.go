package bpf

import (
	"testing"

	"github.com/cilium/ebpf"
)

// BenchmarkRead measures reading and decoding a record. tests/bench measures the programs.
func BenchmarkRead(b *testing.B) {
	const batch = 1000
	o := load(b, Options{Mode: TC, Constants: limits{AnswerRate: Rate{PerSecond: 1e6, Burst: 1e6}}.constants()})
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
