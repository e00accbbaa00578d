package cli

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

func TestPrintGossip(t *testing.T) {
	for _, test := range []struct {
		cluster document.ClusterStatus
		want    string
	}{
		{
			document.ClusterStatus{Alone: true},
			"Gossip      alone: started without --join and --bind, duplicates on other nodes\n            are not found\n",
		},
		{
			document.ClusterStatus{Status: cluster.Status{
				Address: "10.0.0.1:7951", Label: "prod", Encrypted: true, Members: map[cluster.State]int{"alive": 4, "dead": 1, "left": 0},
				Leases: 30, Kept: 90,
			}},
			"Gossip      at 10.0.0.1:7951 in cluster prod, 4 alive, 1 dead; 30 leases, 0\n            unacked, 90 kept for others; encrypted\n",
		},
		{
			document.ClusterStatus{Status: cluster.Status{
				Address: "10.0.0.1:7951", Members: map[cluster.State]int{"alive": 1}, Dropped: map[string]uint64{"malformed": 3},
				Problems: []string{"the key file is not readable"},
			}},
			"Gossip      at 10.0.0.1:7951, 1 alive; 0 leases, 0 unacked, 0 kept for others;\n            NOT encrypted\n            problem: the key file is not readable\n            dropped 3 malformed\n",
		},
	} {
		p, out := printer(80)
		p.Status(document.Status{Cluster: test.cluster})
		_, got, _ := strings.Cut(out.String(), "Dropped     none\n")
		got, _, _ = strings.Cut(got, "Pod names")
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		fits(t, out.String())
	}
}

// What was left out has a line if it was anything.
func TestPrintStatusLeftOut(t *testing.T) {
	for n, want := range map[uint64]string{0: "", 3: "Left out    3 too many network namespaces\n"} {
		p, out := printer(80)
		p.Status(document.Status{LeftOut: map[string]uint64{"too many network namespaces": n, "state file full": 0}, Cluster: document.ClusterStatus{Alone: true}})
		_, got, _ := strings.Cut(out.String(), "Dropped     none\n")
		if got, _, _ = strings.Cut(got, "Gossip"); got != want {
			t.Errorf("of %d: %q, want %q", n, got, want)
		}
	}
}

// Interfaces that may be uplinks are named, with what to put into the configuration.
func TestPrintStatusUnseen(t *testing.T) {
	p, out := printer(80)
	p.Status(document.Status{Interfaces: []document.InterfaceStatus{
		{Name: "eth2", State: "attached"}, {Name: "veth1", State: "attached", Netns: "cni-1"}, {Name: "eth1", State: "uplink"},
	}})
	flat := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{"Unseen behind eth2 no network namespace is found.", "ignore: {interfaces: [eth2]}"} {
		if !strings.Contains(flat, want) {
			t.Errorf("got %s, want %q", out, want)
		}
	}
	fits(t, out.String())
}

func TestPrintStatusDADFailed(t *testing.T) {
	status := document.Status{DADFailedAddresses: 1, DADFailed: []document.DADFailed{
		{IP: netip.MustParseAddr("fd00:1::5"), Interface: "veth5", Netns: "cni-5", Pod: &document.Pod{Namespace: "shop", Name: "web-0"}},
	}}
	text := func(wide bool) string {
		p, out := printer(80)
		p.Wide = wide
		p.Status(status)
		_, got, _ := strings.Cut(out.String(), "faded\n")
		got, _, _ = strings.Cut(got, "Dropped")
		return got
	}
	if got, want := text(false), "DAD failed  1 address: fd00:1::5 (shop/web-0)\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	status.DADFailedAddresses = 104
	for n := range 4 {
		status.DADFailed = append(status.DADFailed, document.DADFailed{IP: netip.MustParseAddr(fmt.Sprintf("fd00:1::%d", 6+n)), Netns: "cni-6"})
	}
	want := "DAD failed  104 addresses: fd00:1::5 (shop/web-0), fd00:1::6 (cni-6), fd00:1::7\n            (cni-6), 101 more\n"
	if got := text(false); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := text(true); !strings.Contains(got, "fd00:1::9") || !strings.Contains(got, "99 more") {
		t.Errorf("wide: got %q, want all that are listed", got)
	}
	status.DADFailedAddresses, status.DADFailed = 0, nil
	if got := text(false); got != "" {
		t.Errorf("got %q without such addresses", got)
	}
}

// The status counts the node's own addresses that are not compared, if there are such.
func TestPrintStatusHostAddresses(t *testing.T) {
	for omitted, want := range map[int]string{0: "", 7: "Node's own  1 address; 7 more are not compared: there are too many\n"} {
		p, out := printer(80)
		p.Status(document.Status{HostAddresses: []string{"192.0.2.1"}, HostAddressesOmitted: omitted})
		_, got, _ := strings.Cut(out.String(), "faded\n")
		if got, _, _ = strings.Cut(got, "Dropped"); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// The status counts the sandboxes that are left out.
func TestPrintStatusSandboxes(t *testing.T) {
	p, out := printer(120)
	p.Status(document.Status{Runtime: document.RuntimeStatus{Connected: true, Name: "containerd", Sandboxes: 5000, SandboxesOmitted: 904}})
	if want := "5000 sandboxes, 904 of them left out: there are too many"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is missing in\n%s", want, out)
	}
}

// The status names whom the agent tells of conflicts, and why that fails.
func TestPrintStatusNotifications(t *testing.T) {
	p, out := printer(120)
	p.Status(document.Status{Notifications: []document.NotificationStatus{
		{Kind: "alertmanager", To: "http://a:9093", Sent: 3, Failed: 2, SentAt: time.Now().Add(-time.Minute), Error: "connection refused"}, {Kind: "program", To: "/bin/tell", Dropped: 1},
	}})
	for _, want := range []string{
		"Notifies    alertmanager http://a:9093: 3 sent, 2 failed, 0 dropped, the last one 60s ago; problem: connection refused\n",
		"Notifies    program /bin/tell: 0 sent, 0 failed, 1 dropped\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
}

// The status names segments that were found, and those that are not heard; wide, all of them.
func TestPrintStatusSegments(t *testing.T) {
	for _, wide := range []bool{false, true} {
		p, out := printer(120)
		p.Wide = wide
		p.Status(document.Status{Segments: []document.SegmentStatus{{Device: "eth0"}, {Device: "eth1", Inferred: true}, {Device: "eth2", Error: "no such device"}}})
		for want, is := range map[string]bool{
			"Segment     eth0, of the nodes\n": wide, `Segment     eth1, not declared under "networks": pods there are compared with those of nodes that are heard there` + "\n": true,
			"Segment     eth2, of the nodes; problem: no such device\n": true,
		} {
			if strings.Contains(out.String(), want) != is {
				t.Errorf("%q: want %t, in\n%s", want, is, out)
			}
		}
	}
}

// While the agent attaches, its status says how far it is, and does not list the interfaces that wait.
func TestStatusWhileAttaching(t *testing.T) {
	p, out := printer(80)
	p.Status(document.Status{
		ByState:    map[string]int{"attached": 118, "shadowed": 2, "pending": 128, "waiting": 2, "ignored": 3, "unseen netns": 1},
		Interfaces: []document.InterfaceStatus{{Name: "veth1", State: "pending", Reason: "its turn comes"}},
	})
	for _, want := range []string{", starting for", "Interfaces  120 of 250 interfaces observed: 118 attached"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in:\n%s", want, out.String())
		}
	}
	if strings.Contains(out.String(), "veth1") {
		t.Errorf("an interface is listed whose turn comes:\n%s", out.String())
	}
	fits(t, out.String())
}

// A reporter that has just started does not know yet what nodes observe: that is not nothing. What one node has not reported is unknown.
func TestSummaryBeforeReports(t *testing.T) {
	doc := document.Nodes{Nodes: []document.Node{
		{Member: cluster.Member{Name: "n1", State: "alive", Version: "v1"}},
		{Member: cluster.Member{Name: "n2", State: "alive", Version: "v1"}},
		{Member: cluster.Member{Name: "n3", State: "dead"}},
	}}
	printed(t, func(p *Printer) { p.Summary(doc, document.Conflicts{}, nil) }, `
Agents      2 alive; 1 dead (n3)
Versions    2 v1
Interfaces  not reported yet
Conflicts   none
`)
	doc.Nodes[0].Reported, doc.Nodes[0].Interfaces = time.Unix(1, 0), map[string]int{"attached": 3}
	printed(t, func(p *Printer) { p.Summary(doc, document.Conflicts{}, nil) }, `
Agents      2 alive; 1 dead (n3)
Versions    2 v1
Interfaces  3 attached
Findings    none
Audits      none
Unknown     interfaces and findings of n2
`)
}
