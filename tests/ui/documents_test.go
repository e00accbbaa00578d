package ui

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	gossip "github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
	"github.com/dupip/dupip/tests/lab"
)

// serveDocuments answers on a socket like an agent, with documents by path.
func serveDocuments(t testing.TB, documents map[string]any) (socket string) {
	t.Helper()
	dir, err := lab.TempDir()
	if err != nil {
		t.Fatal(err)
	}
	socket = filepath.Join(dir, t.Name()+".sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = json.NewEncoder(w).Encode(documents[r.URL.Path])
	})}
	go server.Serve(listener) //nolint:errcheck // it ends with the test
	t.Cleanup(func() { server.Close() })
	return socket
}

// shared is the address of the first conflict.
var shared = netip.MustParseAddr("10.244.1.11")

// cluster are the documents of a cluster with that many nodes and conflicts.
func cluster(nodes, conflicts int) map[string]any {
	now := time.Now()
	c := document.Conflicts{Node: "worker-0001", Coverage: document.Coverage{Asked: nodes, Missing: []string{"worker-0017", "worker-0018"}, Partial: true}}
	for n := range conflicts {
		c.Conflicts = append(c.Conflicts, conflict(n, now))
	}
	if conflicts > 3 {
		c.Pairs = []document.Pair{{Nodes: []string{"worker-0003", "worker-0007"}, Addresses: conflicts, Examples: []document.Address{{Network: "default", IP: shared}}, Since: now}}
	}
	var all document.Nodes
	for n := range nodes {
		node := document.Node{
			Member: gossip.Member{
				Name: fmt.Sprintf("worker-%04d", n), Boot: "5f3a9b21", Address: fmt.Sprintf("10.0.%d.%d:7951", n/250, n%250+1), Version: "0.2.0",
				State: "alive", Since: now.Add(-30 * time.Hour), Heard: now.Add(-time.Second), Self: n == 1,
			},
			Interfaces: map[string]int{"attached": 30 + n%20}, Reported: now,
		}
		switch n {
		case 17, 18:
			node.State, node.Since, node.Heard = "dead", now.Add(-4*time.Minute), now.Add(-4*time.Minute)
		case 42:
			node.Interfaces["failed"] = 1
		case 64:
			node.Findings = map[string]int{"unreserved address": 3}
		}
		all.Nodes = append(all.Nodes, node)
	}
	story := document.Story{
		Network: "default", IP: shared, Nodes: []string{"worker-0003", "worker-0007"},
		Verdict: "two live holders answered both rounds 1.0 s apart: a conflict",
	}
	if conflicts > 0 {
		story.Conflict, story.Bindings, story.IP = &c.Conflicts[0], c.Conflicts[0].Holders, c.Conflicts[0].IP
		story.Notes = notes(c.Conflicts[0])
	}
	e := document.Explanation{Node: "worker-0001", IP: story.IP, Stories: []document.Story{story}, Coverage: document.Coverage{Asked: nodes}, Books: []document.Book{
		{Node: "worker-0003", BootID: "worker-0003", Kind: "host-local", CNINetwork: "pods", Covers: true, Range: "10.244.1.2-10.244.1.254", Reservation: &document.Reservation{
			Sandbox: "b10c9f0e77aa1", Pod: &document.Pod{Namespace: "shop", Name: "cart-6d5f8c7b9-x2v4k"}, Since: now.Add(-26 * time.Hour),
		}},
	}}
	audit := document.Audit{Node: "worker-0001", At: now, Verdict: document.AuditFindings, Checked: []string{"pods"}, Coverage: document.Coverage{Asked: nodes}}
	for n := range min(conflicts, 12) {
		audit.Findings = append(audit.Findings, document.Finding{
			Holder: document.Holder{Node: fmt.Sprintf("worker-%04d", n), Interface: "veth1", Netns: "cni-1", Pod: &document.Pod{Namespace: "shop", Name: fmt.Sprintf("search-%d", n)}, Given: detector.GivenYes}, Kind: "unreserved", IP: netip.AddrFrom4([4]byte{10, 244, 9, byte(n + 2)}), CNINetwork: "pods", Book: "host-local", Store: "/var/lib/cni/networks/pods",
			Since:   now.Add(-time.Hour),
			Sandbox: "4e07408562bedb8b60ce05c1decfe3ad16b72230967de01f640b7e4729b49fce",
		})
	}
	return map[string]any{"/v1/conflicts": c, "/v1/nodes": all, "/v1/explain": e, "/v1/audit": audit}
}

// conflict is the n-th one: between two pods, with very long names for some.
func conflict(n int, now time.Time) document.Conflict {
	ip, second := netip.AddrFrom4([4]byte{10, 244, byte(1 + n/240), byte(11 + n%240)}), now.Add(-time.Duration(n+3)*time.Minute)
	pods, given := []string{"cart-6d5f8c7b9-x2v4k", "search-0"}, []detector.Given{detector.GivenYes, detector.GivenNo}
	switch n % 5 {
	case 1:
		ip, pods = netip.MustParseAddr(fmt.Sprintf("2001:db8:4a5b:6c7d:8e9f:abcd:%x:23", 0x1000+n)), []string{"mail-0", "mail-1"}
	case 2:
		pods = []string{"a-pod-with-a-very-long-name-that-somebody-generated-from-three-other-names-7f9c6d5b48-zzzzz", "b-<b>bold</b>"}
	}
	c := document.Conflict{
		ID: fmt.Sprintf("5f3a9b21-%d", n), Network: "default", IP: ip, State: detector.Confirmed, Scope: detector.CrossNode,
		SecondSeen: second, SuspectedAt: second.Add(8 * time.Millisecond), ConfirmedAt: second.Add(time.Second),
	}
	for m, pod := range pods {
		node := fmt.Sprintf("worker-%04d", 3+4*m)
		c.Holders = append(c.Holders, document.Binding{
			Network: "default", IP: ip, Holder: document.Holder{Node: node, BootID: node, Interface: fmt.Sprintf("veth5e%06x", 2*n+m), Bridge: "cni0", MAC: detector.MAC{2, 0x42, 10, 0xf4, byte(m), byte(n)}, Netns: fmt.Sprintf("cni-3f9c2d10-8a47-11ee-b962-0242ac12%04x", 2*n+m), Given: given[m], Pod: &document.Pod{Namespace: "shop", Name: pod, UID: fmt.Sprintf("9b1deb4d-3b7d-4bad-9bdd-2b0d7b3d%04x", 2*n+m), Sandbox: "b10c9f0e77aa1"}},
			Evidence: detector.Announced, Facts: &document.Facts{Behind: document.BehindRunning}, FirstSeen: second.Add(time.Duration(m-1) * 26 * time.Hour), LastSeen: now.Add(-time.Second),
		})
	}
	if n%7 == 6 {
		c.State, c.ConfirmedAt, c.Pending = detector.Suspected, time.Time{}, "one holder has not answered the second round yet"
		return c
	}
	c.Routes = []document.Route{{Node: "worker-0003", BootID: "worker-0003", To: "holder", Holder: new(0)}, {Node: "worker-0007", BootID: "worker-0007", To: "holder", Holder: new(1)}}
	c.Judgement = judge.Of(c, judge.Context{Now: now})
	say.Fill(&c, nil)
	return c
}

// notes are what happened before a conflict was confirmed.
func notes(c document.Conflict) (all []document.Note) {
	add := func(at time.Time, kind, node string, holder int, text string) {
		note := document.Note{At: at, Kind: kind, Node: node, Text: text}
		if holder >= 0 {
			note.Holder = &c.Holders[holder].Holder
		}
		all = append(all, note)
	}
	t := c.SecondSeen
	add(t.Add(-26*time.Hour), "seen", "worker-0003", 0, "first seen: announced on "+c.Holders[0].Interface)
	add(t, "seen", "worker-0007", 1, "first seen: announced on "+c.Holders[1].Interface)
	add(t.Add(8*time.Millisecond), "conflict", "worker-0007", -1, "suspected: 2 holders with evidence that counts")
	add(t.Add(9*time.Millisecond), "solicited", "worker-0003", 0, "probed to verify")
	add(t.Add(10*time.Millisecond), "answered", "worker-0003", 0, "answered after 0.4 ms")
	add(t.Add(11*time.Millisecond), "answered", "worker-0007", 1, "answered after 0.3 ms")
	add(t.Add(time.Second), "conflict", "worker-0007", -1, "confirmed: 2 live holders answered both rounds 1.0 s apart")
	return all
}
