package cli

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	m.Run()
}

// ago returns the time that long ago.
func ago(d time.Duration) time.Time { return time.Now().Add(-d) }

// printed compares what write prints with want, without the first newline of want.
func printed(t *testing.T, write func(p *Printer), want string) {
	t.Helper()
	p, out := printer(80)
	write(p)
	if diff := cmp.Diff(strings.TrimPrefix(want, "\n"), out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	fits(t, out.String())
}

// printer returns a Printer of a width that writes to a buffer.
func printer(width int) (*Printer, *bytes.Buffer) {
	var out bytes.Buffer
	return &Printer{Out: &out, Width: width}, &out
}

func fits(t *testing.T, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n > 80 {
			t.Errorf("a line of %d columns:\n%s", n, line)
		}
	}
}

func holder(node, pod, ip string, seen time.Duration) document.Binding {
	return document.Binding{
		Network: "default", IP: netip.MustParseAddr(ip), Holder: document.Holder{
			Node: node, Interface: "veth" + pod, Ifindex: 7, MAC: detector.MAC{2, 0, 0, 0, 0, 1}, Netns: "cni-" + pod,
			Pod: &document.Pod{Namespace: "shop", Name: pod, UID: "u-" + pod},
		},
		Evidence: detector.Announced, FirstSeen: ago(seen), LastSeen: ago(2 * time.Second),
	}
}

func between(ip string, holders ...document.Binding) document.Conflict {
	return document.Conflict{
		ID: "5f3a9b21-1", Network: "default", IP: netip.MustParseAddr(ip), State: detector.Confirmed, Scope: detector.CrossNode,
		SecondSeen: ago(21300 * time.Millisecond), SuspectedAt: ago(21200 * time.Millisecond), ConfirmedAt: ago(20 * time.Second), Holders: holders,
	}
}

// judged is a conflict with a judgement in words.
func judged(c document.Conflict) document.Conflict {
	c.Judgement = judge.Of(c, judge.Context{Now: time.Now()})
	say.Fill(&c, nil)
	return c
}

// twoPods is a judged conflict of two pods that run, on two nodes. No plugin gave the second one the address.
func twoPods(ip string) document.Conflict {
	c := between(ip, holder("n1", "web-0", ip, time.Hour), holder("n2", "web-1", ip, time.Minute))
	for n, given := range []detector.Given{detector.GivenYes, detector.GivenNo} {
		b := &c.Holders[n]
		b.Given, b.Facts, b.Pod.UID = given, &document.Facts{Behind: document.BehindRunning}, fmt.Sprintf("%08d-2222-4333-8444-555555555555", n)
	}
	c.Routes = []document.Route{{Node: "n1", To: document.ToHolder, Holder: new(0), Device: "vethweb-0"}}
	return judged(c)
}

func TestPrintBindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		alone := []document.Binding{holder("n1", "web-0", "10.0.0.1", time.Minute), holder("n1", "web-1", "10.0.0.2", time.Hour)}
		printed(t, func(p *Printer) { tables{Printer: p}.bindings(alone) }, `
IP        HOLDER      INTERFACE  EVIDENCE   FIRST SEEN  LAST SEEN
10.0.0.1  shop/web-0  vethweb-0  announced  60s         2.0s
10.0.0.2  shop/web-1  vethweb-1  announced  60m         2.0s
`)
		cluster := []document.Binding{
			holder("worker-a.zone1.example.com", "web-0", "10.0.0.1", time.Minute),
			holder("worker-b.zone1.example.com", "web-1", "10.0.0.2", time.Hour),
		}
		printed(t, func(p *Printer) { tables{Printer: p}.bindings(cluster) }, `
IP        NODE      HOLDER      INTERFACE  EVIDENCE   FIRST SEEN  LAST SEEN
10.0.0.1  worker-a  shop/web-0  vethweb-0  announced  60s         2.0s
10.0.0.2  worker-b  shop/web-1  vethweb-1  announced  60m         2.0s
`)
	})
}

func TestPrintCoverage(t *testing.T) {
	names := func(n int) (list []string) {
		for i := range n {
			list = append(list, fmt.Sprint("n", i+1))
		}
		return list
	}
	for _, test := range []struct {
		coverage document.Coverage
		want     string
	}{
		{document.Coverage{}, ""},
		{document.Coverage{Asked: 40}, ""},
		{document.Coverage{Asked: 40, Missing: []string{"n7", "n9"}, Partial: true}, "2 of 40 nodes did not answer: n7, n9; their bindings are missing.\n"},
		{document.Coverage{Asked: 40, Missing: names(11), Partial: true}, "11 of 40 nodes did not answer: n1, n2, n3, n4, n5, n6, n7, n8 and 3 more; their\nbindings are missing.\n"},
		{document.Coverage{Omitted: 7, Partial: true}, "7 bindings did not fit into the answers: give one --ip or one --node.\n"},
		{document.Coverage{Alone: true}, "This agent is alone: it was started without --join and --bind and knows its own\nnode only.\n"},
	} {
		printed(t, func(p *Printer) { p.Coverage(test.coverage, "bindings") }, test.want)
	}
}

func TestPrintConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sameNode := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n1", "web-1", "10.0.0.1", time.Minute))}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(sameNode) }, `
IP        STATE      SINCE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    shop/web-0  vethweb-0  60m
                            shop/web-1  vethweb-1  60s
`)
		// Of several nodes that were asked, it may be any.
		printed(t, func(p *Printer) {
			p.Conflicts(document.Conflicts{Conflicts: sameNode, Coverage: document.Coverage{Asked: 3}})
		}, `
IP        STATE      SINCE  NODE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1    shop/web-0  vethweb-0  60m
                            n1    shop/web-1  vethweb-1  60s

What to do:
"dupip explain IP" says what to do about 1 address, and why.
`)
		far := holder("n2", "web-1", "10.0.0.1", time.Minute)
		far.Unreachable = true
		crossNode := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), far)}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(crossNode) }, `
IP        STATE      SINCE  NODE  HOLDER      INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    n1    shop/web-0  vethweb-0  60m
                            n2 !  shop/web-1  vethweb-1  60s
! unreachable: the node does not answer, and its holders may be gone.
`)
		left := holder("n1", "web-1", "10.0.0.1", time.Minute)
		left.Evidence = detector.Configured
		weak := []document.Conflict{between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), left)}
		printed(t, func(p *Printer) { tables{Printer: p}.conflicts(weak) }, `
IP        STATE      SINCE  HOLDER        INTERFACE  FIRST SEEN
10.0.0.1  confirmed  20s    shop/web-0    vethweb-0  60m
                            shop/web-1 ~  vethweb-1  60s
~ configured: its kernel has the address; it was not seen using it lately.
`)
	})
}

// A drill is marked, and nothing is to be done about it.
func TestPrintDrill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		drill := between("192.0.2.7", holder("n1", "drill-0", "192.0.2.7", time.Minute), holder("n1", "drill-1", "192.0.2.7", time.Minute))
		drill.Drill = true
		printed(t, func(p *Printer) { p.Conflicts(document.Conflicts{Conflicts: []document.Conflict{drill}}) }, `
IP                 STATE      SINCE  HOLDER        INTERFACE    FIRST SEEN
192.0.2.7 (drill)  confirmed  20s    shop/drill-0  vethdrill-0  60s
                                     shop/drill-1  vethdrill-1  60s

What to do:
192.0.2.7: Nothing: it is a drill, which ends by itself.
`)
		many := manyConflicts(11)
		many.Conflicts = append(many.Conflicts, drill)
		p, out := printer(80)
		p.Conflicts(many)
		if !strings.Contains(out.String(), "12 conflicts: 9 confirmed, 2 suspected, 1 drill.") {
			t.Errorf("of 12 conflicts one is a drill:\n%s", out)
		}
		// The tenth that is none, with a drill, is not too many.
		many.Conflicts = many.Conflicts[1:]
		p, out = printer(80)
		p.Conflicts(many)
		if !strings.Contains(out.String(), "192.0.2.7 (drill)") {
			t.Errorf("ten conflicts and a drill:\n%s", out)
		}
		// Many drills must not hide a conflict, and the summary does not count their nodes and networks.
		drill.Holders[0].Node = "drilled"
		few := document.Conflicts{Conflicts: manyConflicts(2).Conflicts}
		for range 256 {
			few.Conflicts = append(few.Conflicts, drill)
			many.Conflicts = append(many.Conflicts, drill)
		}
		p, out = printer(80)
		p.Conflicts(few)
		if strings.Count(out.String(), "192.0.2.7 (drill)") != 3 || !strings.Contains(out.String(), "\nand 253 more drills; -o wide has all\n") {
			t.Errorf("two conflicts and 256 drills:\n%s", out)
		}
		p, out = printer(80)
		many.Conflicts = slices.Concat(manyConflicts(11).Conflicts, many.Conflicts[10:])
		p.Conflicts(many)
		if !strings.Contains(out.String(), "9 confirmed, 2 suspected, 257 drill.") || strings.Contains(out.String(), "drilled") {
			t.Errorf("many conflicts and drills:\n%s", out)
		}
	})
}

// Names and addresses of any length leave room on a line of 80 columns.
func TestLongNamesFit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ip = "fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40"
		var holders []document.Binding
		for n := range 3 {
			holders = append(holders, holder(fmt.Sprintf("ip-10-0-1-%d.eu-central-1.compute.internal", n), fmt.Sprintf("payments-reconciliation-worker-6f4c9d7b58-x%d", n), ip, time.Hour))
		}
		holders[1].Unreachable = true
		p, out := printer(80)
		tables{Printer: p}.conflicts([]document.Conflict{between(ip, holders...)})
		tables{Printer: p}.bindings(holders)
		if strings.Count(out.String(), ip) != 4 || strings.Count(out.String(), "ip-10-0-1-2") != 2 {
			t.Errorf("addresses and nodes are not whole:\n%s", out.String())
		}
		nodes := document.Nodes{}
		for _, b := range holders {
			nodes.Nodes = append(nodes.Nodes, document.Node{Member: cluster.Member{Name: b.Node, State: "suspect", Since: ago(time.Minute), Heard: ago(time.Minute), Unacked: 1000, Address: "[" + ip + "]:7951"}})
		}
		p.Nodes(nodes)
		fits(t, out.String())
	})
}

func TestPrintPairs(t *testing.T) {
	example := func(ips ...string) (list []document.Address) {
		for _, ip := range ips {
			list = append(list, document.Address{Network: "default", IP: netip.MustParseAddr(ip)})
		}
		return list
	}
	doc := document.Conflicts{
		Conflicts: []document.Conflict{{Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}, {Holder: document.Holder{Node: "n2"}}}}, {Holders: []document.Binding{{Holder: document.Holder{Node: "n1"}}, {Holder: document.Holder{Node: "n3"}}}}},
		Pairs: []document.Pair{
			{Nodes: []string{"n1", "n2"}, Addresses: 14, Examples: example("10.0.0.1", "10.0.0.2", "10.0.0.3")},
			{Nodes: []string{"n1", "n3"}, Addresses: 2, Examples: example("10.0.0.4", "10.0.0.5")}, // in the table
			{Nodes: []string{"n8", "n9"}, Addresses: 1, Examples: []document.Address{{Network: "storage", IP: netip.MustParseAddr("10.9.0.1")}}},
			{Nodes: nil, Addresses: 1},
		},
	}
	printed(t, func(p *Printer) { tables{Printer: p}.pairs(doc, MaxPairs) }, `
n1 and n2 share 14 addresses (10.0.0.1, 10.0.0.2, 10.0.0.3, …)
n8 and n9 share 1 address (10.9.0.1 (storage))

`)
	doc.Pairs = nil
	for n := range 30 {
		doc.Pairs = append(doc.Pairs, document.Pair{Nodes: []string{"n1", fmt.Sprint("n", n+2)}, Addresses: 40 - n, Examples: example("10.0.0.1")})
	}
	p, out := printer(80)
	tables{Printer: p}.pairs(doc, MaxPairs)
	if lines := strings.Count(out.String(), "\n"); lines != MaxPairs+2 || !strings.Contains(out.String(), "20 more pairs") {
		t.Errorf("%d lines:\n%s", lines, out.String())
	}
	printed(t, func(p *Printer) { tables{Printer: p}.pairs(document.Conflicts{}, MaxPairs) }, "")
}

func TestPrintNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes := []document.Node{
			{Member: cluster.Member{Name: "n1", Boot: "b1", Epoch: 11, Address: "10.0.0.1:7951", Version: "v1", Self: true, State: "alive", Since: ago(time.Hour)}},
			{Member: cluster.Member{Name: "n2", Boot: "b2", Epoch: 12, Address: "10.0.0.2:7951", Version: "v1", State: "alive", Since: ago(50 * time.Minute), Heard: ago(time.Second), Namesake: true}},
			{Member: cluster.Member{Name: "n2", Boot: "b9", Epoch: 19, Address: "10.0.0.9:7951", Version: "v1", State: "alive", Since: ago(10 * time.Minute), Heard: ago(time.Second), Namesake: true}},
			{Member: cluster.Member{Name: "n3", Boot: "b3", Epoch: 13, Address: "10.0.0.3:7951", Version: "v0", State: "dead", Since: ago(30 * time.Second), Heard: ago(45 * time.Second), Unacked: 12}},
		}
		doc := document.Nodes{Node: "n1", Nodes: nodes, Cluster: document.ClusterStatus{Status: cluster.Status{Problems: []string{"n4 is not reached by UDP: allow port 7951"}}}}
		printed(t, func(p *Printer) { p.Nodes(doc) }, `
NAME           STATE  SINCE  HEARD  UNACKED  ADDRESS        BOOT
n1 (this one)  alive  60m    -            0  10.0.0.1:7951  b1
n2             alive  50m    1.0s         0  10.0.0.2:7951  b2
n2             alive  10m    1.0s         0  10.0.0.9:7951  b9
n3             dead   30s    45s         12  10.0.0.3:7951  b3
Problem: n4 is not reached by UDP: allow port 7951
`)
		printed(t, func(p *Printer) { p.Wide = true; p.Nodes(doc) }, `
NAME           STATE  SINCE  HEARD  UNACKED  ADDRESS        BOOT  EPOCH  VERSION
n1 (this one)  alive  60m    -            0  10.0.0.1:7951  b1       11  v1
n2             alive  50m    1.0s         0  10.0.0.2:7951  b2       12  v1
n2             alive  10m    1.0s         0  10.0.0.9:7951  b9       19  v1
n3             dead   30s    45s         12  10.0.0.3:7951  b3       13  v0
Problem: n4 is not reached by UDP: allow port 7951
`)
		twins := document.Nodes{Node: "n2", Nodes: slices.Clone(nodes[1:3])}
		twins.Nodes[0].Boot, twins.Nodes[1].Boot = "0d2c4b5a-8f5e-4c1e-a7c1-000000000001", "6a60f9f1-8f5e-4c1e-a7c1-000000000002"
		printed(t, func(p *Printer) { p.Nodes(twins) }, `
NAME  STATE  SINCE  HEARD  UNACKED  ADDRESS        BOOT
n2    alive  50m    1.0s         0  10.0.0.2:7951  0d2c4b5a
n2    alive  10m    1.0s         0  10.0.0.9:7951  6a60f9f1
`)
		alone := document.Nodes{Node: "n1", Nodes: nodes[:1], Cluster: document.ClusterStatus{Alone: true}}
		alone.Nodes[0].Address = ""
		printed(t, func(p *Printer) { p.Nodes(alone) }, `
NAME           STATE  SINCE  HEARD  UNACKED  ADDRESS
n1 (this one)  alive  60m    -            0
This agent is alone: it was started without --join and --bind, so duplicates on
other nodes are not found.
`)
	})
}

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

func TestWho(t *testing.T) {
	for want, b := range map[string]document.Binding{
		"shop/web":      {Holder: document.Holder{Pod: &document.Pod{Namespace: "shop", Name: "web"}, Netns: "cni-1", NetnsCookie: 7}},
		"cni-1":         {Holder: document.Holder{Netns: "cni-1", NetnsCookie: 7}},
		"(no name yet)": {Holder: document.Holder{NetnsCookie: 7}},
		"unseen netns":  {Holder: document.Holder{Ifindex: 3}},
	} {
		if got := say.Who(b); got != want {
			t.Errorf("%+v is %q, want %q", b, got, want)
		}
	}
}
