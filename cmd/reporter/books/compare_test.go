package books

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// TestFindings: what books and wire say differently, and what is lawful.
func TestFindings(t *testing.T) {
	const ip, wait = "10.1.1.5", 14 * time.Second
	for name, test := range map[string]struct {
		play func(*world)
		wait time.Duration // the default is wait
		want []string
	}{
		"nothing": {play: func(*world) {}},
		"booked on another node": {func(w *world) {
			w.holds("n3", ip, "shop/a")
			w.pod("shop/a", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, 0, []string{"misbooked 10.1.1.5 shop/a on n3 for shop/a of n1"}},
		"borrowed of another node's block": {func(w *world) { // the block is n1's
			w.holds("n3", ip, "shop/a")
			w.pod("shop/a", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n3", ""})
		}, time.Hour, nil},
		"moving to another pod": {func(w *world) {
			w.holds("n3", ip, "shop/b")
			w.pod("shop/b", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "", "", `"handle_id": "k8s-pod-network.vm", "secondary": {"namespace": "shop", "pod": "a", "node": "n1"}, "alternateOwnerAttrs": {"namespace": "shop", "pod": "b", "node": "n3"}`})
		}, time.Hour, nil},
		"a virtual machine's": {func(w *world) {
			w.holds("n3", ip, "shop/b")
			w.pod("shop/b", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "", "", `"handle_id": "k8s-pod-network.vmi.shop.vm", "secondary": {"namespace": "shop", "pod": "a", "node": "n1"}`})
		}, time.Hour, nil},
		"a tunnel's": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "", "", `"handle_id": "vxlan-tunnel-addr-n1", "secondary": {"node": "n1", "type": "vxlanTunnelAddress"}`})
		}, time.Hour, nil},
		"released, and not to be used yet": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "", "", `"handle_id": "k8s-pod-network.x", "secondary": {"namespace": "shop", "pod": "a", "node": "n1"}, "releasedAt": "2026-03-01T11:59:00Z"`})
		}, time.Hour, nil},
		"freed while it lives": {func(w *world) {
			w.holds("n2", ip, "shop/a")
			w.pod("shop/a", "n2", ip, "")
			w.block("10.1.1.0/26")
		}, 0, []string{"unreserved 10.1.1.5 shop/a on n2"}},
		"of a block that is gone": {func(w *world) {
			w.holds("n2", ip, "shop/a")
			w.pod("shop/a", "n2", ip, "")
		}, 0, []string{"unreserved 10.1.1.5 shop/a on n2"}},
		"of a node with another IPAM": {func(w *world) {
			for _, pod := range []string{"shop/a", "shop/b"} {
				address := map[string]string{"shop/a": ip, "shop/b": "10.1.1.6"}[pod]
				w.holds("n3", address, pod)
				w.pod(pod, "n3", address, "")
			}
		}, time.Hour, nil},
		"outside of the pool": {func(w *world) {
			w.holds("n2", "10.9.0.1", "shop/a")
			w.pod("shop/a", "n2", "10.9.0.1", "")
		}, time.Hour, nil},
		"reserved for another one that lives": {func(w *world) {
			w.holds("n2", ip, "shop/a")
			w.pod("shop/a", "n2", ip, "")
			w.pod("shop/b", "n1", "10.1.1.77", "")
			w.holds("n1", "10.1.1.77", "shop/b")
			w.block("10.1.1.0/26", allocated{ip, "shop/b", "n1", ""})
			w.block("10.1.1.64/26", allocated{"10.1.1.77", "shop/b", "n1", ""})
		}, 0, []string{"mismatched 10.1.1.5 shop/a on n2 for shop/b of n1"}},
		"nobody has it": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, 6 * time.Minute, []string{"unheld 10.1.1.5  on n1 for shop/a of n1"}},
		"its pod has another one by now": {func(w *world) {
			w.pod("shop/a", "n1", "10.1.1.6", "")
			w.holds("n1", "10.1.1.6", "shop/a")
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""}, allocated{"10.1.1.6", "shop/a", "n1", ""})
		}, 6 * time.Minute, []string{"unheld 10.1.1.5  on n1 for shop/a of n1"}},
		"its pod is being made": {func(w *world) {
			w.pod("shop/a", "n1", "", "")
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, time.Hour, nil},
		"not for long": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, 4 * time.Minute, nil},
		"nobody is seen to have it": {func(w *world) {
			w.agent("n1").summary.Interfaces["failed"] = 1
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, time.Hour, nil},
		"of an agent that has not told": {func(w *world) {
			w.agent("n1").at = time.Time{}
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n1", ""})
		}, time.Hour, nil},
		"of a Node that is gone": {func(w *world) {
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n9", ""})
		}, 6 * time.Minute, []string{"unheld 10.1.1.5  on n9 for shop/a of n9"}},

		"two pods": {func(w *world) {
			w.holds("n2", ip, "shop/a")
			w.pod("shop/a", "n2", ip, "")
			w.pod("shop/b", "n3", ip, "")
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n2", ""})
		}, 40 * time.Second, []string{"twice 10.1.1.5 shop/a on n2 for shop/b of n3"}},
		"two pods, one that ends": {func(w *world) {
			w.holds("n2", ip, "shop/a")
			w.pod("shop/a", "n2", ip, "")
			w.pod("shop/b", "n3", ip, `"deletionTimestamp": "2026-03-01T11:59:00Z"`)
			w.block("10.1.1.0/26", allocated{ip, "shop/a", "n2", ""})
		}, time.Hour, nil},
		"a pod that the API server does not have": {func(w *world) {
			w.holds("n2", "10.9.0.1", "shop/a")
		}, 3 * time.Minute, []string{"unlisted 10.9.0.1 shop/a on n2"}},
		"for a moment": {func(w *world) { w.holds("n2", "10.9.0.1", "shop/a") }, time.Minute, nil},
		"another one of its name": {func(w *world) {
			w.holds("n2", "10.9.0.1", "shop/a").uid = "another"
			w.pod("shop/a", "n2", "10.9.0.1", "")
		}, 3 * time.Minute, []string{"unlisted 10.9.0.1 shop/a on n2"}},
		"a static pod": {func(w *world) {
			w.holds("n2", "10.9.0.1", "shop/a").uid = "of its file"
			w.pod("shop/a", "n2", "10.9.0.1", `"annotations": {"kubernetes.io/config.mirror": "1"}`)
		}, time.Hour, nil},
		"no pod":                     {func(w *world) { w.holds("n2", "10.9.0.1", "") }, time.Hour, nil},
		"a pod without an interface": {func(w *world) { w.pod("shop/a", "n2", "10.9.0.1", "") }, 3 * time.Minute, []string{"unheld 10.9.0.1  on n2 for shop/a"}},
		"on a node without an agent": {func(w *world) { w.pod("shop/a", "n9", "10.9.0.1", "") }, time.Hour, nil},

		"a Node is deleted": {func(w *world) { w.gone("nodes", "n2") }, 0, []string{"deleted  on n2"}},
		"without pods":      {func(w *world) { w.gone("nodes", "n3") }, time.Hour, nil},
		"agents have other names": {func(w *world) {
			for _, name := range []string{"n1", "n2", "n3"} {
				w.gone("nodes", name)
			}
			w.node("ip-10-0-0-1", "")
		}, time.Hour, nil},
		"two podCIDRs": {func(w *world) {
			w.node("n1", "10.2.0.0/16")
			w.node("n3", "10.2.1.0/24")
		}, 0, []string{"overlapping  on n1 of n3"}},
		"a range of another node": {func(w *world) {
			w.node("n1", "10.2.1.0/24")
			w.node("n2", "10.2.2.0/24")
			w.ranges("n2", "10.2.1.1-10.2.1.254", "10.2.2.1-10.2.2.254")
		}, 0, []string{"overlapping  on n2 of n1"}},
		"a range of every node": {func(w *world) {
			for _, name := range []string{"n1", "n2", "n3"} {
				w.ranges(name, "10.88.0.1-10.88.255.254", "nonsense", "10.3.0.9-10.3.0.1")
			}
		}, time.Hour, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			test.play(w)
			if test.wait == 0 {
				test.wait = wait
			}
			got := w.after(test.wait)
			if !slices.Equal(got, test.want) {
				t.Errorf("after %v: %q, want %q", test.wait, got, test.want)
			}
		})
	}
}

// TestTwoReadings: books and wire must differ for ten seconds, and when the objects are read again.
func TestTwoReadings(t *testing.T) {
	misbooked := func(t *testing.T) *world {
		w := newWorld(t)
		w.holds("n3", "10.1.1.5", "shop/a")
		w.pod("shop/a", "n3", "10.1.1.5", "")
		w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n1", ""})
		return w
	}
	t.Run("soon", func(t *testing.T) {
		w := misbooked(t)
		if got := w.after(8 * time.Second); len(got) > 0 || len(w.got) > 0 {
			t.Errorf("%q, after %q were read again", got, w.got)
		}
		w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n3", ""})
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("after its end: %q", got)
		}
	})
	t.Run("the watch is late", func(t *testing.T) {
		w := misbooked(t)
		// It has been corrected, and the watch does not say so.
		path := calicoGroups[0] + calicoBlocks + "/10-1-1-0-26"
		w.objects[path] = strings.ReplaceAll(w.objects[path], `"node": "n1"`, `"node": "n3"`)
		if got := w.after(time.Minute); len(got) > 0 || !slices.Equal(w.got, []string{path}) {
			t.Errorf("%q, after %q were read again", got, w.got)
		}
	})
	t.Run("the API server fails", func(t *testing.T) {
		w := misbooked(t)
		w.fails = true
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("%q", got)
		}
		w.fails = false
		if got := w.after(4 * time.Second); len(got) != 1 {
			t.Errorf("when it answers: %q", got)
		}
	})
	t.Run("times", func(t *testing.T) {
		w := misbooked(t)
		w.after(14 * time.Second)
		if f := w.found[0]; !f.Since.Equal(noon) || !f.FreedBy.Equal(noon.Add(calicoGrace)) || f.CNINetwork != "default-pool" || f.Contested {
			t.Errorf("%+v", f)
		}
		w.gone("nodes", "n1")
		w.holds("n2", "10.1.1.5", "shop/b")
		w.after(2 * time.Second)
		i := slices.IndexFunc(w.found, func(f document.Finding) bool { return f.Kind == document.Misbooked })
		if f := w.found[i]; !f.FreedBy.Equal(noon) || !f.Contested {
			t.Errorf("of a Node that is gone, in conflict: %+v", f)
		}
		if s := w.Stats(); s.Findings[document.Misbooked] != 0 || s.Findings[document.InConflict] != 1 {
			t.Errorf("%+v", s)
		}
	})
	t.Run("not current", func(t *testing.T) {
		w := misbooked(t)
		w.source(calicoBlocks).state = unread
		if got := w.after(time.Minute); len(got) > 0 {
			t.Errorf("%q", got)
		}
	})
}

// TestSame: kubelets write their Nodes every five minutes, and agents say of their nodes what they said before. In a large cluster some of them do
// so each second: that is no reason to compare. What time alone makes a difference is found once a minute.
func TestSame(t *testing.T) {
	w := newWorld(t)
	w.after(20 * time.Second)
	for _, c := range []struct {
		name   string
		change func()
		want   bool
	}{
		{"a Node's heartbeat", func() { w.object("nodes", "n1", `"spec": {}, "status": {"conditions": [{"type": "Ready"}]}`) }, false},
		{"a Node's range", func() { w.node("n1", "10.7.0.0/24") }, true},
		{"a Node", func() { w.node("n4", "") }, true},
		{"a Pod's condition", func() { w.pod("shop/by", "n2", "10.1.2.9", `"labels": {"a": "b"}`) }, false},
		{"a Pod's address", func() { w.pod("shop/by", "n2", "10.1.2.10", "") }, true},
		{"a Pod", func() { w.pod("shop/more", "n2", "", "") }, true},
		{"a Pod goes", func() { w.gone("pods", "shop/more") }, true},
		{"a block", func() { w.block("10.1.2.0/26") }, true},
		{"an agent's summary", func() { w.Summary("n1/boot", w.wire.agents["n1/boot"].summary) }, false},
		{"an agent's ranges", func() { w.Summary("n1/boot", cluster.Summary{Ranges: []string{"10.1.2.3-10.1.2.4"}}) }, true},
		{"nothing for a while", func() { w.now = w.now.Add(time.Minute) }, true},
		{"nothing", func() {}, false},
	} {
		w.step(w.now)
		w.waiting = false
		w.at = w.now
		c.change()
		before := w.round
		w.step(w.now)
		if compared := w.round > before; compared != c.want {
			t.Errorf("%s: compared is %v", c.name, compared)
		}
	}
}
