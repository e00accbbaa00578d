package books

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"strings"
	"testing"
)

// The largest cluster that Kubernetes supports: 5,000 nodes with 30 pods, and two Calico blocks for each node.
const manyNodes, podsEach = 5000, 30

// podText is a Pod as the API server sends it, of 5 kB.
func podText(name, node, ip string) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(`{"metadata": {"name": %q, "namespace": "shop", "uid": %q, "creationTimestamp": "2026-03-01T11:00:00Z", "managedFields": [{"fieldsV1": {%s}}]},
		"spec": {"nodeName": %q, "containers": [{"name": "main", "env": [%s]}]}, "status": {"phase": "Running", "podIPs": [{"ip": %q}], "conditions": [{"type": "Ready", "status": "True"}]}}`,
		name, "uid-of-shop/"+name, strings.Repeat(`"f:metadata": {"f:labels": {}}, `, 60)+`"f:x": {}`, node, strings.Repeat(`{"name": "A", "value": "12345678"}, `, 60)+`{"name": "B"}`, ip))
}

// large makes that cluster, and returns the texts of its objects.
func large(w *world) (pods, blocks []json.RawMessage) {
	for n := range manyNodes {
		node := fmt.Sprintf("worker-%d", n)
		w.node(node, "")
		var list []allocated
		for p := range podsEach {
			ip := netip.AddrFrom4([4]byte{10, byte(64 + n>>9), byte(n >> 1), byte(n&1)<<7 | byte(p)}).String()
			name := fmt.Sprintf("web-%d-%d", n, p)
			pods = append(pods, podText(name, node, ip))
			w.holds(node, ip, "shop/"+name)
			list = append(list, allocated{ip, "shop/" + name, node, ""})
		}
		for half := range 2 {
			cidr := netip.AddrFrom4([4]byte{10, byte(64 + n>>9), byte(n >> 1), byte(n&1)<<7 | byte(half)<<6}).String() + "/26"
			w.block(cidr, list[:(1-half)*podsEach]...)
		}
	}
	for path, text := range w.objects {
		if strings.Contains(path, calicoBlocks) {
			blocks = append(blocks, json.RawMessage(text))
		}
	}
	clear(w.objects)
	return pods, blocks
}

func heap() float64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / (1 << 20)
}

// BenchmarkBooks is what the largest cluster costs: to read all its objects, to compare once, and a Pod that changes. The memory is that of what
// is kept.
func BenchmarkBooks(b *testing.B) {
	w := newWorld(b)
	w.object(calicoPools, "default-pool", `"spec": {"cidr": "10.0.0.0/8", "blockSize": 26}`)
	pods, blocks := large(w)
	from := map[string][]json.RawMessage{"pods": pods, calicoBlocks: blocks}
	readAll := func() {
		for name, list := range from {
			s := w.source(name)
			for _, text := range list {
				if err := s.change(text, false); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	readAll()
	b.Run("read", func(b *testing.B) {
		for b.Loop() {
			readAll()
		}
		size := 0
		for _, list := range from {
			for _, text := range list {
				size += len(text)
			}
		}
		b.ReportMetric(float64(size)/(1<<20), "MB")
	})
	b.Run("compare", func(b *testing.B) {
		for b.Loop() {
			w.wire.changed = true
			w.step(noon)
		}
		if len(w.found) > 0 || w.waiting {
			b.Errorf("%d findings", len(w.found))
		}
	})
	b.Run("change", func(b *testing.B) {
		s, n := w.source("pods"), 0
		for b.Loop() {
			if err := s.change(pods[n%len(pods)], false); err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
	b.Run("kept", func(b *testing.B) {
		all := heap()
		for b.Loop() {
			pods, blocks, from = nil, nil, nil
		}
		with := heap()
		w.reset()
		w.wire.agents = make(map[string]*agent)
		b.ReportMetric(with-heap(), "MB-kept")
		b.ReportMetric(all-with, "MB-texts")
	})
}
