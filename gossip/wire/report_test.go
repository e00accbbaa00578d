package wire

import (
	"bytes"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/dupip/dupip/detector/cluster"
)

// The longest conflict fits a packet, whatever surrounds it, and arrives as it was sent.
func TestReportFits(t *testing.T) {
	conflict := make([]byte, MaxReport)
	rng := rand.NewChaCha8([32]byte{})
	_, _ = rng.Read(conflict)
	for _, seq := range []uint64{1, math.MaxUint32, math.MaxUint64} {
		encoded := packet(Report{Seq: seq, Conflict: conflict}, noon)
		if len(encoded) > MaxPacket {
			t.Errorf("report %d: %d bytes, a packet has %d", seq, len(encoded), MaxPacket)
		}
		p, invalid, unknown, err := Decode(encoded, ourNode, noon)
		if err != nil || invalid != 0 || unknown || len(messages(p)) != 1 || p.Reports[0].Seq != seq || !bytes.Equal(p.Reports[0].Conflict, conflict) {
			t.Errorf("report %d: %d invalid, unknown is %v, %v", seq, invalid, unknown, err)
		}
	}
}

// A summary arrives as it was sent.
func TestSummary(t *testing.T) {
	want := cluster.Summary{
		Version: "2.0", Interfaces: map[string]int{"attached": 3}, Findings: map[string]int{"unheld address": 1}, Audit: "agree",
		Bindings: 7, Ranges: []string{"10.0.0.1-10.0.0.9"},
	}
	p, invalid, _, err := Decode(packet(Report{Seq: 1, Summary: &want}, noon), ourNode, noon)
	if err != nil || invalid != 0 || len(p.Reports) != 1 || !reflect.DeepEqual(*p.Reports[0].Summary, want) {
		t.Errorf("%+v, %d invalid, %v", p.Reports, invalid, err)
	}
}

// A report says something of one thing.
func TestReportRefused(t *testing.T) {
	summary := &cluster.Summary{Version: "2.0"}
	for name, test := range map[string]struct {
		report  map[int]any
		refused bool
	}{
		"nothing":                 {map[int]any{1: 1}, true},
		"an empty conflict":       {map[int]any{1: 1, 2: []byte{}}, true},
		"no conflict":             {map[int]any{1: 1, 2: nil}, true},
		"no conflict, no summary": {map[int]any{1: 1, 2: []byte{}, 3: nil}, true},
		"a field of the future":   {map[int]any{1: 1, 99: "x"}, true},
		"a conflict":              {map[int]any{1: 1, 2: []byte{0}}, false},
		"a summary":               {map[int]any{1: 1, 3: summary}, false},
		"an empty summary":        {map[int]any{1: 1, 3: cluster.Summary{}}, false},
		"both":                    {map[int]any{1: 1, 2: []byte{0}, 3: summary}, false},
	} {
		p, invalid, _, err := Decode(Marshal(map[Kind]any{KindReport: []any{test.report, Report{Seq: 2, Conflict: []byte("x")}}}), ourNode, noon)
		if err != nil || (invalid == 1) != test.refused || len(p.Reports) != 2-invalid || p.Reports[len(p.Reports)-1].Seq != 2 {
			t.Errorf("%s: %+v, %d invalid, %v", name, p.Reports, invalid, err)
		}
		if slices.ContainsFunc(p.Reports, func(r Report) bool { return (len(r.Conflict) > 0) == (r.Summary != nil) }) {
			t.Errorf("%s: %+v", name, p.Reports)
		}
	}
}

func BenchmarkLeases(b *testing.B) {
	lease := Lease{Seq: 1 << 20, Key: v4, Binding: binding(ourNode)}
	b.ReportAllocs()
	for b.Loop() {
		var p Builder
		n := 0
		for ; p.Add(Encode(lease, noon)); n++ {
			lease.Seq = uint64(rand.Uint32())
		}
		if p, _, _, err := Decode(p.Bytes(), ourNode, noon); err != nil || len(p.Leases) != n {
			b.Fatal(err)
		}
	}
}
