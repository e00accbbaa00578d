package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

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
	for name, test := range map[string]struct {
		route route.Route
		ends  bool
	}{
		"a pod":                          {out(1, 0), true},
		"a range behind a pod":           {wide(out(1, 0)), false},
		"a pod as the gateway":           {by(out(1, 0)), false},
		"another device":                 {out(9, 0), false},
		"a bridge of pods":               {out(20, 20), true},
		"a bridge of pods, and one":      {at(out(20, 20), 1), true},
		"a VLAN of a bridge of pods":     {out(25, 20), true},
		"a gateway behind a bridge":      {by(out(20, 20)), false},
		"a bridge with an uplink":        {out(21, 21), false},
		"a pod on a bridge with uplinks": {at(out(21, 21), 2), false},
		"a bridge without ports":         {out(22, 22), false},
		"nowhere":                        {route.Route{Kind: route.Nowhere}, false},
		"the node itself":                {route.Route{Kind: route.Self}, false},
	} {
		for _, policy := range []bool{false, true} {
			s := &routes{
				self: "n1/b", holders: pods, nodes: make(map[netip.Addr]string), policy: func() bool { return policy },
				ports:  func() (map[int][]int, error) { return map[int][]int{20: {1, 2}, 21: {2, 30}}, nil },
				lookup: func(netip.Addr) ([]route.Route, error) { return []route.Route{{Kind: route.Nowhere}, test.route}, nil },
			}
			legs := s.legs(netip.MustParseAddr("10.0.0.7"))
			if len(legs) != 2 || legs[1].Ends != test.ends || legs[1].Policy != policy || legs[0].Ends || legs[0].To != document.ToNowhere {
				t.Errorf("%s, %t: %+v", name, policy, legs)
			}
		}
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
