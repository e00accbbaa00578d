package metrics

import (
	"fmt"
	"testing"
)

// The interfaces with most refused packets have series of their own.
func TestInterfaceSeries(t *testing.T) {
	list := refusing(100)
	list[3].Refused[3] = 500
	got := families(t, New(Sources{Loop: answering(LoopStats{Observed: list})}))[interfaceRefusedPackets.name]
	if len(got) != maxInterfaceSeries*4 {
		t.Errorf("%d series, want %d", len(got), maxInterfaceSeries*4)
	}
	for i, want := range map[int]bool{3: true, 80: false, 81: true, 99: true, 4: false} {
		if _, own := got[fmt.Sprintf("veth%03d/data/cni-%03d/", i, i)]; own != want {
			t.Errorf("interface %d has series of its own: %t, want %t", i, own, want)
		}
	}
	if n := got["veth003/ring_full/cni-003/"]; n != 500 {
		t.Errorf("ring full: %v, want 500", n)
	}
}
