package document

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/gossip/wire"
)

// realBindings are as nodes have them.
func realBindings(n int) (list []Binding) {
	hex := func(n int) string { return fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())[:n] }
	boot := fmt.Sprintf("%s-%s-4%s-a%s-%s", hex(8), hex(4), hex(3), hex(3), hex(12))
	names := []string{"shop/cart", "shop/checkout", "kube-system/coredns", "monitoring/node-exporter", "billing/invoice-worker"}
	for i := range n {
		seen := noon.Add(-time.Duration(rand.Int64N(int64(24 * time.Hour))))
		namespace, name, _ := strings.Cut(names[rand.IntN(len(names))], "/")
		list = append(list, Binding{
			Network: "default", IP: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), Evidence: detector.Announced, FirstSeen: seen, LastSeen: noon.Add(-time.Duration(rand.Int64N(1e10))),
			Holder: Holder{
				Node: "ip-10-0-12-34.eu-central-1.compute.internal", BootID: boot, Interface: "veth" + hex(8), Bridge: "cni0", Ifindex: uint32(i + 7), Generation: uint32(i + 1),
				MAC: detector.MAC{2, byte(rand.Int()), byte(rand.Int()), byte(rand.Int()), byte(rand.Int()), byte(i)}, NetnsCookie: uint64(4096 + i), Given: detector.GivenYes,
				Netns: fmt.Sprintf("cni-%s-%s-%s-%s-%s", hex(8), hex(4), hex(4), hex(4), hex(12)),
				Pod: &Pod{
					Namespace: namespace, Name: fmt.Sprintf("%s-%s-%s", name, hex(9), hex(5)), UID: fmt.Sprintf("%s-%s-%s-%s-%s", hex(8), hex(4), hex(4), hex(4), hex(12)),
					CreatedAt: seen.Add(-time.Second), Sandbox: hex(13),
				},
			},
		})
	}
	return list
}

func BenchmarkAnswer(b *testing.B) {
	for _, n := range []int{250, 5000} {
		a := Answer{At: noon, Bindings: realBindings(n)}
		node, boot := a.Bindings[0].Node, a.Bindings[0].BootID
		packed := encode(b, a, 1<<20)
		b.Run(fmt.Sprintf("encode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				encode(b, a, 1<<20)
			}
			b.ReportMetric(float64(len(packed)), "B/answer")
		})
		b.Run(fmt.Sprintf("decode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				got, _, err := DecodeAnswer(packed, node, boot, noon)
				if err != nil || len(got.Bindings) != n {
					b.Fatal(len(got.Bindings), err)
				}
			}
			b.ReportMetric(float64(len(packed)), "B/answer")
		})
	}
}

func BenchmarkReport(b *testing.B) {
	for _, n := range []int{2, 8, MaxHolders} {
		c := conflictOf(n, realNode, nil)
		b.Run(fmt.Sprintf("encode/%d", n), func(b *testing.B) {
			b.ReportAllocs()
			var size int
			for b.Loop() {
				packed, err := new(NewConflict(c)).EncodeReport(noon, wire.MaxReport)
				if err != nil {
					b.Fatal(err)
				}
				size = len(packed)
			}
			b.ReportMetric(float64(size), "B/report")
		})
	}
}
