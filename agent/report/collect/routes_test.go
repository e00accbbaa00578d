package collect

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// TestRoutesOfAll: an explanation has where all nodes that were asked send packets, each once, and only what a node says of itself.
func TestRoutesOfAll(t *testing.T) {
	ip, now := netip.MustParseAddr("10.0.0.7"), time.Now()
	holder := func(node string, netns uint64) document.Binding {
		return document.Binding{Network: "default", IP: ip, Holder: document.Holder{Node: node, BootID: "b", NetnsCookie: netns}, Evidence: detector.Announced, FirstSeen: now, LastSeen: now}
	}
	holders := []document.Binding{holder("n1", 1), holder("n2", 2)}
	story := func(first int) *document.Answer {
		return &document.Answer{Stories: []document.Story{{Network: "default", IP: ip, Bindings: holders, Conflict: &document.Conflict{
			ID: "x-1", Network: "default", IP: ip, State: detector.Confirmed, Scope: detector.CrossNode, SuspectedAt: now, ConfirmedAt: now, Holders: holders,
			Routes: []document.Route{{To: document.ToHolder, Holder: &first}},
		}}}}
	}
	to := func(node string) *document.Answer {
		return &document.Answer{Routes: []document.Route{{Node: "liar", To: document.ToNode, ToNode: node, ToBootID: "b", Policy: true}}}
	}
	zero := 0
	nodes := others{"n1": story(0), "n2": story(1), "n3": to("n1"), "n4": to("n1"), "n5": {Routes: []document.Route{{To: document.ToHolder, Holder: &zero}}}, "n6": {}}
	c := &Collection{Self: cluster.Member{Name: "r1", Boot: "b", Role: cluster.Reporter}}
	c.Rules = Rules(new(config.Config))
	q := document.Query{IP: ip, Cluster: true}
	if err := c.Ask(t.Context(), nodes, nodes.members(), q, cluster.QueryStories); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range c.Explanation(q).Stories[0].Conflict.Routes {
		got = append(got, fmt.Sprintf("%s to %s %s", r.Node, r.To, r.ToNode))
	}
	if want := "[n1 to holder  n2 to holder  n3 to node n1 n4 to node n1]"; fmt.Sprint(got) != want {
		t.Errorf("%q, want %s", got, want)
	}
}
