package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/paths"
	"github.com/dupip/dupip/agent/report/route"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// TestLegs: which routes lead to pods of the node only, and whether rules look at more than the destination.
func TestLegs(t *testing.T) {
	pods := map[int]detector.HolderID{1: {Netns: 1}, 2: {Netns: 2}}
	out := func(index, bridge int) route.Route {
		return route.Route{Kind: route.Out, Device: route.Device{Index: index, Name: fmt.Sprint("dev", index)}, Bridge: bridge, Single: bridge == 0}
	}
	by := func(r route.Route) route.Route {
		r.Gateway = netip.MustParseAddr("192.0.2.254")
		return r
	}
	wide := func(r route.Route) route.Route {
		r.Single = false
		return r
	}
	at := func(r route.Route, port int) route.Route {
		r.MAC, r.Port = []byte{2, 0, 0, 0, 0, 1}, route.Device{Index: port}
		return r
	}
	const nobody, one, another = 0, 1, 3 // who has the address
	for name, test := range map[string]struct {
		route route.Route
		ends  bool
		has   int
	}{
		"a pod":                          {out(1, 0), true, nobody},
		"a range behind a pod":           {wide(out(1, 0)), false, nobody},
		"a pod as the gateway":           {by(out(1, 0)), false, nobody},
		"another device":                 {out(9, 0), false, nobody},
		"a bridge of pods":               {out(20, 20), true, nobody},
		"a bridge of pods, and one":      {at(out(20, 20), 1), true, nobody},
		"a VLAN of a bridge of pods":     {out(25, 20), true, nobody},
		"a gateway behind a bridge":      {by(out(20, 20)), false, nobody},
		"a bridge with an uplink":        {out(21, 21), false, nobody},
		"a pod on a bridge with uplinks": {at(out(21, 21), 2), false, nobody},
		"a bridge without ports":         {out(22, 22), false, nobody},
		"nowhere":                        {route.Route{Kind: route.Nowhere}, false, nobody},
		"the node itself":                {route.Route{Kind: route.Self}, false, nobody},
		"its own pod":                    {out(1, 0), false, one},
		"another pod than its own":       {out(1, 0), true, another},
		"a range behind its pod":         {wide(out(1, 0)), false, one},
		"a bridge with its pod":          {out(20, 20), false, one},
		"a bridge of other pods":         {out(20, 20), true, another},
	} {
		for _, policy := range []bool{false, true} {
			s := &routes{
				self: "n1/b", holders: pods, nodes: make(map[netip.Addr]string), own: make(map[netip.Addr]detector.HolderID), policy: func() bool { return policy },
				proxies: func() *route.Proxies { return &route.Proxies{} },
				ports:   func() (map[int][]int, error) { return map[int][]int{20: {1, 2}, 21: {2, 30}}, nil },
				lookup:  func(netip.Addr) ([]route.Route, error) { return []route.Route{{Kind: route.Nowhere}, test.route}, nil },
			}
			if test.has != nobody {
				s.own[netip.MustParseAddr("10.0.0.7")] = detector.HolderID{Netns: uint64(test.has)}
			}
			legs := s.legs(netip.MustParseAddr("10.0.0.7"))
			if len(legs) != 2 || legs[1].Ends != test.ends || legs[1].Policy != policy || legs[0].Ends || legs[0].To != document.ToNowhere {
				t.Errorf("%s, %t: %+v", name, policy, legs)
			}
		}
	}
}

// TestShadows: which routes take a part of what another one sends to a node.
func TestShadows(t *testing.T) {
	const local = true
	n2, n3 := netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")
	around := []string{"10.60.2.0/24 n2", "10.60.0.0/16 n3", "172.17.0.0/24 n2", "fd60:2::/64 n2", "10.61.0.0/16 other", "0.0.0.0/0 n3"}
	for name, test := range map[string]struct {
		prefix string
		local  bool
		index  int
		via    string
		want   string
	}{
		"docker0 beside a pod":          {"172.17.0.1/32", local, 9, "", "n2/b"},
		"docker0's broadcast range":     {"172.17.0.0/16", !local, 9, "", ""},
		"a Service's address":           {"10.60.2.7/32", local, 9, "", "n2/b"},
		"a Service's IPv6 address":      {"fd60:2::7/128", local, 9, "", "n2/b"},
		"in the wider range":            {"10.60.3.7/32", local, 9, "", "n3/b"},
		"a local range":                 {"10.60.2.0/24", local, 9, "", "n2/b"},
		"a stale route to a pod":        {"10.60.2.7/32", !local, 5, "", "n2/b"},
		"that the pod has":              {"10.60.2.8/32", !local, 5, "", ""},
		"a range behind a pod":          {"10.60.2.0/25", !local, 5, "", ""},
		"a bridge of pods":              {"10.60.2.0/25", !local, 20, "", "n2/b"},
		"a bridge with an uplink":       {"10.60.2.0/25", !local, 21, "", ""},
		"a tunnel":                      {"10.60.2.7/32", !local, 9, "", ""},
		"a borrowed address":            {"10.60.2.9/32", !local, 9, "n3", ""},
		"to a gateway":                  {"10.60.2.9/32", !local, 9, "other", ""},
		"beside no node's range":        {"10.62.0.1/32", local, 9, "", ""},
		"in a range of a gateway":       {"10.61.0.1/32", local, 9, "", ""},
		"loopback":                      {"127.0.0.0/8", local, 9, "", ""},
		"a multicast or link-local one": {"169.254.20.10/32", local, 9, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			hops := map[string]netip.Addr{"n2": n2, "n3": n3, "other": netip.MustParseAddr("192.0.2.254"), "": {}}
			s := &routes{
				self: "n1/b", nodes: map[netip.Addr]string{n2: "n2/b", n3: "n3/b"}, holders: map[int]detector.HolderID{5: {Netns: 1}, 6: {Netns: 2}},
				own:   map[netip.Addr]detector.HolderID{netip.MustParseAddr("10.60.2.8"): {Netns: 1}},
				ports: func() (map[int][]int, error) { return map[int][]int{20: {5, 6}, 21: {6, 30}}, nil },
				tables: func(f func(route.Entry)) (bool, error) {
					f(route.Entry{Prefix: netip.MustParsePrefix(test.prefix), Local: test.local, Index: test.index, Gateway: hops[test.via]})
					for _, line := range around {
						prefix, node, _ := strings.Cut(line, " ")
						f(route.Entry{Prefix: netip.MustParsePrefix(prefix), Index: 1, Gateway: hops[node]}) // the index of lo, which every machine has
					}
					return true, nil
				},
			}
			list, whole := s.shadows()
			var want []paths.Range
			if test.want != "" {
				want = []paths.Range{{Node: test.want, Prefix: netip.MustParsePrefix(test.prefix)}}
			}
			if !whole || !slices.Equal(list, want) {
				t.Errorf("%v, want %v", list, want)
			}
		})
	}
}

func (o *fakeCluster) Kept(int) []cluster.Lease { return o.kept }

// TestMisrouted: what is found by following packets is in the audit, the metrics and the summary, and ends there.
func TestMisrouted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(30 * 365 * 24 * time.Hour) // the bubble begins in 2000, and documents have no times of then
		ip, b := netip.MustParseAddr("10.0.0.7"), holding("n3", "10.0.0.7", 7)
		b.Holder.Given, b.Holder.Pod = detector.GivenYes, detector.Pod{Namespace: "shop", Name: "web"}
		o := &fakeCluster{kept: []cluster.Lease{{Key: b.Key, Binding: cluster.Binding{Holder: b.Holder, Evidence: detector.Announced}}}}
		for n, name := range []string{"n2", "n3"} {
			m := member(name, cluster.Alive)
			m.Address = fmt.Sprintf("192.0.2.%d:7951", n+2)
			o.members = append(o.members, m)
		}
		o.query = func(q cluster.Query) ([]document.Answer, []cluster.Member, error) {
			a := document.Answer{Node: q.Node, BootID: "b"}
			switch {
			case q.IP != ip:
				t.Errorf("asked about %v", q.IP)
			case q.Kind == cluster.QueryStories:
				a.Routes = []document.Route{{To: document.ToNowhere}}
			default:
				a.Bindings = []document.Binding{document.NewBinding(b)}
			}
			other := a // a namesake, which says something else
			other.BootID, other.Routes, other.Bindings = "c", nil, nil
			return []document.Answer{a, other}, nil, nil
		}
		r := newReport(t, o)
		var mu sync.Mutex // of the parts, and of hop
		r.Do = func(_ context.Context, f func()) error {
			mu.Lock()
			defer mu.Unlock()
			f()
			return nil
		}
		r.watch = func(context.Context) (<-chan struct{}, error) { return nil, nil } // the bubble knows no sockets
		hop := netip.MustParseAddr("192.0.2.2")
		r.lookup = func(netip.Addr) ([]route.Route, error) {
			mu.Lock()
			defer mu.Unlock()
			return []route.Route{{Kind: route.Out, Device: route.Device{Index: 9, Leaves: true}, Gateway: hop}}, nil
		}
		check := func(when string, want ...string) {
			t.Helper()
			mu.Lock()
			defer mu.Unlock()
			var got []string
			doc := r.ownAudit()
			for _, f := range doc.Findings {
				got = append(got, fmt.Sprintf("%s %s %s: %s to %v, %s", f.Node, f.Kind, f.IP, f.HeldBy, f.Through, f.End))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
			stats := r.bookStats(nil)
			if n, compared := stats.Findings[document.Misrouted]; n != len(want) || compared != (when != "after one look") || stats.Findings[document.Unreserved] != 0 {
				t.Errorf("%s: the metrics have %v", when, stats.Findings)
			}
			if n := r.summary().Findings["misrouted address"]; n != len(want) {
				t.Errorf("%s: the summary has %d", when, n)
			}
		}
		if _, compared := r.bookStats(nil).Findings[document.Misrouted]; compared {
			t.Error("the metrics have a kind that nobody looked for")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.FollowPaths(ctx)
		after := func(d time.Duration) {
			time.Sleep(d) // of the bubble
			synctest.Wait()
		}
		after(11 * time.Second)
		check("after one look")
		after(10 * time.Second)
		check("after two", "n1 misrouted 10.0.0.7: n3 to [n2], nowhere")
		for _, q := range []document.Query{{Prefix: netip.MustParsePrefix("10.9.0.0/16")}, {Pod: "other"}} {
			if a := r.findings(cluster.Query{Only: cluster.Only{Prefix: q.Prefix, Pod: q.Pod}}); len(a.Findings) != 0 {
				t.Errorf("%+v selects %+v", q, a.Findings)
			}
		}
		mu.Lock()
		hop = netip.MustParseAddr("192.0.2.3")
		mu.Unlock()
		after(10 * time.Second)
		check("after its end")
	})
}
