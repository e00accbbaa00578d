package books

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// world is a small cluster: objects, and what agents see.
type world struct {
	testing.TB
	*Books
	now     time.Time
	objects map[string]string // by path, for those that are read again
	got     []string          // the paths of these
	fails   bool              // the API server
}

// newWorld has the nodes n1 to n3, with Calico's pool 10.1.0.0/16, and the pod shop/by of n2, which Calico knows.
func newWorld(t testing.TB) *world {
	w := &world{TB: t, now: noon, objects: make(map[string]string)}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.got = append(w.got, r.URL.Path)
		text, known := w.objects[r.URL.Path]
		switch {
		case w.fails:
			out.WriteHeader(http.StatusInternalServerError)
		case !known:
			out.WriteHeader(http.StatusNotFound)
		default:
			_, _ = out.Write([]byte(text))
		}
	}))
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	w.Books = New(Options{
		Log: slog.New(slog.DiscardHandler), API: kube.New(server.URL, token, nil), Names: Names(), Auto: true, Answers: func() bool { return true },
		Rules: merge.Rules{ClusterWide: func(network string) bool { return network == "default" }, Shared: func(netip.Addr) bool { return false }},
	})
	w.reset()
	w.running = true
	for _, s := range w.sources() {
		s.state, s.path = watched, s.paths[0]
	}
	for _, name := range []string{"n1", "n2", "n3"} {
		w.node(name, "")
		w.agent(name)
	}
	w.object(calicoPools, "default-pool", `"spec": {"cidr": "10.1.0.0/16", "blockSize": 26}`)
	w.holds("n2", "10.1.2.9", "shop/by")
	w.pod("shop/by", "n2", "10.1.2.9", "")
	w.block("10.1.2.0/26", allocated{"10.1.2.9", "shop/by", "n2", ""})
	return w
}

// source is that of a resource.
func (w *world) source(name string) *source {
	for _, s := range w.sources() {
		if s.name == name {
			return s
		}
	}
	w.Fatal("no resource " + name)
	return nil
}

// object makes an object, or changes it.
func (w *world) object(resource, key, body string) {
	w.Helper()
	namespace, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		namespace, name = "", key
	}
	metadata := fmt.Sprintf(`"namespace": %q, "name": %q, "uid": "uid-of-%s", "creationTimestamp": "2026-03-01T11:00:00Z"`, namespace, name, key)
	text := `{"metadata": {` + metadata + `}, ` + body + `}`
	if extra, rest, ok := strings.Cut(body, "\n"); ok { // more metadata
		text = `{"metadata": {` + metadata + `, ` + extra + `}, ` + rest + `}`
	}
	s := w.source(resource)
	path := s.path + "/" + name
	if namespaced {
		path = "/api/v1/namespaces/" + namespace + "/" + resource + "/" + name
	}
	w.objects[path] = text
	if err := s.change(json.RawMessage(text), false); err != nil {
		w.Fatal(err)
	}
	if len(s.broken) > 0 {
		w.Fatalf("%s cannot be read: %s", resource, text)
	}
}

// gone deletes an object.
func (w *world) gone(resource, key string) {
	s := w.source(resource)
	_, name, namespaced := strings.Cut(key, "/")
	if !namespaced {
		name = key
	}
	for path := range w.objects {
		if strings.HasSuffix(path, "/"+resource+"/"+name) {
			delete(w.objects, path)
		}
	}
	s.remove(key)
}

func (w *world) node(name, podCIDR string) {
	w.object("nodes", name, fmt.Sprintf(`"spec": {"podCIDRs": [%s]}`, strings.ReplaceAll(fmt.Sprintf("%q", podCIDR), `""`, "")))
}

// pod makes a Pod that is ready; metadata is more of it.
func (w *world) pod(name, node, ip, metadata string) {
	w.Helper()
	body := fmt.Sprintf(`"spec": {"nodeName": %q}, "status": {"podIPs": [{"ip": %q}], "conditions": [{"type": "Ready", "status": "True"}]}`, node, ip)
	if metadata != "" {
		body = metadata + "\n" + body
	}
	w.object("pods", name, body)
}

// allocated is an address in a block.
type allocated struct{ ip, pod, node, attributes string }

func (w *world) block(cidr string, list ...allocated) {
	w.Helper()
	prefix := netip.MustParsePrefix(cidr)
	allocations, attributes := make([]string, 64), []string{}
	ip := prefix.Addr()
	for n := range allocations {
		allocations[n] = "null"
		for _, a := range list {
			if a.ip == ip.String() {
				allocations[n] = fmt.Sprint(len(attributes))
				namespace, name, _ := strings.Cut(a.pod, "/")
				attribute := fmt.Sprintf(`"handle_id": "k8s-pod-network.%s", "secondary": {"namespace": %q, "pod": %q, "node": %q, "timestamp": "2026-03-01 11:00:00.5 +0000 UTC"}`,
					sandboxFor(a.pod), namespace, name, a.node)
				if a.attributes != "" {
					attribute = a.attributes
				}
				attributes = append(attributes, "{"+attribute+"}")
			}
		}
		ip = ip.Next()
	}
	name := strings.NewReplacer(".", "-", "/", "-").Replace(cidr)
	w.object(calicoBlocks, name, fmt.Sprintf(`"spec": {"cidr": %q, "affinity": "host:n1", "allocations": [%s], "attributes": [%s], "unallocated": []}`,
		cidr, strings.Join(allocations, ","), strings.Join(attributes, ",")))
}

// sandboxFor is the id of a pod's sandbox.
func sandboxFor(pod string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(pod))) }

// agent makes an agent that has told of its bindings.
func (w *world) agent(name string) *agent {
	id := cluster.NodeID(name, "boot")
	a := w.wire.agents[id]
	if a == nil {
		a = &agent{name: name, at: noon, summary: cluster.Summary{Interfaces: map[string]int{"attached": 3}}}
		w.wire.agents[id] = a
	}
	w.wire.changed = true
	return a
}

// holds gives a pod on a node an address on the wire.
func (w *world) holds(node, ip, pod string) *held {
	a := w.agent(node)
	h := held{
		ip: netip.MustParseAddr(ip), node: node, boot: "boot", pod: pod, uid: "uid-of-" + pod, sandbox: sandboxFor(pod)[:sandboxID],
		given: detector.GivenYes, holder: detector.HolderID{Node: cluster.NodeID(node, "boot"), Netns: uint64(len(a.held) + 1)},
	}
	if pod == "" {
		h.uid, h.sandbox = "", ""
	}
	a.held = append(a.held, h)
	return &a.held[len(a.held)-1]
}

// after lets that time pass, with a comparison every two seconds, and returns the findings.
func (w *world) after(d time.Duration) (list []string) {
	w.Helper()
	for end := w.now.Add(d); !w.now.After(end); w.now = w.now.Add(compareEvery) {
		w.readAgain(w.Context(), w.step(w.now))
	}
	for _, f := range w.found {
		text := fmt.Sprintf("%s %s on %s", f.Kind, f.Pod, f.Node)
		if f.IP.IsValid() {
			text = fmt.Sprintf("%s %s %s on %s", f.Kind, f.IP, f.Pod, f.Node)
		}
		if f.ReservedPod != nil {
			text += " for " + f.ReservedPod.String()
		}
		if f.ReservedNode != "" {
			text += " of " + f.ReservedNode
		}
		list = append(list, text)
	}
	return list
}

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
			w.agent("n2").summary.Ranges = []string{"10.2.1.1-10.2.1.254", "10.2.2.1-10.2.2.254"}
		}, 0, []string{"overlapping  on n2 of n1"}},
		"a range of every node": {func(w *world) {
			for _, name := range []string{"n1", "n2", "n3"} {
				w.agent(name).summary.Ranges = []string{"10.88.0.1-10.88.255.254", "nonsense", "10.3.0.9-10.3.0.1"}
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
		if s := w.Stats(); s.Findings[document.Misbooked] != 0 || s.Findings[InConflict] != 1 {
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

// TestAbout: what the books say of a conflict: who has the reservation, who had it, and which pods and Nodes there are.
func TestAbout(t *testing.T) {
	w := newWorld(t)
	a := *w.holds("n3", "10.1.1.5", "shop/a")
	w.pod("shop/a", "n3", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/a", "n1", ""})
	w.after(time.Second)
	w.block("10.1.1.0/26")
	w.after(time.Second)
	b := *w.holds("n2", "10.1.1.5", "shop/b")
	w.pod("shop/b", "n2", "10.1.1.5", "")
	w.block("10.1.1.0/26", allocated{"10.1.1.5", "shop/b", "n2", ""})
	w.gone("pods", "shop/a")
	w.gone("nodes", "n3")
	w.after(time.Second)
	c := document.Conflict{IP: a.ip, Holders: []document.Binding{{Holder: a.document()}, {Holder: b.document()}}}
	w.About(&c)
	if len(c.Books) != 1 {
		t.Fatalf("%+v", c.Books)
	}
	book := c.Books[0]
	if book.Node != "" || book.Kind != "calico" || book.Reservation.Pod.String() != "shop/b" || book.Reservation.Sandbox != b.sandbox ||
		book.Former.Pod.String() != "shop/a" || book.Former.Node != "n1" || book.Former.Until.IsZero() {
		t.Errorf("%+v, %+v, %+v", book, book.Reservation, book.Former)
	}
	if l := c.Holders[0].Listing; l.Pod != document.PodUnlisted || l.NodeDeleted.IsZero() {
		t.Errorf("%+v", l)
	}
	if l := c.Holders[1].Listing; *l != (document.Listing{Pod: document.PodListed}) {
		t.Errorf("%+v", l)
	}
	w.running = false
	c = document.Conflict{IP: a.ip, Holders: []document.Binding{{Holder: a.document()}}}
	if w.About(&c); len(c.Books) > 0 || c.Holders[0].Listing != nil {
		t.Errorf("of another reporter: %+v", c)
	}
}

// TestHostile: whoever may write objects cannot do harm.
func TestHostile(t *testing.T) {
	w := newWorld(t)
	long := strings.Repeat("x", 1<<20)
	for _, text := range []string{
		`null`, `7`, `[]`, `{}`, `{"metadata": 7}`, `{"metadata": {"name": ""}}`, `{"metadata": {"name": "` + long + `"}}`,
		`{"metadata": {"name": "x", "creationTimestamp": "yesterday"}}`,
	} {
		for _, s := range w.sources() {
			if err := s.change(json.RawMessage(text), false); err != nil {
				t.Errorf("%s: %.80s: %v", s.name, text, err)
			}
		}
	}
	for _, spec := range []string{
		`null`, `7`, `{"cidr": "nonsense"}`, `{"cidr": "10.1.1.0/26", "allocations": 7}`, `{"cidr": "0.0.0.0/0", "allocations": [0, -1, 99999999999], "attributes": [{}]}`,
		`{"cidr": "255.255.255.192/26", "allocations": [` + strings.Repeat("0,", 100) + `0], "attributes": [{"secondary": {"pod": "a", "namespace": "b"}}]}`,
		`{"cidr": "::/0", "allocations": [0], "attributes": [{"handle_id": "` + long + `", "secondary": {"pod": "` + long + `", "node": "` + long + `"}}]}`,
		`{"cidr": "10.1.1.0/26", "allocations": [` + strings.Repeat("0,", maxBlock) + `0], "attributes": [{}]}`,
		`{"podCIDRs": ["x", "10.0.0.0/8", "::/0", "10.0.0.0/8"], "nodeName": 7}`, `{"blockSize": -7, "cidr": "10.1.0.0/16"}`, `{"blockSize": 999, "cidr": "::/0"}`,
	} {
		for _, s := range w.sources() {
			if err := s.change(json.RawMessage(`{"metadata": {"name": "hostile", "namespace": "x"}, "spec": `+spec+`, "status": `+spec+`}`), false); err != nil {
				t.Errorf("%s: %.80s: %v", s.name, spec, err)
			}
		}
		w.after(20 * time.Second)
		w.Of(netip.MustParseAddr("10.1.1.5"))
		w.Stats()
		w.Findings()
	}
	if r, _ := w.ipams["calico"].reservation(netip.MustParseAddr("::")); len(r.Pod) > 0 {
		t.Errorf("%.100s", r.Pod)
	}
}

// TestParse: the setting of the books.
func TestParse(t *testing.T) {
	for setting, want := range map[string]string{"auto": fmt.Sprint(Names(), true, nil), "off": "[] false <nil>", "kubernetes,calico": "[kubernetes calico] false <nil>"} {
		names, auto, err := Parse(setting)
		if got := fmt.Sprint(names, auto, err); got != want {
			t.Errorf("%s: %s, want %s", setting, got, want)
		}
	}
	if _, _, err := Parse("calico,etcd"); err == nil {
		t.Error("a book that there is not is accepted")
	}
}
