package metrics

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 250e6, time.UTC)

// answering makes a loop with constant figures.
func answering(stats LoopStats) func(context.Context) (LoopStats, error) {
	return func(context.Context) (LoopStats, error) { return stats, nil }
}

func binding(name string, pod detector.Pod, netns uint64) detector.Binding {
	return detector.Binding{
		Holder: detector.Holder{
			ID:            detector.HolderID{Node: "n1/3f0c", Netns: netns},
			InterfaceName: "veth-" + name,
			MAC:           detector.MAC{2, 0, 0, 0, 0, byte(netns)},
			NetnsName:     name,
			Pod:           pod,
		},
	}
}

func conflict(i int, state detector.State, at time.Time, holders ...detector.Binding) detector.Conflict {
	ip := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
	return detector.Conflict{
		ID:          fmt.Sprintf("%08x-1", i),
		Key:         detector.Key{Network: "default", IP: ip},
		State:       state,
		Scope:       detector.SameNode,
		SuspectedAt: at,
		Holders:     holders,
	}
}

// fine is a check of an agent that is healthy, and ready.
func fine(context.Context) error { return nil }

// nodes is a cluster.
type nodes struct {
	status  cluster.Status
	members []cluster.Member
}

func (n nodes) Status() cluster.Status    { return n.status }
func (n nodes) Members() []cluster.Member { return n.members }

// richLoop has a conflict of two named pods and a suspicion against the host.
func richLoop() LoopStats {
	d := detector.New(detector.Options{Node: "n1"})
	counts := d.Counts()
	counts.Bindings[detector.Announced] = 7
	counts.Open[detector.StateScope{State: detector.Confirmed, Scope: detector.SameNode}] = 1
	counts.Open[detector.StateScope{State: detector.Suspected, Scope: detector.PodHost}] = 1
	counts.Drills[detector.Confirmed] = 1
	counts.Confirmed[detector.SameNode] = 3
	counts.Suspected, counts.Faded, counts.Resolved = 9, 5, 2
	web := binding("web", detector.Pod{Namespace: "shop", Name: "web-0", UID: "u"}, 1)
	old := binding("old", detector.Pod{Namespace: "shop", Name: "web-1"}, 2)
	third := binding("third", detector.Pod{}, 3)
	host := binding("host", detector.Pod{}, 4)
	host.Holder.MAC = detector.MAC{}
	against := conflict(2, detector.Suspected, noon.Add(time.Minute), host, third)
	against.Scope = detector.PodHost
	against.Key.IP = netip.MustParseAddr("fd00::2")
	drill := conflict(3, detector.Confirmed, noon, web, old)
	drill.Key.IP = netip.MustParseAddr("192.0.2.7")
	counts.Suppressed = map[string]uint64{"shared": 2, "forwarded": 1, "migration": 1, "solicit: off": 0}
	return LoopStats{
		Counts: counts,
		Open:   []detector.Conflict{against, drill, conflict(1, detector.Confirmed, noon, web, old, third)},
		States: map[string]int{"attached": 22, "shadowed": 1, "unseen netns": 2, "half asleep": 1}, DADFailed: 2,
		Observed: append(refusing(21), InterfaceRefusals{
			Generation: 900, Name: "veth-loud", Netns: "cni-loud",
			Pod:     detector.Pod{Namespace: "lab", Name: "sprayer"},
			Refused: Refused{1e6, 20, 3, 4},
		}, InterfaceRefusals{Generation: 901, Name: "veth-calm"}),
		Refused:         Refused{1e6 + 21*22/2 + 1000, 20, 3, 4},
		Dropped:         map[string]uint64{"too many VLANs": 4, "evicted: table full": 5, "table full": 0},
		LeftOut:         map[string]uint64{"state file full": 3, "too many network namespaces": 0},
		Solicitations:   map[detector.Purpose]uint64{detector.Verify: 12, detector.Refresh: 34},
		Pending:         3,
		HostOmitted:     4,
		NetlinkOverruns: 1,
		ResyncFound:     map[string]uint64{"address": 2, "interface": 0},
	}
}

// rich answers for every source, each metric included.
func rich() Sources {
	return Sources{
		Version: "v1.2.3", Node: "n1", BootID: "3f0c", Attach: "tcx", Holders: true,
		Loop: answering(richLoop()),
		Cluster: nodes{
			cluster.Status{
				Members:   map[cluster.State]int{cluster.Alive: 4, cluster.Dead: 1},
				Reporters: make([]cluster.Member, 2),
				Leases:    30, Unacked: 2, Kept: 90,
				Sent:     map[string]uint64{"lease": 31, "ack": 90, "new word": 1},
				Received: map[string]uint64{"lease": 92, "conflict_notice": 1},
				Dropped:  map[string]uint64{"inbox full": 3, "unknown member": 0},
				Problems: []string{"n4 is not reached by UDP"},
			},
			[]cluster.Member{{Namesake: true}, {Namesake: true}, {}},
		},
		Pods:   func() (bool, int) { return true, 21 },
		State:  func() (time.Time, int, error) { return noon, 4096, errors.New("no space left on device") },
		Config: func() (time.Time, error) { return noon, nil },
		Notifications: func() []document.NotificationStatus {
			return []document.NotificationStatus{
				{Kind: "alertmanager", To: "http://a:9093", Sent: 12, Failed: 3}, {Kind: "alertmanager", To: "http://b:9093", Sent: 4}, {Kind: "program", To: "/bin/tell", Dropped: 2},
			}
		},
		Books: func([]detector.Conflict) BookStats {
			return BookStats{
				Findings: map[string]int{"unreserved": 2, "mismatched": 0, "unheld": 7, "in_conflict": 1, "misrouted": 4, "diverted": 2},
				Left:     []RangeLeft{{"host-local", "pods", 0.25}, {"host-local", "pods", 0.5}, {"host-local", "stor\x1bage", 1}},
			}
		},
	}
}

// refusing makes interfaces with increasing numbers of refused packets.
func refusing(n int) []InterfaceRefusals {
	list := make([]InterfaceRefusals, n)
	for i := range list {
		list[i] = InterfaceRefusals{
			Generation: uint32(i + 1),
			Name:       fmt.Sprintf("veth%03d", i),
			Netns:      fmt.Sprintf("cni-%03d", i),
			Refused:    Refused{uint64(i + 1)},
		}
	}
	return list
}

// families returns what is gathered by the name of the metric, then by its labels' values
// in the order of their names, joined by "/".
func families(t *testing.T, m *Metrics) map[string]map[string]float64 {
	t.Helper()
	gathered, err := m.gather()
	if err != nil {
		t.Fatal(err)
	}
	found := make(map[string]map[string]float64)
	for _, family := range gathered {
		series := make(map[string]float64)
		for _, metric := range family.GetMetric() {
			var labels []string
			for _, pair := range metric.GetLabel() {
				labels = append(labels, pair.GetValue())
			}
			series[strings.Join(labels, "/")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
		found[family.GetName()] = series
	}
	return found
}
