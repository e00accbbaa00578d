package cli

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// manyConflicts is a document of n conflicts of several nodes, networks and states.
func manyConflicts(n int) (doc document.Conflicts) {
	for n := range n {
		c := twoPods(fmt.Sprintf("10.1.%d.%d", n/200, n%200))
		for i := range c.Holders {
			c.Holders[i].Node = fmt.Sprintf("worker-%d.zone-%d.example.com", (n*(i+1))%12, i)
			c.Holders[i].BootID = fmt.Sprint("boot-", n%12)
			c.Holders[i].Pod = &document.Pod{Namespace: "payments", Name: fmt.Sprintf("reconciliation-worker-6f4c9d7b58-%d-%d", n, i)}
		}
		switch {
		case n%7 == 3:
			c.State = detector.Suspected
		case n%5 == 4:
			c.Holders[1].Facts = &document.Facts{Behind: document.BehindStopped}
			c.Holders[1].Pod.Sandbox = fmt.Sprintf("%013x", n)
		case n%5 == 2:
			c.Holders[1].Unreachable = true
		case n%5 == 1:
			c.Holders[1].Given = detector.GivenYes
		}
		if n%10 == 9 {
			c.Network = "storage"
		}
		if c.Judgement = nil; n <= 64 {
			c = judged(c)
		}
		doc.Conflicts = append(doc.Conflicts, c)
	}
	for n := range 6 {
		doc.Pairs = append(doc.Pairs, document.Pair{
			Nodes: []string{"worker-1.zone-0.example.com", fmt.Sprintf("worker-%d.zone-1.example.com", n)}, Addresses: 40 - n,
			Examples: []document.Address{{Network: "default", IP: netip.MustParseAddr("10.1.0.1")}, {Network: "default", IP: netip.MustParseAddr("10.1.0.13")}, {Network: "default", IP: netip.MustParseAddr("10.1.0.25")}},
		})
	}
	return doc
}

// TestMany: 500 conflicts fit one screen, and its counts are those of the document.
func TestMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := manyConflicts(500)
		crowded := manyConflicts(500)
		for n := range 20 {
			crowded.Conflicts[0].Holders = append(crowded.Conflicts[0].Holders, holder("worker-1", fmt.Sprint("third-", n), "10.1.0.0", time.Hour))
		}
		for _, doc := range []document.Conflicts{doc, crowded} {
			for _, width := range []int{80, 120, 200} {
				p, out := printer(width)
				p.Conflicts(doc)
				if n := strings.Count(out.String(), "\n"); n > 23 { // and a prompt
					t.Errorf("%d lines of %d columns:\n%s", n, width, out)
				}
				if strings.Contains(out.String(), "10.1.0.0 has 19 more holders.") != (len(doc.Conflicts[0].Holders) == 22) {
					t.Errorf("the holders that are not listed are not counted:\n%s", out)
				}
			}
		}
		p, out := printer(0)
		p.Conflicts(doc)
		count := func(pattern string) int {
			match := regexp.MustCompile(pattern).FindStringSubmatch(out.String())
			if match == nil {
				t.Fatalf("no %s in\n%s", pattern, out)
			}
			n, _ := strconv.Atoi(match[1])
			return n
		}
		want := make(map[string]int)
		for _, c := range doc.Conflicts {
			want[c.State.String()]++
			want[c.Network]++
			for n, b := range c.Holders {
				if n == 0 || c.Holders[0].Node != b.Node || c.Holders[0].BootID != b.BootID {
					want[b.Node]++
				}
			}
		}
		for pattern, want := range map[string]int{
			`^(\d+) conflicts: `: 500, `(\d+) confirmed`: want["confirmed"], `(\d+) suspected[.]`: want["suspected"],
			`By network +default (\d+)`: want["default"], `storage (\d+)`: want["storage"], `By node +worker-0.zone-0.example.com (\d+)`: want["worker-0.zone-0.example.com"],
		} {
			if got := count(pattern); got != want {
				t.Errorf("%s: %d, want %d\n%s", pattern, got, want, out)
			}
		}
		p.Wide = true
		out.Reset()
		p.Conflicts(doc)
		for _, c := range doc.Conflicts {
			if !strings.Contains(out.String(), c.IP.String()+" ") {
				t.Errorf("-o wide lacks %s", c.IP)
			}
		}
	})
}

// TestManyOfOne: few open conflicts are listed, also with a long history.
func TestManyOfOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		doc := manyConflicts(30)
		for n := range doc.Conflicts[10:] {
			doc.Conflicts[10+n].State, doc.Conflicts[10+n].ResolvedAt = detector.Resolved, time.Now()
		}
		p, out := printer(80)
		p.Conflicts(doc)
		if n := strings.Count(out.String(), "\n10.1.0."); n < 30 || strings.Contains(out.String(), "By node") {
			t.Errorf("%d conflicts are listed:\n%s", n, out)
		}
	})
}
