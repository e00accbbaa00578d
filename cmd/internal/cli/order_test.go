package cli

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Each value of --sort-by puts first what comes first by it, whatever the others say.
func TestOrders(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	first := document.Binding{IP: netip.MustParseAddr("10.0.0.9"), Network: "a", Holder: document.Holder{Node: "n1", Interface: "a", Pod: &document.Pod{Namespace: "a", Name: "x"}}, FirstSeen: early, LastSeen: early}
	second := document.Binding{IP: netip.MustParseAddr("10.0.0.10"), Network: "b", Holder: document.Holder{Node: "n2", Interface: "b", Pod: &document.Pod{Namespace: "b", Name: "x"}}, FirstSeen: late, LastSeen: late}
	check(t, BindingOrders, first, second)
	check(t, ConflictOrders,
		document.Conflict{IP: netip.MustParseAddr("10.0.0.9"), Network: "a", State: detector.Confirmed, SuspectedAt: early, Holders: []document.Binding{second, first}},
		document.Conflict{IP: netip.MustParseAddr("10.0.0.10"), Network: "b", State: detector.Suspected, SuspectedAt: late, Holders: []document.Binding{second}})
	check(t, FindingOrders,
		document.Finding{IP: netip.MustParseAddr("10.0.0.9"), Kind: "a", Holder: document.Holder{Node: "n1", Pod: first.Pod}, Since: early}, document.Finding{IP: netip.MustParseAddr("10.0.0.10"), Kind: "b", Holder: document.Holder{Node: "n2", Pod: second.Pod}, Since: late})
	check(t, NodeOrders,
		document.Node{Member: cluster.Member{Name: "n1", State: "alive", Since: early, Heard: early, Unacked: 2}}, document.Node{Member: cluster.Member{Name: "n2", State: "dead", Since: late, Heard: late, Unacked: 1}})
}

func check[T any](t *testing.T, orders Orders[T], first, second T) {
	t.Helper()
	for name, compare := range orders {
		if compare(first, second) >= 0 || compare(second, first) <= 0 || compare(first, first) != 0 {
			t.Errorf("%T by %s: %d, %d", first, name, compare(first, second), compare(second, first))
		}
	}
}
