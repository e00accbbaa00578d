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
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
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
	silent  bool              // the agents
	during  func()            // is called while the API server is asked
}

// testOptions are those of all books, with one network of the cluster.
func testOptions(api *kube.Client) Options {
	return Options{
		Log: slog.New(slog.DiscardHandler), API: api, Names: Names(), Auto: true, Answers: func() bool { return true },
		Rules: merge.Rules{ClusterWide: func(network string) bool { return network == "default" }, Shared: func(ip netip.Addr) bool { return ip == netip.MustParseAddr("10.1.99.99") }},
	}
}

// newWorld has the nodes n1 to n3, with Calico's pool 10.1.0.0/16, and the pod shop/by of n2, which Calico knows.
func newWorld(t testing.TB) *world {
	w := &world{TB: t, now: noon, objects: make(map[string]string)}
	server := httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		w.got = append(w.got, r.URL.Path)
		if w.during != nil {
			w.during()
		}
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
	w.Books = New(testOptions(kube.New(server.URL, token, nil)))
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

// ranges are those that a node's book gives out.
func (w *world) ranges(node string, list ...string) {
	a := w.agent(node)
	s := a.summary
	s.Ranges, s.Bindings = list, 1
	a.has = 1
	w.Summary(cluster.NodeID(node, "boot"), s)
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
		for _, a := range w.wire.agents {
			if a.again && !w.silent {
				a.again, a.at = false, w.now.Add(time.Millisecond)
			}
		}
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
