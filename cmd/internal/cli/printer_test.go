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
