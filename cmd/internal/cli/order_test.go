package cli

import (
	"testing"
	"time"

	"github.com/dupip/dupip/agent/api"
)

// Each value of --sort-by puts first what comes first by it, whatever the others say.
func TestOrders(t *testing.T) {
	early, late := time.Unix(1, 0), time.Unix(2, 0)
	first := api.Binding{IP: "10.0.0.9", Network: "a", Node: "n1", Interface: "a", Pod: &api.Pod{Namespace: "a"}, FirstSeen: early, LastSeen: early}
	second := api.Binding{IP: "10.0.0.10", Network: "b", Node: "n2", Interface: "b", Pod: &api.Pod{Namespace: "b"}, FirstSeen: late, LastSeen: late}
	check(t, BindingOrders, first, second)
	check(t, ConflictOrders,
		api.Conflict{IP: "10.0.0.9", Network: "a", State: "confirmed", SuspectedAt: early, Holders: []api.Binding{second, first}},
		api.Conflict{IP: "10.0.0.10", Network: "b", State: "suspected", SuspectedAt: late, Holders: []api.Binding{second}})
	check(t, FindingOrders,
		api.Finding{IP: "10.0.0.9", Kind: "a", Node: "n1", Pod: first.Pod, Since: early}, api.Finding{IP: "10.0.0.10", Kind: "b", Node: "n2", Pod: second.Pod, Since: late})
	check(t, NodeOrders,
		api.Node{Name: "n1", State: "alive", Since: early, Heard: early, Unacked: 2}, api.Node{Name: "n2", State: "dead", Since: late, Heard: late, Unacked: 1})
}

func check[T any](t *testing.T, orders Orders[T], first, second T) {
	t.Helper()
	for name, compare := range orders {
		if compare(first, second) >= 0 || compare(second, first) <= 0 || compare(first, first) != 0 {
			t.Errorf("%T by %s: %d, %d", first, name, compare(first, second), compare(second, first))
		}
	}
}
