package cli

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
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

// Nodes' names without domains are enough where they tell nodes apart, whatever the domains are.
func TestNodesWithDomains(t *testing.T) {
	for _, test := range []struct{ nodes, want []string }{
		{[]string{"ip-10-0-117-201.eu-central-1.compute.internal", "ip-10-0-117-202.eu-central-1.compute.internal", "node3"}, []string{"ip-10-0-117-201", "ip-10-0-117-202", "node3"}},
		{[]string{"worker-a.zone1", "worker-a.zone2", "worker-b.zone2"}, []string{"worker-a.zone1", "worker-a.zone2", "worker-b"}},
	} {
		var holders []document.Binding
		for _, node := range test.nodes {
			holders = append(holders, holder(node, "web-0", "10.0.0.1", time.Minute))
		}
		p, _ := printer(80)
		column := tables{Printer: p}.nodeColumn(holders)
		got := each(holders, func(b document.Binding) string { return column[b.NodeID()] })
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("of %q (-want +got):\n%s", test.nodes, diff)
		}
	}
}

// A node's own address is listed once, though it is in the network of its segment, too, unless that was asked for.
func TestBindingsOnce(t *testing.T) {
	segment, pods := holder("n1", "web-0", "fd00:77::1", time.Minute), holder("n1", "web-0", "fd00:77::1", time.Minute)
	segment.Network = "192.168.77.0/24"
	other, elsewhere := segment, segment
	other.Node, elsewhere.Ifindex = "n2", 9
	for _, test := range []struct {
		bindings []document.Binding
		want     int
	}{
		{[]document.Binding{segment, pods}, 1},
		{[]document.Binding{pods, segment}, 1},
		{[]document.Binding{segment}, 1},
		{[]document.Binding{segment, pods, other}, 2},
		{[]document.Binding{segment, pods, elsewhere}, 2},
	} {
		p, out := printer(0)
		p.Bindings(document.Bindings{Bindings: test.bindings})
		if got := strings.Count(out.String(), "fd00:77::1"); got != test.want || test.want == 1 && len(test.bindings) == 2 && strings.Contains(out.String(), "192") {
			t.Errorf("%d times, want %d:\n%s", got, test.want, out)
		}
		p, out = printer(0)
		p.Wide = true
		p.Bindings(document.Bindings{Bindings: test.bindings})
		if strings.Count(out.String(), "fd00:77::1") != len(test.bindings) {
			t.Errorf("not all, wide:\n%s", out)
		}
	}
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
