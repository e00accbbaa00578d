package collect

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// What there is no room for is counted as omitted, and not kept.
func TestTooMuch(t *testing.T) {
	const nodes, each = 12, 20_000
	answer, all := document.Answer{}, make(others)
	for i := range each {
		answer.Findings = append(answer.Findings, document.Finding{Kind: document.Unreserved, IP: netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})})
	}
	for i := range nodes {
		all[fmt.Sprint("n", i)] = &answer
	}
	var c Collection
	if err := c.Ask(t.Context(), all, all.members(), document.Query{Cluster: true}, cluster.QueryFindings); err != nil {
		t.Fatal(err)
	}
	held, counted := 0, 0
	for _, a := range c.answers {
		held += len(a.Findings)
		counted += len(a.Findings) + a.Omitted
	}
	if most := room/512 + each; held > most || held < most/2 || counted != nodes*each || len(c.answers) != nodes {
		t.Errorf("%d findings of %d answers are held, %d are known", held, len(c.answers), counted)
	}
	if a := c.Audit(document.Query{}); !a.Partial || a.Omitted != nodes*each-held || len(a.Missing) != 0 {
		t.Errorf("partial %v, %d omitted, missing %v", a.Partial, a.Omitted, a.Missing)
	}
}
