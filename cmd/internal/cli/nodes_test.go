package cli

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

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
n2             alive  50m    -            0  10.0.0.2:7951  b2
n2             alive  10m    -            0  10.0.0.9:7951  b9
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
NAME  STATE  SINCE  UNACKED  ADDRESS        BOOT
n2    alive  50m          0  10.0.0.2:7951  0d2c4b5a
n2    alive  10m          0  10.0.0.9:7951  6a60f9f1
`)
		for _, state := range []cluster.State{"alive", "dead"} { // programs find the others at the same place
			twins.Nodes[1].State = state
			p, out := printer(0)
			p.NoHeaders = true
			p.Nodes(twins)
			if fields := strings.Fields(out.String()); len(fields) != 14 || fields[3] != "-" || fields[12] != "10.0.0.9:7951" {
				t.Errorf("%s: rows of programs are\n%s", state, out)
			}
		}
		alone := document.Nodes{Node: "n1", Nodes: nodes[:1], Cluster: document.ClusterStatus{Alone: true}}
		alone.Nodes[0].Address = ""
		printed(t, func(p *Printer) { p.Nodes(alone) }, `
NAME           STATE  SINCE  UNACKED  ADDRESS
n1 (this one)  alive  60m          0
This agent is alone: it was started without --join and --bind, so duplicates on
other nodes are not found.
`)
	})
}
