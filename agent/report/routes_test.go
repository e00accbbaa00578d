package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// with gives a holder a MAC.
func with(b detector.Binding, last byte) detector.Binding {
	b.Holder.MAC = detector.MAC{2, 0, 0, 0, 0, last}
	return b
}

func confirmed(holders ...detector.Binding) detector.Conflict {
	at := time.Now().Add(-time.Minute) // long enough ago that no facts are waited for
	return detector.Conflict{
		ID: "x-1", Key: holders[0].Key, State: detector.Confirmed, Scope: detector.CrossNode,
		SuspectedAt: at, ConfirmedAt: at, Holders: holders,
	}
}

func TestRoutes(t *testing.T) {
	// Both of this node have one MAC, and so has one of another.
	one, two := with(holding("n1", "10.0.0.1", 1), 1), with(holding("n1", "10.0.0.1", 2), 1)
	single := with(holding("n1", "10.0.0.1", 3), 3)
	far, twin := with(holding("n2", "10.0.0.1", 4), 4), with(holding("n3", "10.0.0.1", 5), 1)
	self := holding("n1", "10.0.0.1", 99)
	mac := func(last byte) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, last} }
	device := func(index int) route.Device {
		return route.Device{
			Index: index, Name: map[int]string{1: "veth1", 2: "veth2", 3: "veth3", 7: "veth7", 20: "cni0", 30: "eth0", 40: "eth1", 50: "ovn0"}[index],
			Leaves: index == 30,
		}
	}
	out := func(index int) route.Route { return route.Route{Kind: route.Out, Device: device(index)} }
	via := func(w route.Route, gateway string) route.Route {
		w.Gateway = netip.MustParseAddr(gateway)
		return w
	}
	bridge := func(last byte, port int) route.Route {
		w := out(20)
		w.Bridge = 20
		if last != 0 {
			w.MAC = mac(last)
		}
		if port != 0 {
			w.Port = device(port)
		}
		return w
	}
	over := func(w route.Route, far string) route.Route {
		w.Far = netip.MustParseAddr(far)
		return w
	}
	uplink := out(30)
	uplink.MAC = mac(4)
	unknownMAC := out(30)
	unknownMAC.MAC = mac(9)
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		route   route.Route
		want    string
	}{
		{"a route of its own", []detector.Binding{one, two}, out(2), "holder n1/2 veth2"},
		{"by its pod as the gateway", []detector.Binding{one, two}, via(out(1), "169.254.1.1"), "holder n1/1 veth1 via 169.254.1.1"},
		{"to a pod that is no holder", []detector.Binding{one, two}, out(7), "device veth7"},
		{"no neighbour entry", []detector.Binding{one, two}, bridge(0, 0), "unknown cni0"},
		{"a MAC of one", []detector.Binding{one, single}, bridge(3, 0), "holder n1/3 cni0"},
		{"a MAC of one, behind its port", []detector.Binding{one, single}, bridge(3, 3), "holder n1/3 cni0"},
		{"a MAC of both", []detector.Binding{one, two}, bridge(1, 0), "unknown cni0"},
		{"a MAC of both, behind a port", []detector.Binding{one, two}, bridge(1, 2), "holder n1/2 cni0"},
		{"a MAC of a holder behind the port of another", []detector.Binding{one, single}, bridge(1, 3), "holder n1/3 cni0"},
		{"a MAC of a holder behind the port of none", []detector.Binding{one, single}, bridge(1, 7), "device cni0"},
		{"an unknown MAC", []detector.Binding{one, single}, bridge(9, 0), "device cni0"},
		{"a MAC of another node", []detector.Binding{one, far}, bridge(4, 0), "holder n2/4 cni0"},
		{"a MAC of another node behind the uplink", []detector.Binding{one, far}, bridge(4, 30), "holder n2/4 cni0"},
		{"a MAC here and there, behind the uplink", []detector.Binding{one, twin}, bridge(1, 30), "holder n3/5 cni0"},
		{"a MAC here behind the uplink", []detector.Binding{one, far}, bridge(1, 30), "away eth0"},
		{"on the outside link", []detector.Binding{one, far}, uplink, "holder n2/4 eth0"},
		{"to an unknown MAC on the outside link", []detector.Binding{one, far}, unknownMAC, "away eth0"},
		{"to no known MAC on the outside link", []detector.Binding{one, far}, out(30), "away eth0"},
		{"off the node", []detector.Binding{one, far}, via(out(30), "192.0.2.254"), "away eth0 via 192.0.2.254"},
		{"off the node by a veth", []detector.Binding{one, far}, via(out(40), "192.0.2.254"), "away eth1 via 192.0.2.254"},
		{"off the node by a bridge", []detector.Binding{one, far}, via(bridge(0, 0), "192.0.2.254"), "device cni0 via 192.0.2.254"},
		{"to another node", []detector.Binding{one, far}, via(out(30), "192.0.2.2"), "node n2/b eth0 via 192.0.2.2"},
		{"by a VXLAN to another node", []detector.Binding{one, far}, over(via(out(30), "10.5.2.0"), "192.0.2.2"), "node n2/b eth0 via 10.5.2.0"},
		{"by a VXLAN, without a gateway", []detector.Binding{one, far}, over(uplink, "192.0.2.2"), "node n2/b eth0"},
		{"by a VXLAN elsewhere", []detector.Binding{one, far}, over(via(out(30), "10.5.2.0"), "192.0.2.99"), "away eth0 via 10.5.2.0"},
		{"to two agents' address", []detector.Binding{one, far}, via(out(30), "192.0.2.6"), "away eth0 via 192.0.2.6"},
		{"to a node that is gone", []detector.Binding{one, far}, via(out(30), "192.0.2.9"), "away eth0 via 192.0.2.9"},
		{"into a device of a switch", []detector.Binding{one, far}, out(50), "device ovn0"},
		{"to the node itself", []detector.Binding{self, far}, route.Route{Kind: route.Self}, "holder n1/99 "},
		{"to the node itself, which is no holder", []detector.Binding{one, far}, route.Route{Kind: route.Self}, "self "},
		{"nowhere", []detector.Binding{one, far}, route.Route{Kind: route.Nowhere}, "nowhere "},
	} {
		w := &routes{
			self: "n1/b", host: self.Holder.ID, remaining: 1,
			holders:  map[int]detector.HolderID{1: one.Holder.ID, 2: two.Holder.ID, 3: single.Holder.ID, 7: {Node: "n1/b", Netns: 7}},
			uplinks:  map[int]bool{40: true},
			networks: map[string]bool{"default": true}, nodes: make(map[netip.Addr]string),
			lookup: func(netip.Addr) ([]route.Route, error) { return []route.Route{test.route}, nil },
		}
		w.addMembers([]cluster.Member{
			{Name: "n1", Boot: "b", State: cluster.Alive, Address: "192.0.2.1:7951"},
			{Name: "n2", Boot: "b", State: cluster.Suspect, Address: "192.0.2.2:7951"},
			{Name: "n9", Boot: "b", State: cluster.Dead, Address: "192.0.2.9:7951"},
			{Name: "n8", Boot: "b", State: cluster.Alive, Address: "nonsense"},
			{Name: "n6", Boot: "b", State: cluster.Alive, Address: "192.0.2.6:7951"},
			{Name: "n7", Boot: "b", State: cluster.Alive, Address: "192.0.2.6:7952"},
			{Name: "n6", Boot: "b", State: cluster.Alive, Address: "192.0.2.6:7951"},
		})
		c := document.NewConflict(confirmed(test.holders...))
		r, ok := w.of(c)
		got := r.To
		switch r.To {
		case document.ToHolder:
			got += fmt.Sprintf(" %s/%d", c.Holders[*r.Holder].Node, c.Holders[*r.Holder].NetnsCookie)
		case document.ToNode:
			got += " " + r.ToNodeID()
		}
		got += " " + r.Device
		if r.Gateway.IsValid() {
			got += " via " + r.Gateway.String()
		}
		if !ok || got != test.want || r.NodeID() != "n1/b" {
			t.Errorf("%s: %s, %t; want %s", test.name, got, ok, test.want)
		}
		if _, ok := w.of(c); ok {
			t.Errorf("%s: one lookup too many", test.name)
		}
	}
}

// Routes are looked up only for confirmed conflicts, in networks that the node's routes apply to.
func TestRoutesNotLookedUp(t *testing.T) {
	r := newReport(t, nil)
	c, err := config.Parse([]byte("networks:\n  - {name: pods, scope: cluster, match: {interfaces: [cali*]}}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r.Table.Configure(c, time.Now())
	r.attach("cali1", "", "eth0", 1, 0)
	r.attach("veth2", "cni0", "eth0", 2, 100)
	r.attach("veth3", "br1", "net1", 3, 0)
	r.attach("veth4", "docker0", "eth0", 4, 0)
	r.Table.Update(links.Event{
		Kind: links.Unobserved, Unobserved: []links.Interface{{Index: 8, State: links.Unsupported}, {Index: 9, State: links.Uplink}},
	}, time.Now())
	w := r.newRoutes()
	if diff := cmp.Diff(map[string]bool{"default": true, "pods": true, "docker0": true}, w.networks); diff != "" {
		t.Errorf("networks (-want +got)\n%s", diff)
	}
	if len(w.holders) != 4 || w.holders[3].Netns != 13 || !w.uplinks[9] || len(w.uplinks) != 1 {
		t.Errorf("behind %v, uplinks %v", w.holders, w.uplinks)
	}
	lookups := 0
	w.lookup = func(netip.Addr) ([]route.Route, error) {
		lookups++
		return nil, errors.New("removed")
	}
	found := document.NewConflict(confirmed(holding("n", "10.0.0.1", 11), holding("n", "10.0.0.1", 12)))
	if _, ok := w.of(found); ok || lookups != 1 {
		t.Errorf("%d lookups, %t for a removed device", lookups, ok)
	}
	suspected, tagged := found, found
	suspected.State, tagged.Network = detector.Suspected, "default.100"
	if _, ok := w.of(suspected); ok || lookups != 1 {
		t.Error("the route of a suspicion was looked up")
	}
	if _, ok := w.of(tagged); ok || lookups != 1 {
		t.Error("the route of a VLAN was looked up")
	}
}

// attach adds an interface that has sent a packet with a tag, 0 for none.
func (r *Report) attach(name, master, peer string, index int, tag uint16) {
	r.Table.Update(links.Event{Kind: links.Added, Interface: &links.Interface{
		Name: name, FirstName: name, Index: index, Generation: uint32(index), Master: master, Seen: true,
		View: netns.View{Cookie: uint64(10 + index), Peer: peer, Taken: time.Now().Add(time.Hour)},
	}}, time.Now())
	r.Table.Record(bpf.Record{
		Kind: bpf.Announced, Address: bpf.Address{
			Ifindex: uint32(index), Generation: uint32(index), IP: netip.MustParseAddr("10.0.0.1"), VLAN: bpf.VLAN{Outer: tag},
		},
	})
}

func TestRoutesAndJudgementOfTheCluster(t *testing.T) {
	here, there := holding("n1", "10.0.0.1", 1), holding("n2", "10.0.0.1", 2)
	there.FirstSeen = here.FirstSeen.Add(time.Minute)
	there.Holder.Pod = detector.Pod{Namespace: "shop", Name: "web-1"}
	c := confirmed(here, there)
	own := document.Route{To: document.ToHolder, Holder: new(1), Device: "veth2"}
	unknownHolder := document.Route{To: document.ToDevice, Device: "cni0"}
	for _, test := range []struct {
		name   string
		from   string
		routes []document.Route
		want   string
	}{
		{"its own route", "n2", []document.Route{own}, `[{"node":"n1","boot":"b","to":"nowhere"},{"node":"n2","boot":"b","to":"holder","holder":1,"device":"veth2"}]`},
		{"two routes", "n2", []document.Route{own, unknownHolder}, `[{"node":"n1","boot":"b","to":"nowhere"},{"node":"n2","boot":"b","to":"holder","holder":1,"device":"veth2"}]`},
		{"to an unknown holder", "n2", []document.Route{unknownHolder}, `[{"node":"n1","boot":"b","to":"nowhere"},{"node":"n2","boot":"b","to":"device","device":"cni0"}]`},
		{"of a node that has no holder", "n3", []document.Route{own}, `[{"node":"n1","boot":"b","to":"nowhere"}]`},
	} {
		t.Run(test.name, func(t *testing.T) {
			o := &fakeCluster{
				members: []cluster.Member{member("n2", cluster.Alive), member("n3", cluster.Alive)},
				query: func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
					routed := document.NewConflict(c)
					routed.Routes = test.routes
					return []document.Answer{
						{Node: "n2", BootID: "b", Conflicts: []document.Conflict{document.NewConflict(c)}},
						{Node: test.from, BootID: "b", Conflicts: []document.Conflict{routed}},
					}[map[string]int{"n2": 1, "n3": 0}[test.from]:], nil, nil
				},
			}
			a := newReport(t, o)
			got, err := a.Conflicts(t.Context(), document.Query{Cluster: true})
			if err != nil || len(got.Conflicts) != 1 {
				t.Fatalf("got %+v, %v", got, err)
			}
			routes, err := json.Marshal(got.Conflicts[0].Routes)
			if err != nil || string(routes) != test.want {
				t.Errorf("routes %s, %v; want %s", routes, err, test.want)
			}
			j := got.Conflicts[0].Judgement
			if j == nil || j.Short == "" || j.Text == "" || len(j.Steps) == 0 {
				t.Fatalf("judgement %+v", j)
			}
			j.Short, j.Text, j.Steps = "", "", nil
			judgement, err := json.Marshal(j)
			const want = `{"holders":[{"holder":0,"verdict":"open"},{"holder":1,"verdict":"open"}],"cause":"unknown","confidence":"open","short":"","text":"","steps":null}`
			if err != nil || string(judgement) != want {
				t.Errorf("judgement %s, %v; want %s", judgement, err, want)
			}
		})
	}
}

// Two nodes with one name are shown with their boot ids.
func TestNamesakes(t *testing.T) {
	here, there := holding("n1", "10.0.0.1", 1), holding("n1", "10.0.0.1", 2)
	here.Holder.InterfaceName, there.Holder.InterfaceName = "veth1", "veth2"
	there.Holder.ID.Node = "n1/boot-of-the-other"
	c := confirmed(here, there)
	member := cluster.Member{Name: "n1", Boot: "boot-of-the-other", State: cluster.Alive, Address: "192.0.2.2:7951"}
	o := &fakeCluster{
		members: []cluster.Member{member},
		query: func(cluster.Query) ([]document.Answer, []cluster.Member, error) {
			routed := document.NewConflict(c)
			routed.Routes = []document.Route{{To: document.ToNode, ToNode: "n1", ToBootID: "b", Device: "eth0"}}
			story := document.NewStory(member, detector.Story{
				Key: c.Key, Conflict: &c, Bindings: c.Holders, Notes: []detector.Note{{At: here.FirstSeen, Kind: detector.NoteSeen, Holder: here.Holder}},
			})
			return []document.Answer{{Node: "n1", BootID: member.Boot, Conflicts: []document.Conflict{routed}, Stories: []document.Story{story}}}, nil, nil
		},
	}
	got, err := newReport(t, o).Conflicts(t.Context(), document.Query{Cluster: true})
	if err != nil || len(got.Conflicts) != 1 || len(got.Pairs) != 1 {
		t.Fatalf("got %+v, %v", got, err)
	}
	const old, other = "n1 (boot b)", "n1 (boot boot-of-)"
	one := got.Conflicts[0]
	if r := one.Routes[1]; r.NodeID() != member.NodeID() || r.ToNodeID() != "n1/b" || one.Holders[1].BootID != "boot-of-the-other" {
		t.Errorf("route %+v of holders %+v", r, one.Holders)
	}
	// The steps are about the machines, and no command reaches one by their name. The address of this node is unknown: it has no gossip.
	at := make(map[string]string)
	for _, step := range one.Judgement.Steps {
		if step.Node != "" {
			at[step.Node] = step.Address
		}
		if strings.Contains(step.Command, "delete") || strings.Contains(step.Command, "n1") {
			t.Errorf("%+v", step)
		}
	}
	if diff := cmp.Diff(map[string]string{old: "", other: "192.0.2.2"}, at); diff != "" || one.Judgement.Cause != document.CauseNamesakes {
		t.Errorf("cause %s, steps on (-want +got)\n%s", one.Judgement.Cause, diff)
	}
	if diff := cmp.Diff([]string{old, other}, got.Pairs[0].Nodes); diff != "" {
		t.Errorf("pair (-want +got)\n%s", diff)
	}
	story, err := newReport(t, o).Explain(t.Context(), document.Query{IP: c.Key.IP, Cluster: true})
	if err != nil || len(story.Stories) != 1 {
		t.Fatalf("got %+v, %v", story, err)
	}
	if n := story.Stories[0].Notes[0]; n.NodeID() != member.NodeID() || n.Holder == nil || n.Holder.NodeID() != "n1/b" {
		t.Errorf("note %+v", n)
	}
}

// TestAwayOfOthers: who asks may have started after the nodes of two holders had lost each other; then they say so, and the
// newest holder may be there in the other one's place. What other nodes had lost counts for nothing.
func TestAwayOfOthers(t *testing.T) {
	here, there := holding("n2", "10.0.0.1", 1), holding("n3", "10.0.0.1", 2)
	there.FirstSeen = here.FirstSeen.Add(time.Minute)
	c := confirmed(here, there)
	away := []document.Absence{{Node: "n2", BootID: "b", From: here.FirstSeen.Round(0), Until: there.FirstSeen.Add(time.Minute).Round(0)}}
	// Who asks was cut off itself, after that.
	later := cluster.Member{Name: "n2", Boot: "b", State: cluster.Alive, Address: "10.0.0.2:1", AwayFrom: there.FirstSeen.Add(time.Hour), AwayUntil: there.FirstSeen.Add(2 * time.Hour)}
	for from, want := range map[string]string{"n3": document.CauseAway, "n4": document.CauseUnknown} {
		o := &fakeCluster{
			members: []cluster.Member{later, member("n3", cluster.Alive), member("n4", cluster.Alive)},
			query: func(cluster.Query) (answers []document.Answer, _ []cluster.Member, _ error) {
				for _, name := range []string{"n2", "n3", "n4"} {
					a := document.Answer{Node: name, BootID: "b", Conflicts: []document.Conflict{document.NewConflict(c)}}
					if name == from {
						a.Absences = away
					}
					answers = append(answers, a)
				}
				return answers, nil, nil
			},
		}
		got, err := newReport(t, o).Conflicts(t.Context(), document.Query{Cluster: true})
		if err != nil || len(got.Conflicts) != 1 || got.Conflicts[0].Judgement == nil || got.Conflicts[0].Judgement.Cause != want {
			t.Errorf("from %s: %+v, %v; want %q", from, got.Conflicts[0].Judgement, err, want)
		}
	}
	members := []cluster.Member{
		{Name: "n2", Boot: "b", State: cluster.Alive, AwayFrom: away[0].From, AwayUntil: away[0].Until},
		{Name: "n4", Boot: "b", State: cluster.Alive, AwayFrom: away[0].From, AwayUntil: away[0].Until}, // no holder's
		member("n3", cluster.Alive),
	}
	if list := absences(members, []*document.Conflict{new(document.NewConflict(c))}); !slices.Equal(list, away) {
		t.Errorf("%+v, want %+v", list, away)
	}
}

func TestReplyHasRoutes(t *testing.T) {
	packed := make(chan []byte, 1)
	r := newReport(t, &fakeCluster{})
	about := func(kind cluster.QueryKind, ip string) document.Answer {
		r.Reply(cluster.Query{Answer: packed, Limit: 1 << 20, Kind: kind, IP: netip.MustParseAddr(ip)})
		a, _, err := document.DecodeAnswer(<-packed, "n1", "b", time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	reply := func(kind cluster.QueryKind) document.Answer { return about(kind, "10.0.0.1") }
	routes := func(a document.Answer) (list []document.Route) {
		for _, s := range a.Stories {
			a.Conflicts = append(a.Conflicts, *s.Conflict)
		}
		for _, c := range a.Conflicts {
			list = append(list, c.Routes...)
		}
		return list
	}
	now := time.Now()
	for range 7 {
		for netns := range uint64(2) {
			b := holding("n1", "10.0.0.1", 1+netns)
			r.Detector.Observe(detector.Sighting{Key: b.Key, Holder: b.Holder, Evidence: detector.Announced, Answer: true, At: now}, now)
		}
		r.Detector.Tick(now)
		now = now.Add(500 * time.Millisecond)
	}
	for kind, want := range map[cluster.QueryKind]int{cluster.QueryConflicts: 1, cluster.QueryStories: 1, cluster.QueryBindings: 0} {
		if got := routes(reply(kind)); len(got) != want || want == 1 && got[0].To != document.ToNowhere {
			t.Errorf("kind %d: %+v, want %d routes", kind, got, want)
		}
	}
	// One of an address without a holder on this node has this node's route.
	if a := about(cluster.QueryStories, "10.0.0.2"); len(a.Routes) != 1 || a.Routes[0].To != document.ToNowhere || reply(cluster.QueryStories).Routes != nil {
		t.Errorf("%+v", a.Routes)
	}
	// Beyond the limit, replies have no routes.
	for range maxRoutedQueries {
		r.routing.TryAcquire(1)
	}
	if a := reply(cluster.QueryConflicts); len(routes(a)) != 0 || len(a.Conflicts) != 1 {
		t.Errorf("%+v, want the conflict without routes", a)
	}
	// Before the agent is ready there is no reply.
	r.Table = observe.New(observe.Options{})
	r.Reply(cluster.Query{Answer: packed, Kind: cluster.QueryConflicts})
	if len(packed) != 0 {
		t.Error("answered before it was ready")
	}
	if err := r.Ready(t.Context()); err == nil {
		t.Error("ready before the interfaces were listed")
	}
}
