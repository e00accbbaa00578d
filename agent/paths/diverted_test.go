package paths

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

var (
	block = netip.MustParsePrefix("10.1.0.0/24")
	self  = document.Route{To: document.ToSelf, Device: "eth0", Prefix: block, Table: 255, Protocol: "boot"}
	wide  = func(to document.Route) document.Route { to.Prefix = block; return to }
	host  = document.Route{To: document.ToDevice, Device: "veth1", Ends: true, Prefix: netip.PrefixFrom(ip, 32), Table: 254, Protocol: "static"}
)

func proxying(r document.Route) document.Route {
	r.Proxy, r.ProxyBy = "eth0", document.EndsByProxyARP
	return r
}

// glance lets time pass, with a pass at its end as after a change, and returns what is diverted.
func (w *world) glance(d time.Duration) (found []string) {
	w.now = w.now.Add(d)
	_, _ = w.pass(w.t.Context(), w.now, false, true)
	return w.diverted()
}

func (w *world) diverted() (found []string) {
	for _, f := range w.Last().Findings {
		if f.Kind == document.Diverted {
			found = append(found, strings.TrimSpace(fmt.Sprintf("%s of %s on %s: %s %s %s", f.IP, f.Pod, f.HeldBy, f.End, f.Device, strings.Join(f.Through, " "))))
		}
	}
	return found
}

// newDiverting is n2 with a pod, n3 with another one, and these routes of n2 to one of them.
func newDiverting(t *testing.T, own, kept, shadow bool, routes ...document.Route) *world {
	w := newWorld(t, map[string][]document.Route{"n2": routes})
	w.kept, w.theirs = nil, []document.Binding{w.bound(ip, "n3")}
	if own {
		w.mine = []document.Binding{w.bound(ip, "n2")}
		w.mine[0].Ifindex = 5
	}
	if kept {
		w.kept = []cluster.Lease{lease(ip, "n3")}
	}
	if shadow {
		w.shadows = []Range{{id("n3"), block}}
	}
	return w
}

// TestDiverted: what the node's own kernel does, of its own pod's address (D1), one that it keeps (D2), and one in a shadow (D3).
func TestDiverted(t *testing.T) {
	relay := wide(to("n3"))
	for name, test := range map[string]struct {
		routes         []document.Route
		own, other     string
		asks, isPartly bool
	}{
		"local":                          {routes: []document.Route{self}, own: "self eth0", other: "self eth0"},
		"another node":                   {routes: []document.Route{wide(to("n1"))}, own: "node  n1"},
		"another pod":                    {routes: []document.Route{host}, own: "pods veth1", other: "pods veth1"},
		"another pod, with rules":        {routes: []document.Route{func(r document.Route) document.Route { r.Policy = true; return r }(host)}, own: "pods veth1", other: "pods veth1"},
		"one of two legs":                {routes: []document.Route{{To: document.ToAway}, host}, own: "pods veth1", other: "pods veth1", isPartly: true},
		"a proxy before a VPN":           {routes: []document.Route{proxying(away)}, other: "proxy_arp eth0"},
		"a proxy that relays":            {routes: []document.Route{proxying(relay)}, own: "node  n3"},
		"a proxy that relays wrongly":    {routes: []document.Route{proxying(wide(to("n1")))}, own: "node  n1", other: "proxy_arp eth0"},
		"to its node":                    {routes: []document.Route{relay}, own: "node  n3"},
		"ECMP to its node":               {routes: []document.Route{relay, relay}, own: "node  n3", isPartly: true},
		"a gateway that is a node":       {routes: []document.Route{to("n1")}},
		"a VPN":                          {routes: []document.Route{away}},
		"no route, or a blackhole":       {routes: []document.Route{nowhere}},
		"nothing is known":               {},
		"a bridge with an uplink":        {routes: []document.Route{{To: document.ToUnknown, Device: "br0"}}},
		"Cilium's, Antrea's, OVN's, ENI": {routes: []document.Route{{To: document.ToDevice, Device: "cilium_host"}}},
		"its own host end":               {routes: []document.Route{{To: document.ToDevice, Device: "veth7"}}},
	} {
		for n, want := range []string{test.own, test.other, test.other} {
			t.Run(fmt.Sprint(name, ", D", n+1), func(t *testing.T) {
				w := newDiverting(t, n == 0, n == 1, n == 2, test.routes...)
				where := "n3"
				if n == 0 {
					where = "n2"
				}
				if found := w.glance(every); found != nil {
					t.Errorf("after one look: %q", found)
				}
				if found := w.glance(rest / 2); found != nil {
					t.Errorf("after half a second: %q", found)
				}
				var all []string
				if want != "" {
					all = []string{"10.1.0.7 of shop/web on " + where + ": " + want}
				}
				w.expect("after a second", w.glance(rest), all...)
				w.after(every)
				w.expect("later", w.diverted(), all...)
				if n == 0 && len(w.asked) > 0 && want != "" {
					t.Errorf("asked about an own pod: %q", w.asked)
				}
				for _, f := range w.Last().Findings {
					if f.Kind == document.Diverted && f.Partly != test.isPartly {
						t.Errorf("partly is %t", f.Partly)
					}
				}
				if want == "" {
					return
				}
				if lines := strings.Count(w.log.String(), "level=WARN"); lines != 1 {
					t.Errorf("%d lines: %s", lines, w.log.String())
				}
				w.routes["n2"] = []document.Route{away}
				w.expect("at the end", w.glance(rest))
			})
		}
	}
}

// TestNotDiverted: whose address it is, and whether it has to be routed, only the node of the pod says.
func TestNotDiverted(t *testing.T) {
	for name, change := range map[string]func(*world){
		"nobody has it":                 func(w *world) { w.theirs = nil },
		"it was taken by hand":          func(w *world) { w.theirs[0].Given = detector.GivenNo },
		"nobody knows who gave it":      func(w *world) { w.theirs[0].Given = detector.GivenUnknown },
		"a container":                   func(w *world) { w.theirs[0].Pod = &document.Pod{Name: "web", UID: "0", Engine: "docker"} },
		"it has stopped":                func(w *world) { w.theirs[0].Pod = &document.Pod{Namespace: "shop", Name: "web", Stopped: true} },
		"nobody knows the pod":          func(w *world) { w.theirs[0].Pod = nil },
		"another network":               func(w *world) { w.theirs[0].Network = "default.100" },
		"outside of what was asked":     func(w *world) { w.theirs[0].IP = netip.MustParseAddr("10.2.0.7") },
		"the node is silent":            func(w *world) { w.silent["n3"] = true },
		"this node has it, too":         func(w *world) { w.mine = []document.Binding{w.bound(ip, "n2")}; w.mine[0].Given = detector.GivenNo },
		"the agent is starting":         func(w *world) { w.failing = fmt.Errorf("starting") },
		"it ends before the second one": func(w *world) { w.glance(every); w.theirs = nil },
		"it is given only later, by CNI": func(w *world) {
			w.theirs[0].Given = detector.GivenUnknown
			w.glance(rest)
			w.glance(rest)
			w.theirs[0].Given = detector.GivenNo
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newDiverting(t, false, false, true, self)
			change(w)
			for range 100 {
				w.expect("soon", w.glance(rest))
			}
			for range 20 {
				w.after(every)
				w.expect("later", w.diverted())
			}
			if n := len(w.asked); n > 20 {
				t.Errorf("%d questions in five minutes", n)
			}
		})
	}
}

// TestDivertedChange: another pod, another route and another look begin anew; silence ends nothing for a while.
func TestDivertedChange(t *testing.T) {
	const want = "10.1.0.7 of shop/web on n3: self eth0"
	w := newDiverting(t, false, false, true, self)
	w.glance(every)
	w.theirs[0].NetnsCookie++
	w.expect("another pod", w.glance(rest))
	w.expect("twice", w.glance(rest), want)
	began := w.Last().Findings[0].Since
	w.routes["n2"] = []document.Route{host}
	w.expect("another route", w.glance(rest))
	w.glance(rest)
	w.expect("twice", w.diverted(), "10.1.0.7 of shop/web on n3: pods veth1")
	if since := w.Last().Findings[0].Since; !since.After(began) {
		t.Errorf("since %v, before %v", since, began)
	}
	w.silent["n3"] = true
	w.after(askAgain)
	w.expect("silent", w.diverted(), "10.1.0.7 of shop/web on n3: pods veth1")
	w.after(kept)
	w.after(askAgain)
	w.expect("silent for long", w.diverted())
	w.silent["n3"], w.asked = false, nil
	w.after(askAgain)
	w.glance(rest)
	w.expect("there again", w.diverted(), "10.1.0.7 of shop/web on n3: pods veth1")
	w.shadows = nil
	w.expect("the route is gone", w.glance(rest))
	w.kept = []cluster.Lease{lease(ip, "n3")}
	w.routes["n2"] = []document.Route{to("n1"), self}
	w.routes["n1"] = []document.Route{nowhere}
	w.twice()
	w.expect("followed", w.after(every))
	w.expect("diverted, and not followed", w.diverted(), want)
	if c := w.Last().Counts; c[document.Diverted] != 1 || c[document.Misrouted] != 0 {
		t.Errorf("counts %v", c)
	}
}

// TestNoHostEnd: nothing leads to the node's own pods on macvlan, and what the node has for itself it answers for beside them.
func TestNoHostEnd(t *testing.T) {
	w := newDiverting(t, true, false, false, wide(to("n1")))
	w.mine[0].Ifindex = 0
	w.glance(rest)
	w.expect("by a node", w.glance(rest))
	w.routes["n2"] = []document.Route{self}
	w.glance(rest)
	w.expect("local", w.glance(rest), "10.1.0.7 of shop/web on n2: self eth0")
}

// TestManyPods: of more pods than are looked at the same ones are, whichever range is asked about first.
func TestManyPods(t *testing.T) {
	w := newDiverting(t, false, false, false, self)
	w.theirs = nil
	for n := range MaxPods {
		w.theirs = append(w.theirs, w.bound(netip.AddrFrom4([4]byte{10, 2, byte(n >> 8), byte(n)}), "n3"), w.bound(netip.AddrFrom4([4]byte{10, 3, byte(n >> 8), byte(n)}), "n4"))
	}
	w.shadows = []Range{{id("n3"), netip.MustParsePrefix("10.2.0.0/16")}, {id("n4"), netip.MustParsePrefix("10.3.0.0/16")}}
	for range 5 {
		w.glance(rest)
		if n := len(w.all); n != MaxPods {
			t.Errorf("%d pods", n)
		}
	}
}

// TestDivertedBounds: of many shadows all are asked about in time, few at once, and so are the findings.
func TestDivertedBounds(t *testing.T) {
	w := newDiverting(t, false, false, false, self)
	w.theirs = nil
	for n := range 2 * MaxRanges {
		p := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 2, byte(n), 0}), 24)
		w.shadows = append(w.shadows, Range{id(fmt.Sprint("n", 4+n%3)), p})
	}
	for n := range MaxRanges {
		b := w.bound(netip.AddrFrom4([4]byte{10, 2, byte(n), 7}), fmt.Sprint("n", 4+n%3))
		w.theirs = append(w.theirs, b, w.bound(netip.AddrFrom4([4]byte{10, 2, byte(n), 8}), fmt.Sprint("n", 4+n%3)))
	}
	for range 60 {
		w.asked = nil
		for range 10 {
			w.glance(rest)
		}
		w.after(0)
		if n := len(w.asked); n > 2*maxAsked {
			t.Fatalf("%d questions in ten seconds", n)
		}
	}
	r := w.Last()
	if len(w.ranges) != MaxRanges || len(r.Findings) != maxFindings || r.Omitted != 2*MaxRanges-maxFindings || r.Counts[document.Diverted] != 2*MaxRanges {
		t.Errorf("%d ranges, %d findings, %d omitted, %v", len(w.ranges), len(r.Findings), r.Omitted, r.Counts)
	}
}

// TestDivertedCompared: there is a metric once two looks could have found something.
func TestDivertedCompared(t *testing.T) {
	w := newDiverting(t, true, false, false, away)
	for n, want := range []bool{false, true, true} {
		w.glance(rest)
		if _, compared := w.Last().Counts[document.Diverted]; compared != want {
			t.Errorf("look %d: %t", n+1, compared)
		}
	}
	w.mine = nil
	w.glance(rest)
	if _, compared := w.Last().Counts[document.Diverted]; compared {
		t.Error("compared without a pod")
	}
}

// TestWoken: a change is looked at once a second at most, the second look comes by itself, and the walk keeps its pace.
func TestWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newDiverting(t, true, false, false, away)
		var looks []time.Duration
		began, view, changed := time.Now(), w.opts.View, make(chan struct{})
		w.opts.View = func(ctx context.Context, changed bool) (*View, error) {
			looks = append(looks, time.Since(began).Round(time.Millisecond))
			return view(ctx, changed)
		}
		go w.Run(t.Context(), changed)
		time.Sleep(2500 * time.Millisecond)
		w.routes["n2"] = []document.Route{self}
		changed <- struct{}{}
		time.Sleep(1500 * time.Millisecond)
		if found := w.diverted(); !slices.Equal(found, []string{"10.1.0.7 of shop/web on n2: self eth0"}) {
			t.Errorf("found %q", found)
		}
		stop := time.After(6 * time.Second)
		for flood := true; flood; {
			select {
			case changed <- struct{}{}:
			case <-stop:
				flood = false
			}
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		var seconds []string
		for _, at := range looks {
			seconds = append(seconds, at.String())
		}
		if want := "2.5s 3.5s 4.5s 5.5s 6.5s 7.5s 8.5s 9.5s 10.5s 20.5s"; strings.Join(seconds, " ") != want {
			t.Errorf("looks at %q, want %q", seconds, want)
		}
	})
}
