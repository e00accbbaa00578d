package paths

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// TestBounds: other nodes are asked few questions in a pass, also if 500 addresses go wrong. In time all are found.
func TestBounds(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}})
	w.given, w.kept = detector.GivenNo, nil
	for i := range 500 {
		w.kept = append(w.kept, lease(netip.AddrFrom4([4]byte{10, 2, byte(i >> 8), byte(i)}), fmt.Sprint("n", 4+i%3)))
	}
	w.kept = append(w.kept, lease(ip, "n3"))
	for range 2 {
		w.asked = nil
		w.after(every)
		to := make(map[string]int)
		for _, node := range w.asked {
			to[node]++
		}
		if n := len(w.asked); n == 0 || n > maxAsked || to["n1"] > maxAskedOf {
			t.Errorf("%d questions in a pass: %v", n, to)
		}
	}
	w.given = detector.GivenYes
	for range 200 {
		w.after(every)
	}
	if r := w.Last(); len(r.Findings) != maxFindings || r.Omitted != 501-maxFindings {
		t.Errorf("%d findings, %d omitted", len(r.Findings), r.Omitted)
	}
}

// TestOrder: what was seen once is looked at again before what pods of other nodes say that they have all the time.
func TestOrder(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}})
	var found []string
	for pass := range 120 {
		w.kept = []cluster.Lease{lease(ip, "n3")}
		for n := range 200 {
			w.kept = append(w.kept, lease(netip.AddrFrom4([4]byte{10, byte(pass), byte(n), 1}), fmt.Sprint("n", 4+n%2)))
		}
		if found = w.after(every); found != nil {
			break
		}
	}
	w.expect("among many", found, "10.1.0.7 of shop/web on n3 by n1: nowhere")
}

// TestManyWays: of an address with more ways than questions nothing is known, and others are found.
func TestManyWays(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {to("a0"), to("a1"), to("a2"), to("a3"), to("a4"), to("a5"), to("a6"), to("a7"), to("a8"), to("n1")}, "n1": {nowhere}})
	for n := range 9 {
		w.routes[fmt.Sprint("a", n)] = []document.Route{to("n3")}
	}
	for range 5 {
		w.expect("too many", w.after(seldom))
		if len(w.asked) > maxAskedAbout {
			t.Errorf("%q", w.asked)
		}
		w.asked = nil
	}
	many, other := w.routes["n2"], ip.Next()
	w.own, w.kept = map[netip.Addr][]document.Route{other: {to("n1")}}, append(w.kept, lease(other, "n3"))
	var beside []string
	for range 30 {
		if beside = w.after(every); beside != nil {
			break
		}
	}
	w.expect("beside one of many ways", beside, "10.1.0.8 of shop/web on n3 by n1: nowhere")
	w.routes["n1"] = []document.Route{to("n3")}
	for range 30 {
		if beside = w.after(every); beside == nil {
			break
		}
	}
	w.expect("its end beside one of many ways", beside)
	w.routes["n1"] = []document.Route{nowhere}
	w.own, w.kept, w.asked = map[netip.Addr][]document.Route{other: many}, w.kept[:1], nil
	w.routes["n2"] = []document.Route{to("a0"), to("a0"), to("n1")}
	w.expect("few", w.twice(), "10.1.0.7 of shop/web on n3 by n1: nowhere")
	if want := []string{"a0", "n1", "a0", "n1", "n3"}; !slices.Equal(w.asked, want) {
		t.Errorf("asked %q, want each once: %q", w.asked, want)
	}
	if !w.Last().Findings[0].Partly {
		t.Error("only some packets go there")
	}
}

// TestKept: of more addresses than a pass looks at, what was found is kept, and no more doubts than that.
func TestKept(t *testing.T) {
	w := newWorld(t, map[string][]document.Route{"n2": {to("n1")}, "n1": {nowhere}})
	const want = "10.1.0.7 of shop/web on n3 by n1: nowhere"
	w.expect("at first", w.twice(), want)
	w.kept = nil
	for i := range maxKept {
		w.kept = append(w.kept, lease(netip.AddrFrom4([4]byte{10, 3, byte(i >> 8), byte(i)}), "n4"))
	}
	w.expect("in a pass without it", w.after(every), want)
	w.kept[0] = lease(ip.Next(), "n3")
	w.after(every)
	if n := len(w.doubts); n != maxKept {
		t.Errorf("%d doubts", n)
	}
}
