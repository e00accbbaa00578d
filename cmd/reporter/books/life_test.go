package books

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// TestLife: what happens in every cluster while books and agents are read, one after the other, is no finding; and what is wrong beside that is.
func TestLife(t *testing.T) {
	const ip = "10.1.1.5"
	machine := `"handle_id": "k8s-pod-network.vmi.shop.vm", "secondary": {"namespace": "shop", "pod": "from", "node": "n1"}, "alternateOwnerAttrs": {"namespace": "shop", "pod": "to", "node": "n3"}`
	for name, test := range map[string]struct {
		play func(*world)
		wait time.Duration
		want []string
	}{
		"an agent has said that its bindings changed, and does not answer": {func(w *world) {
			w.holds("n2", ip, "shop/gone")
			a := w.agent("n2")
			a.has, a.summary.Bindings, w.silent = 1, 2, true
			w.pod("shop/b", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "shop/b", "n3", ""})
		}, time.Hour, nil},
		"a node was reset, and its last boot is not given up": {func(w *world) {
			w.holds("n2", ip, "shop/ds")
			h := w.agent("n2").held[1]
			h.ip, h.boot, h.sandbox = h.ip.Next(), "boot2", sandboxFor("new")[:sandboxID]
			w.wire.agents["n2/boot2"] = &agent{name: "n2", at: noon, held: []held{h}}
			w.pod("shop/ds", "n2", "10.1.1.6", "")
			w.block("10.1.1.0/26", allocated{"10.1.1.6", "shop/ds", "n2", ""})
		}, 5 * time.Minute, nil},
		"a pod was made anew on another node, and its last sandbox ends": {func(w *world) {
			h := w.holds("n1", ip, "shop/web-0")
			h.uid, h.sandbox = "old", "0123456789abc"
			w.holds("n3", ip, "shop/web-0")
			w.pod("shop/web-0", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "shop/web-0", "n3", ""})
		}, time.Minute, nil},
		"and the book does not have the sandbox": {func(w *world) {
			w.holds("n1", ip, "shop/web-0").uid = "old"
			w.pod("shop/web-0", "n3", "", "")
			w.block("10.1.1.0/26", allocated{ip, "", "", `"handle_id": "other", "secondary": {"namespace": "shop", "pod": "web-0", "node": "n3"}`})
		}, time.Minute, nil},
		"and does not end": {func(w *world) {
			h := w.holds("n1", ip, "shop/web-0")
			h.uid, h.sandbox = "old", "0123456789abc"
			w.pod("shop/web-0", "n3", "10.1.1.6", "")
			w.holds("n3", "10.1.1.6", "shop/web-0")
			w.block("10.1.1.0/26", allocated{"10.1.1.6", "shop/web-0", "n3", ""})
		}, 3 * time.Minute, []string{"unlisted 10.1.1.5 shop/web-0 on n1"}},
		"the book of the node gives the address out": {func(w *world) {
			w.ranges("n2", "10.1.77.1-10.1.77.254")
			w.holds("n2", "10.1.77.4", "shop/a")
			w.pod("shop/a", "n2", "10.1.77.4", "")
		}, time.Hour, nil},
		"an interface of a second network": {func(w *world) { w.holds("n2", "10.1.200.5", "shop/by") }, time.Hour, nil},
		"a shared address": {func(w *world) {
			w.pod("shop/a", "n1", "10.1.99.99", "")
			w.pod("shop/b", "n3", "10.1.99.99", "")
		}, time.Hour, nil},
		"a network of the node only": {func(w *world) {
			w.pod("shop/a", "n1", "10.9.0.5", "")
			w.agent("n1").unlike = map[netip.Addr]bool{netip.MustParseAddr("10.9.0.5"): true}
		}, time.Hour, nil},
		"a virtual machine moves": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "", "", machine})
			for node, pod := range map[string]string{"n1": "shop/from", "n3": "shop/to"} {
				w.pod(pod, node, ip, "")
				w.holds(node, ip, pod)
			}
		}, time.Hour, nil},
		"a Job's pod has ended, and its address is leaked": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "shop/job", "n1", ""})
			w.objects["/api/v1/namespaces/shop/pods/job"] = `{"metadata": {"namespace": "shop", "name": "job"}, "spec": {"nodeName": "n1"}, "status": {"phase": "Succeeded", "podIPs": [{"ip": "10.1.1.5"}]}}`
		}, 6 * time.Minute, []string{"unheld 10.1.1.5  on n1 for shop/job of n1"}},
		"ranges that nobody uses": {func(w *world) {
			for n, node := range []string{"n1", "n2", "n3"} {
				w.object("ciliumnodes", node, fmt.Sprintf(`"spec": {"ipam": {"podCIDRs": ["10.8.%d.0/24"]}}`, n))
				address := fmt.Sprintf("10.8.%d.17", (n+1)%3)
				w.holds(node, address, "shop/on-"+node)
				w.pod("shop/on-"+node, node, address, "")
			}
		}, time.Hour, nil},
		"the machine was added without a hash": {func(w *world) {
			w.Summary("n2/boot", cluster.Summary{Version: "older"})
			w.gone("pods", "shop/by")
		}, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for range 4 { // maps have another order each time
				w := newWorld(t)
				test.play(w)
				if got := w.after(test.wait); !slices.Equal(got, test.want) {
					t.Errorf("after %v: %q, want %q", test.wait, got, test.want)
				}
			}
		})
	}
}

// TestOwns: whose a reservation is, the sandbox says if both have one, and else the name.
func TestOwns(t *testing.T) {
	h := &held{pod: "shop/a", sandbox: "s1"}
	for r, want := range map[Reservation]bool{
		{Pod: "shop/a", Sandbox: "s1"}: true, {Pod: "shop/b", Sandbox: "s1"}: true, {Pod: "shop/a", Sandbox: "s2"}: false, {Pod: "shop/a"}: true, {Pod: "shop/b"}: false,
		{Pod: "shop/b", Sandbox: "s2", Other: "shop/a"}: true, {}: false,
	} {
		if got := owns(r, h); got != want {
			t.Errorf("%+v: %v", r, got)
		}
	}
	if owns(Reservation{}, new(held)) {
		t.Error("nobody's reservation is that of a holder without a name")
	}
}

// TestUrgentFirst: a thousand small findings do not keep an urgent one waiting.
func TestUrgentFirst(t *testing.T) {
	w := newWorld(t)
	for n := range 1000 {
		w.pod(fmt.Sprintf("shop/v%d", n), "n1", fmt.Sprintf("10.7.%d.%d", n/250, n%250+1), "")
	}
	w.after(missingAfter + 20*time.Second)
	w.holds("n3", "10.1.1.5", "shop/a")
	w.pod("shop/a", "n3", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n1", ""})
	if got := w.after(14 * time.Second); !slices.Contains(got, "misbooked 10.1.1.5 shop/a on n3 for shop/a of n1") {
		t.Errorf("%d findings, and not the urgent one", len(got))
	}
}

// TestManyDifferences: of a kind so many are kept, and the others are counted.
func TestManyDifferences(t *testing.T) {
	w := newWorld(t)
	for n := range maxDifferences + 100 {
		w.pod(fmt.Sprintf("shop/v%d", n), "n1", fmt.Sprintf("10.7.%d.%d", n/250, n%250+1), "")
	}
	if list := w.differences(noon.Add(time.Hour)); len(list) != maxDifferences {
		t.Errorf("%d differences", len(list))
	}
	w.step(noon)
	if w.omitted != 100 {
		t.Errorf("%d are counted as left out", w.omitted)
	}
}

// TestOddBlocks: a block has no more allocations than addresses, and is no larger than Calico's are.
func TestOddBlocks(t *testing.T) {
	w := newWorld(t)
	for _, spec := range []string{
		`{"cidr": "10.1.9.0/26", "allocations": [` + strings.Repeat("0,", 64) + `0], "attributes": [{"secondary": {"namespace": "shop", "pod": "a"}}]}`,
		`{"cidr": "0.0.0.0/0", "allocations": [0], "attributes": [{"secondary": {"namespace": "shop", "pod": "a"}}]}`,
		`{"cidr": "::ffff:10.1.9.0/122", "allocations": [0], "attributes": [{"secondary": {"namespace": "shop", "pod": "a"}}]}`,
	} {
		s := w.source(calicoBlocks)
		if err := s.change(json.RawMessage(`{"metadata": {"name": "odd"}, "spec": `+spec+`}`), false); err != nil || !s.broken["odd"] {
			t.Errorf("%.40s is accepted, %v", spec, err)
		}
	}
}

// TestStats: what is looked for is counted from zero on, and a book that does not exist is none that cannot be read.
func TestStats(t *testing.T) {
	w := newWorld(t)
	if s := w.Stats(); len(s.Findings) > 0 || !s.Read["calico"] {
		t.Errorf("before a comparison: %+v", s)
	}
	w.after(time.Second)
	w.source(calicoBlocks).state, w.source("ciliumnodes").state = unread, absent
	s := w.Stats()
	if _, looked := s.Findings[document.Misbooked]; !looked || s.Findings[document.Deleted] != 0 || len(s.Left) > 0 {
		t.Errorf("%+v", s)
	}
	if _, there := s.Read["cilium"]; there || s.Read["calico"] || !s.Read[document.Kubernetes] {
		t.Errorf("%+v", s.Read)
	}
}

// TestUnreadKeeps: what was found in a book stays while the book cannot be read.
func TestUnreadKeeps(t *testing.T) {
	w := newWorld(t)
	w.holds("n3", "10.1.1.5", "shop/a")
	w.pod("shop/a", "n3", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n1", ""})
	before := w.after(14 * time.Second)
	w.source(calicoBlocks).state = unread
	w.wire.changed = true
	if got := w.after(time.Minute); len(before) != 1 || !slices.Equal(got, before) {
		t.Errorf("%q, and before %q", got, before)
	}
	w.source(calicoBlocks).state = watched
	w.wire.changed = true
	if w.after(2 * time.Second); len(w.found) != 1 || !w.found[0].Since.Equal(noon) {
		t.Errorf("%+v", w.found)
	}
}

// TestOvertaken: what a watch tells of an object while it is read again is newer.
func TestOvertaken(t *testing.T) {
	w := newWorld(t)
	w.pod("shop/x", "n1", "10.9.0.1", "")
	text := w.objects["/api/v1/namespaces/shop/pods/x"]
	w.during = func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if err := w.pods.change(json.RawMessage(text), true); err != nil {
			t.Error(err)
		}
	}
	if err := w.pods.get(t.Context(), w.Books, "shop/x", "/api/v1/namespaces/shop/pods/x"); err != nil || w.pods.byName["shop/x"] != nil {
		t.Errorf("%v, and the pod that was deleted: %+v", err, w.pods.byName["shop/x"])
	}
}

// TestGone: a resource that does not exist any more, and a watch that ends with an error.
func TestGone(t *testing.T) {
	s := &server{objects: []string{"a", "b"}}
	f := follow(t, s)
	f.until(watched, "a", "b")
	s.mu.Lock()
	s.objects = []string{"c", "d"}
	s.mu.Unlock()
	s.watching <- `{"type": "ERROR", "object": {"kind": "Status", "code": 500, "message": "etcd was restored"}}`
	f.until(watched, "c", "d")
	s.mu.Lock()
	s.code = http.StatusNotFound
	close(s.ended)
	s.mu.Unlock()
	f.until(absent, "c", "d")
	if !strings.Contains(strings.Join(s.requests(), " "), "/first/things") {
		t.Error("the other API group was not asked")
	}
}
