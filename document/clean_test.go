package document

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector/cluster"
)

// No text of a document moves the cursor or changes the direction of writing.
func TestSanitize(t *testing.T) {
	const evil = "a\x1b[2J\r\nb\u202e\xff"
	const tame = "a?[2J??b??"
	now := time.Now()
	got := Conflicts{
		Node: evil,
		Conflicts: []Conflict{{
			ID: evil, SuspectedAt: now, Holders: []Binding{{Holder: Holder{Node: evil, Netns: evil, Ifindex: 3, Pod: &Pod{Namespace: evil, Name: evil}}}, {}},
			Routes: []Route{{Gateway: netip.MustParseAddr("fe80::1%" + evil)}},
		}},
		Pairs:    []Pair{{Nodes: []string{evil}, Examples: []Address{{Network: evil}}}},
		Coverage: Coverage{Missing: []string{evil}},
	}
	Sanitize(&got)
	want := Conflicts{
		Node: tame,
		Conflicts: []Conflict{{
			ID: tame, SuspectedAt: now, Holders: []Binding{{Holder: Holder{Node: tame, Netns: tame, Ifindex: 3, Pod: &Pod{Namespace: tame, Name: tame}}}, {}},
			Routes: []Route{{Gateway: netip.MustParseAddr("fe80::1%" + tame)}},
		}},
		Pairs:    []Pair{{Nodes: []string{tame}, Examples: []Address{{Network: tame}}}},
		Coverage: Coverage{Missing: []string{tame}},
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	status := Status{Cluster: ClusterStatus{Status: cluster.Status{Dropped: map[string]uint64{evil: 3, "fine": 1}, Problems: []string{evil}}}}
	Sanitize(&status)
	if diff := cmp.Diff(map[string]uint64{tame: 3, "fine": 1}, status.Cluster.Dropped); diff != "" || status.Cluster.Problems[0] != tame {
		t.Errorf("problems %q, dropped (-want +got):\n%s", status.Cluster.Problems, diff)
	}
}
