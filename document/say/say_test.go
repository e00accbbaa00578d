package say

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

var update = flag.Bool("update", false, "write testdata")

var (
	noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	ip   = netip.MustParseAddr("10.0.0.5")
	at   = map[string]netip.Addr{
		"n1/aaaaaaaa-1111-4222-8333-444444444444": netip.MustParseAddr("192.168.0.1"),
		"n2/bbbbbbbb-1111-4222-8333-444444444444": netip.MustParseAddr("192.168.0.2"),
	}
)

// boots are the boot ids of nodes, by a letter.
func boot(letter string) string { return strings.Repeat(letter, 8) + "-1111-4222-8333-444444444444" }

// lines are what a step says.
func lines(s document.Step) string {
	text := "  - "
	if s.If != "" {
		text += s.If + ": "
	}
	text += s.Text
	if s.File != "" {
		text += ", in " + s.File
	}
	if s.Node != "" {
		text += " {on " + strings.TrimSpace(s.Node+" "+s.Address) + "}"
	}
	if s.Cuts != "" {
		text += " {cuts " + s.Cuts + "}"
	}
	for line := range strings.Lines(s.Command) {
		text += "\n      " + strings.TrimSuffix(line, "\n")
	}
	return text + "\n"
}

// All words in one file, for people who review them.
func TestWords(t *testing.T) {
	var out strings.Builder
	for _, s := range situations() {
		Fill(&s.c, at)
		j := s.c.Judgement
		fmt.Fprintf(&out, "## %s\nshort: %s\ntext: %s\n", s.name, j.Short, j.Text)
		for _, step := range j.Steps {
			out.WriteString(lines(step))
		}
		out.WriteString("\n")
		if len(j.Short) > 160 {
			t.Errorf("%s: a short sentence of %d bytes: %s", s.name, len(j.Short), j.Short)
		}
	}
	golden(t, "testdata/judgements.txt", out.String())
}

func golden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("%s (-want +got), -update writes it:\n%s", file, diff)
	}
}

// finding is one of a pod, or of a sandbox that is gone.
func finding(kind string) document.Finding {
	f := document.Finding{
		Kind: kind, IP: netip.MustParseAddr("10.1.2.5"), CNINetwork: "pods", Book: "host-local", Store: "/var/lib/cni/networks/pods", Since: noon,
		Holder: holder("web-0", given(yes)).Holder, Sandbox: strings.Repeat("a1", 32),
	}
	switch kind {
	case document.Mismatched:
		f.ReservedFor, f.ReservedPod = strings.Repeat("b2", 32), &document.Pod{Namespace: "shop", Name: "web-1"}
	case document.Unheld:
		f.Interface, f.Netns, f.Pod, f.Sandbox, f.Given, f.ReservedFor = "", "", nil, "", detector.GivenUnknown, strings.Repeat("c3", 32)
	case document.Unreserved:
	case document.Misrouted:
		f.Store, f.Book, f.CNINetwork, f.Sandbox, f.Holder = "", "routes", "", "", document.Holder{Node: "n2", Pod: f.Pod}
		f.HeldBy, f.Through, f.End = "n3", []string{"n1"}, document.EndsNowhere
	case document.TwoNodes:
		f.Store, f.Book, f.CNINetwork, f.Sandbox, f.HeldBy, f.Holder = "", "nodes", "", "", "n2", document.Holder{Node: "n1", Interface: "eth0", Netns: "host"}
		f.Prefix = netip.MustParsePrefix("10.1.2.5/32")
	case document.Stranger:
		f.Store, f.Book, f.CNINetwork, f.Sandbox, f.Holder = "", "nodes", "", "", document.Holder{Node: "n1", Interface: "eth0", Netns: "host"}
		f.By = detector.MAC{0x52, 0x54, 0, 1, 2, 3}
	case document.Diverted:
		f.Store, f.Book, f.CNINetwork, f.Sandbox, f.Holder = "", "routes", "", "", document.Holder{Node: "n2", Pod: f.Pod}
		f.HeldBy, f.End, f.Device, f.Route, f.Table, f.Protocol = "n3", document.EndsAtSelf, "eth0", netip.MustParsePrefix("10.1.2.0/24"), 255, "66"
	default:
		f.Store, f.Book, f.CNINetwork, f.ReservedNode = "", "calico", "default", "n3"
		f.ReservedPod = f.Pod
		f.OwnerUID = "0e1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b"
		f.Ranges, f.Pods, f.FreedBy = []string{"10.1.2.0-10.1.2.255", "10.1.2.0/24"}, 3, noon
	}
	return f
}

func TestWordsOfFindings(t *testing.T) {
	var out strings.Builder
	for _, kind := range document.FindingKinds {
		held, taken, nobody, contested := finding(kind), finding(kind), finding(kind), finding(kind)
		held.Interface, held.Pod = "veth7", &document.Pod{Namespace: "shop", Name: "web-9"}
		taken.Given, nobody.Given, contested.Contested = no, detector.GivenUnknown, true
		type named struct {
			name string
			f    document.Finding
		}
		cases := []named{{"", finding(kind)}, {", in conflict", contested}}
		switch kind {
		case document.Unheld:
			cases = append(cases, named{", and a pod has it", held})
		case document.TwoNodes:
			static, gateway := finding(kind), finding(kind)
			uplink := finding(kind)
			uplink.Gateway, uplink.Prefix = true, netip.Prefix{}
			static.Prefix, gateway.Prefix, gateway.Gateway, gateway.Interface = netip.MustParsePrefix("10.1.2.5/24"), netip.MustParsePrefix("10.1.2.5/24"), true, "cni0"
			used := gateway
			used.Pods = 3
			pod := finding(kind)
			pod.Holder = document.Holder{Node: "n1", Interface: "net1", Bridge: "eth1", Netns: "cni-1", Pod: holder("web-0").Pod}
			cases = []named{{"", finding(kind)}, {", installed so", static}, {", a gateway of pods", gateway}, {", the gateway of its own pods", used}, {", the node's own, and a gateway elsewhere", uplink}, {", of pods", pod}}
		case document.Stranger:
			pod, known := finding(kind), finding(kind)
			pod.Pod, known.HeldBy = holder("web-0").Pod, "n2"
			cases = []named{{"", finding(kind)}, {", of a pod", pod}, {", a node", known}}
		case document.Misrouted:
			cases = cases[:1]
			for _, c := range []struct {
				end     string
				through []string
			}{{document.EndsAtPods, []string{"n4", "n1"}}, {document.EndsAtPods, nil}, {document.EndsInLoop, []string{"n1", "n2"}}} {
				f := finding(kind)
				f.End, f.Through, f.Partly = c.end, c.through, len(c.through) > 1
				cases = append(cases, named{fmt.Sprintf(", %s %v", c.end, c.through), f})
			}
		case document.Diverted:
			cases = cases[:1]
			for _, c := range []struct {
				end, device, route, protocol string
				table                        int
			}{
				{document.EndsAtSelf, "docker0", "10.1.2.5/32", "kernel", 255},
				{document.EndsAtSelf, "kube-ipvs0", "10.1.2.5/32", "kernel", 255},
				{document.EndsAtSelf, "lo", "10.1.2.0/24", "kernel", 255},
				{document.EndsAtPods, "veth7", "10.1.2.5/32", "boot", 254},
				{document.EndsAtPods, "veth7", "10.1.2.5/32", "bird", 254},
				{document.EndsAtPods, "cni0", "10.1.2.0/25", "kernel", 254},
				{document.EndsAtNode, "eth0", "10.1.2.5/32", "static", 77},
				{document.EndsByProxy, "eth0", "10.1.2.5/32", "boot", 254},
				{document.EndsByProxyARP, "eth0.100", "10.1.0.0/16", "static", 254},
				{document.EndsByProxyAll, "eth0", "10.1.0.0/16", "static", 254},
				{document.EndsAtSelf, "eth0;reboot", "10.1.2.0/24", "66", 255},
				{document.EndsAtPods, "veth7", "", "", 0},
			} {
				f := finding(kind)
				f.End, f.Device, f.Table, f.Protocol, f.Partly = c.end, c.device, c.table, c.protocol, c.protocol == "bird"
				f.Route, _ = netip.ParsePrefix(c.route)
				if c.end == document.EndsAtNode {
					f.Through, f.HeldBy = []string{"n1"}, "n2"
				}
				cases = append(cases, named{fmt.Sprintf(", %s %s %s", c.end, c.device, c.protocol), f})
			}
		default:
			cases = append(cases, named{", taken by hand", taken}, named{", not known who gave it", nobody})
		}
		if azure := finding(kind); azure.Store != "" {
			azure.Book, azure.CNINetwork, azure.Store = "azure-cns", "azure", "/var/run/azure-cns/azure-endpoints.json"
			cases = append(cases, named{", of Azure CNS", azure})
		}
		for _, test := range cases {
			text, steps := Finding(test.f)
			fmt.Fprintf(&out, "## %s%s\n%s\n%s\n", kind, test.name, text, strings.Join(each(steps, lines), ""))
		}
	}
	for _, book := range []string{"azure", "cilium", "whereabouts"} {
		for _, kind := range []string{document.Misbooked, document.Stale, document.Unheld} {
			f := finding(document.Misbooked)
			f.Kind, f.Book, f.CNINetwork, f.FreedBy, f.ReservedPod = kind, book, "", time.Time{}, nil
			if kind == document.Unheld {
				f.Holder, f.ReservedPod = document.Holder{}, &document.Pod{Namespace: "shop", Name: "web-1"}
			} else if book == "whereabouts" { // it has no nodes
				continue
			}
			text, steps := Finding(f)
			fmt.Fprintf(&out, "## %s of %s\n%s\n%s\n", kind, book, text, strings.Join(each(steps, lines), ""))
		}
	}
	golden(t, "testdata/findings.txt", out.String())
}

func TestWordsOfManyConflicts(t *testing.T) {
	var out strings.Builder
	pair := func(addresses int, nodes ...string) document.Pair {
		return document.Pair{Nodes: nodes, Addresses: addresses}
	}
	between := judged(document.CauseUnknown, open, bothOpen, holder("web-0"), holder("db-11", node("b")))
	bridges := func(c document.Conflict) document.Conflict {
		c.Holders = []document.Binding{
			holder("", func(b *document.Binding) { b.Bridge = "docker1" }), holder("", node("b"), func(b *document.Binding) { b.Bridge = "docker1" }),
		}
		return c
	}
	for _, test := range []struct {
		name string
		doc  document.Conflicts
	}{
		{"a range of two nodes", document.Conflicts{Conflicts: []document.Conflict{between}, Pairs: []document.Pair{pair(40, "n1", "n2"), pair(3, "n1", "n3")}}},
		{"a range of two nodes, and a suspected conflict", document.Conflicts{
			Conflicts: []document.Conflict{with(between, func(c *document.Conflict) { c.State = detector.Suspected })}, Pairs: []document.Pair{pair(40, "n1", "n2")},
		}},
		{"a range of two nodes, and a drill", document.Conflicts{
			Conflicts: []document.Conflict{with(between, func(c *document.Conflict) { c.Drill = true })}, Pairs: []document.Pair{pair(40, "n1", "n2")},
		}},
		{"a node has addresses of four others", document.Conflicts{
			Conflicts: []document.Conflict{between}, Pairs: []document.Pair{pair(2, "n1", "n2"), pair(1, "n1", "n3"), pair(40, "n1", "n4"), pair(1, "n5", "n1"), pair(1, "n5", "n3")},
		}},
		{"four nodes share a range", document.Conflicts{
			Conflicts: []document.Conflict{between}, Pairs: []document.Pair{
				pair(9, "n1", "n2"), pair(9, "n1", "n3"), pair(9, "n1", "n4"), pair(9, "n1", "n5"), pair(9, "n2", "n3"), pair(9, "n2", "n4"), pair(9, "n2", "n5"),
				pair(9, "n3", "n4"), pair(9, "n3", "n5"), pair(9, "n4", "n5"),
			},
		}},
		{"machines of one name", document.Conflicts{Conflicts: []document.Conflict{between}, Pairs: []document.Pair{pair(40, "n1 (boot aaaaaaaa)", "n1 (boot bbbbbbbb)")}}},
		{"a range of a bridge", document.Conflicts{Conflicts: []document.Conflict{bridges(between)}, Pairs: []document.Pair{pair(40, "n1", "n2")}}},
		{"nodes without a conflict in the list", document.Conflicts{Pairs: []document.Pair{pair(40, "n1", "n2")}}},
		{"few", document.Conflicts{Conflicts: []document.Conflict{between}, Pairs: []document.Pair{pair(3, "n1", "n2")}}},
	} {
		fmt.Fprintf(&out, "## %s\n%s\n", test.name, strings.Join(each(commonSteps(test.doc), lines), ""))
	}
	golden(t, "testdata/many.txt", out.String())
}
