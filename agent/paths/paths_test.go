package paths

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// world is some nodes, of which n2 follows packets to an address of n3.
type world struct {
	t       *testing.T
	now     time.Time
	routes  map[string][]document.Route     // of all addresses, by node
	own     map[netip.Addr][]document.Route // of n2, if they are others
	more    []document.Binding              // that n3 has
	kept    []cluster.Lease
	silent  map[string]bool
	given   detector.Given
	pod     *document.Pod
	mine    []document.Binding // of n2
	shadows []Range
	theirs  []document.Binding // of n3, in any range
	asked   []string
	failing error
	log     strings.Builder
	*Paths
}

func id(node string) string { return cluster.NodeID(node, "boot") }

func to(node string) document.Route {
	return document.Route{To: document.ToNode, ToNode: node, ToBootID: "boot"}
}

var (
	nowhere = document.Route{To: document.ToNowhere}
	away    = document.Route{To: document.ToAway, Device: "wg0"}
	pods    = document.Route{To: document.ToDevice, Device: "veth1", Ends: true}
	ip      = netip.MustParseAddr("10.1.0.7")
)

func holder(node string) detector.HolderID { return detector.HolderID{Node: id(node), Netns: 7} }

func lease(ip netip.Addr, node string) cluster.Lease {
	return cluster.Lease{
		Key:     detector.Key{Network: config.DefaultNetwork, IP: ip},
		Binding: cluster.Binding{Holder: detector.Holder{ID: holder(node)}, Evidence: detector.Announced},
	}
}

func newWorld(t *testing.T, routes map[string][]document.Route) *world {
	w := &world{t: t, now: time.Now(), routes: routes, kept: []cluster.Lease{lease(ip, "n3")}, silent: make(map[string]bool), given: detector.GivenYes, pod: &document.Pod{Namespace: "shop", Name: "web"}}
	w.Paths = New(Options{
		Log: slog.New(slog.NewTextHandler(&w.log, nil)), Self: id("n2"),
		Kept: func(int) []cluster.Lease { return w.kept },
		View: func(context.Context, bool) (*View, error) {
			v := &View{Pods: w.mine, Own: make(map[netip.Addr]bool), Shadows: w.shadows, Routes: func(ip netip.Addr) []document.Route {
				if other := w.own[ip]; other != nil {
					return other
				}
				return w.routes["n2"]
			}}
			for _, b := range w.mine {
				v.Own[b.IP] = true
			}
			return v, w.failing
		},
		Ask: func(_ context.Context, kind cluster.QueryKind, node string, about netip.Prefix) (a document.Answer, ok bool) {
			name, ip := cluster.NodeName(node), about.Addr()
			w.asked = append(w.asked, name)
			switch {
			case w.silent[name]:
				return a, false
			case kind == cluster.QueryStories:
				return document.Answer{Routes: w.routes[name]}, true
			}
			if !about.IsSingleIP() {
				return document.Answer{Bindings: slices.Clone(w.theirs)}, true
			}
			return document.Answer{Bindings: append(slices.Clone(w.more), w.bound(ip, name))}, true
		},
	})
	return w
}

// bound is what a node says of a pod with an address.
func (w *world) bound(ip netip.Addr, node string) document.Binding {
	b := document.NewBinding(detector.Binding{Key: detector.Key{Network: config.DefaultNetwork, IP: ip}, Holder: detector.Holder{ID: holder(node), Given: w.given}})
	b.Pod = w.pod
	return b
}

// after lets time pass, with a whole pass at its end, and returns the findings.
func (w *world) after(d time.Duration) (found []string) {
	w.now = w.now.Add(d)
	_, _ = w.pass(w.t.Context(), w.now, true, true)
	for _, f := range w.Last().Findings {
		if f.Kind != document.Misrouted {
			continue
		}
		found = append(found, fmt.Sprintf("%s of %s on %s by %s: %s", f.IP, f.Pod, f.HeldBy, strings.Join(f.Through, " "), f.End))
	}
	return found
}

// twice makes the two passes that must agree.
func (w *world) twice() []string {
	w.t.Helper()
	if found := w.after(every); found != nil {
		w.t.Errorf("found by one pass: %q", found)
	}
	return w.after(every)
}

func (w *world) expect(when string, got []string, want ...string) {
	w.t.Helper()
	if !slices.Equal(got, want) {
		w.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// TestWrong: packets that do not come to the holder's node.
func TestWrong(t *testing.T) {
	for name, test := range map[string]struct {
		routes map[string][]document.Route
		want   string
	}{
		"the block's node drops them":      {map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, "n1: nowhere"},
		"they go to a pod of another node": {map[string][]document.Route{"n2": {to("n1")}, "n1": {pods}}, "n1: pods"},
		"by a relay":                       {map[string][]document.Route{"n2": {to("n4")}, "n4": {to("n1")}, "n1": {nowhere}}, "n4 n1: nowhere"},
		"there and back":                   {map[string][]document.Route{"n2": {to("n1")}, "n1": {to("n2")}}, "n1 n2: loop"},
		"round":                            {map[string][]document.Route{"n2": {to("n1")}, "n1": {to("n4")}, "n4": {to("n1")}}, "n1 n4 n1: loop"},
		"one of two legs":                  {map[string][]document.Route{"n2": {to("n3"), to("n1")}, "n1": {nowhere}}, "n1: nowhere"},
		"one leg of a relay":               {map[string][]document.Route{"n2": {to("n4")}, "n4": {to("n3"), to("n1")}, "n1": {pods}}, "n4 n1: pods"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.routes)
			want := "10.1.0.7 of shop/web on n3 by " + test.want
			w.expect("twice", w.twice(), want)
			began := w.Last().Findings[0].Since
			w.expect("later", w.after(time.Minute), want)
			if since := w.Last().Findings[0].Since; since != began || w.now.Sub(since) != time.Minute+every {
				t.Errorf("since %v, at first %v", since, began)
			}
			if lines := strings.Count(w.log.String(), "level=WARN"); lines != 1 {
				t.Errorf("%d lines: %s", lines, w.log.String())
			}
			w.kept = nil // the pod is gone
			w.expect("at the end", w.after(every))
		})
	}
}

// TestLawful: what is no finding, however often it is looked at.
func TestLawful(t *testing.T) {
	policy := func(r document.Route) document.Route {
		r.Policy = true
		return r
	}
	long := map[string][]document.Route{"n2": {to("m0")}, fmt.Sprint("m", maxHops): {nowhere}}
	for i := range maxHops {
		long[fmt.Sprint("m", i)] = []document.Route{to(fmt.Sprint("m", i+1))}
	}
	for name, test := range map[string]struct {
		routes map[string][]document.Route
		change func(*world)
		asks   bool
	}{
		"straight":                         {routes: map[string][]document.Route{"n2": {to("n3")}}},
		"ECMP":                             {routes: map[string][]document.Route{"n2": {to("n3"), to("n3")}}},
		"two uplinks, one of them unknown": {routes: map[string][]document.Route{"n2": {to("n3"), away}}},
		"a VPN":                            {routes: map[string][]document.Route{"n2": {away}}},
		"no route":                         {routes: map[string][]document.Route{"n2": {nowhere}}},
		"nothing is known":                 {routes: map[string][]document.Route{}},
		"into a network":                   {routes: map[string][]document.Route{"n2": {{To: document.ToUnknown, Device: "br0"}}}},
		"a device":                         {routes: map[string][]document.Route{"n2": {{To: document.ToDevice, Device: "tun0"}}}},
		"a relay":                          {routes: map[string][]document.Route{"n2": {to("n4")}, "n4": {to("n3")}}, asks: true},
		"a relay with a VPN":               {routes: map[string][]document.Route{"n2": {to("n4")}, "n4": {away}}, asks: true},
		"a relay's bridge with uplinks":    {routes: map[string][]document.Route{"n2": {to("n4")}, "n4": {{To: document.ToUnknown, Device: "br0"}}}, asks: true},
		"a relay that is no agent's":       {routes: map[string][]document.Route{"n2": {to("n4")}}, change: func(w *world) { w.silent["n4"] = true }, asks: true},
		"rules":                            {routes: map[string][]document.Route{"n2": {policy(to("n1"))}, "n1": {nowhere}}},
		"rules of another node":            {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {policy(nowhere)}}, asks: true},
		"too long a way":                   {routes: long, asks: true},
		"an address that a pod has taken":  {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.given = detector.GivenNo }, asks: true},
		"the pod was given others": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) {
			w.given = detector.GivenNo
			for range 2 {
				b := document.NewBinding(detector.Binding{Key: detector.Key{Network: config.DefaultNetwork, IP: ip}, Holder: detector.Holder{ID: holder("n3"), Given: detector.GivenYes}})
				b.Pod = w.pod
				w.more = append(w.more, b)
			}
			w.more[0].IP, w.more[1].Network = ip.Next(), "default.100"
		}, asks: true},
		"nobody knows who gave it": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.given = detector.GivenUnknown }, asks: true},
		"its sandbox has stopped":  {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.pod.Stopped = true }, asks: true},
		"nobody knows the pod":     {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.pod = nil }, asks: true},
		"a container, whose engine gave it": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) {
			w.pod = &document.Pod{Name: "web", UID: "0", Engine: "docker"}
		}, asks: true},
		"the holder's node is silent": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.silent["n3"] = true }, asks: true},
		"a pod of this node":          {routes: map[string][]document.Route{"n2": {pods}}, change: func(w *world) { w.kept = []cluster.Lease{lease(ip, "n2")} }},
		"another network": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) {
			w.kept[0].Key.Network = "default.100"
		}},
		"the agent is starting": {routes: map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}, change: func(w *world) { w.failing = errors.New("starting") }},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, test.routes)
			if test.change != nil {
				test.change(w)
			}
			w.twice()
			for range 20 {
				w.expect("later", w.after(every))
			}
			if (len(w.asked) > 0) != test.asks {
				t.Errorf("asked: %q", w.asked)
			}
			if n := len(w.asked); n > 5*maxHops {
				t.Errorf("%d questions in 220 s", n)
			}
			if n := len(w.Last().Unchecked); (n > 0) != (name == "rules") {
				t.Errorf("unchecked: %q", w.Last().Unchecked)
			}
		})
	}
}

// TestChange: what two passes see differently is no finding yet, and what ends is none any more.
func TestChange(t *testing.T) {
	const want = "10.1.0.7 of shop/web on n3 by n1: nowhere"
	wrong := func() map[string][]document.Route {
		return map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}}
	}
	t.Run("the route here", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.after(every)
		w.routes["n2"] = []document.Route{to("n3")}
		w.expect("repaired", w.after(every))
		w.routes["n2"] = []document.Route{to("n1")}
		w.expect("and broken again", w.twice(), want)
		w.routes["n2"] = []document.Route{to("n4")}
		w.routes["n4"] = []document.Route{nowhere}
		w.expect("elsewhere", w.twice(), strings.Replace(want, "n1", "n4", 1))
	})
	t.Run("the route there", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.after(every)
		w.routes["n1"] = []document.Route{pods}
		w.expect("another end", w.after(every))
		w.expect("twice", w.after(every), strings.Replace(want, "nowhere", "pods", 1))
		w.routes["n1"] = []document.Route{to("n3")}
		w.expect("repaired", w.after(again))
		w.routes["n1"] = []document.Route{nowhere}
		w.expect("again", w.after(2*again))
		w.expect("twice again", w.after(every), want)
	})
	t.Run("the sandbox", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.twice()
		w.pod = &document.Pod{Namespace: "shop", Name: "web", Stopped: true}
		w.expect("has stopped", w.after(again))
	})
	t.Run("the way", func(t *testing.T) {
		w := newWorld(t, map[string][]document.Route{"n2": {to("n4")}, "n4": {to("n1")}, "n1": {nowhere}, "n5": {nowhere}})
		w.after(every)
		w.routes["n4"] = []document.Route{to("n5")}
		w.expect("another one", w.after(every))
		w.expect("twice", w.after(every), strings.Replace(want, "n1", "n4 n5", 1))
	})
	t.Run("the holder", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.after(every)
		w.kept[0].Binding.Holder.ID.Netns = 8
		w.expect("the pod is another one", w.after(every))
	})
	t.Run("too early", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.after(every)
		for range 3 {
			w.expect("within 10 s", w.after(every/4))
		}
		w.expect("after them", w.after(every/4), want)
	})
	t.Run("silent for a while", func(t *testing.T) {
		w := newWorld(t, wrong())
		w.twice()
		for _, node := range []string{"n3", "n1"} {
			w.silent[node] = true
			w.expect(node+" is silent", w.after(again), want)
			w.expect(node+" is silent for long", w.after(kept))
			delete(w.silent, node)
			w.after(seldom)
			w.expect(node+" is there again", w.after(every), want)
		}
		w.silent["n1"] = true
		w.after(again)
		delete(w.silent, "n1")
		w.routes["n1"] = []document.Route{to("n3")}
		w.expect("repaired meanwhile", w.after(again))
	})
}

// TestCompared: there is a metric if some routes lead to nodes, and not before a finding could have been made.
func TestCompared(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {to("n3")}})
	for n := range 5 {
		w.after(every)
		if _, got := w.Last().Counts[document.Misrouted]; got != (n+1 >= settled) {
			t.Errorf("pass %d: %t", n+1, got)
		}
	}
	w.routes["n2"] = []document.Route{away}
	w.after(every)
	if _, compared := w.Last().Counts[document.Misrouted]; compared {
		t.Error("compared where all goes by a gateway")
	}
}

// TestHidden: of routes into Cilium's devices the audit says that they are not checked.
func TestHidden(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {{To: document.ToDevice, Device: "cilium_host"}}})
	w.twice()
	if r := w.Last(); len(r.Unchecked) != 1 || !strings.Contains(r.Unchecked[0], "Cilium") {
		t.Errorf("%+v", r)
	}
}
