package page

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
	"github.com/dupip/dupip/document/say"
)

// documents is a source with fixed documents, made anew for each request.
type documents struct {
	conflicts func() document.Conflicts
	explain   func() document.Explanation
	nodes     func() document.Nodes
	audit     func() document.Audit
	err       error
}

func answer[T any](doc func() T, err error) (made T, _ error) {
	if doc != nil {
		made = doc()
	}
	return made, err
}

func (d documents) Conflicts(context.Context, document.Query) (document.Conflicts, error) {
	return answer(d.conflicts, d.err)
}

func (d documents) Explain(context.Context, document.Query) (document.Explanation, error) {
	return answer(d.explain, d.err)
}

func (d documents) Nodes(context.Context, document.Query) (document.Nodes, error) {
	return answer(d.nodes, d.err)
}

func (d documents) Audit(context.Context, document.Query) (document.Audit, error) {
	return answer(d.audit, d.err)
}

var seen = time.Now().Add(-72 * time.Hour) // an age in days does not change during a test

func binding(node, pod, ip string) document.Binding {
	return document.Binding{
		Network: "default", IP: netip.MustParseAddr(ip), Holder: document.Holder{
			Node: node, BootID: "b-" + node, Interface: "veth-" + pod, MAC: detector.MAC{2, 0, 0, 0, 0, 1}, Netns: "cni-" + pod,
			Given: detector.GivenYes, Pod: &document.Pod{Namespace: "shop", Name: pod, UID: fmt.Sprintf("%08x-2222-4333-8444-555555555555", len(pod))},
		},
		Facts:    &document.Facts{Behind: document.BehindRunning},
		Evidence: detector.Announced, FirstSeen: seen, LastSeen: seen,
	}
}

func conflict(ip string, holders ...document.Binding) document.Conflict {
	c := document.Conflict{
		ID: "c-" + ip, Network: "default", IP: netip.MustParseAddr(ip), State: detector.Confirmed, Scope: detector.CrossNode, SecondSeen: seen, SuspectedAt: seen, ConfirmedAt: seen,
		Holders: holders,
	}
	if c.IP != netip.MustParseAddr("192.0.2.7") { // a drill
		c.Judgement = judge.Of(c, judge.Context{Now: time.Now()})
		say.Fill(&c, nil)
	}
	return c
}

// ask makes a request as a browser on this machine does.
func ask(source Source, target string, header ...string) *http.Response {
	r := httptest.NewRequest(http.MethodGet, "http://localhost:8080"+target, nil)
	for n := 0; n < len(header); n += 2 {
		r.Header.Set(header[n], header[n+1])
	}
	w := httptest.NewRecorder()
	New(source, "dupip").ServeHTTP(w, r)
	return w.Result()
}

func body(t *testing.T, r *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// has checks that a page has all these texts, in this order.
func has(t *testing.T, page string, texts ...string) {
	t.Helper()
	rest := page
	for _, text := range texts {
		_, after, found := strings.Cut(rest, text)
		if !found {
			t.Errorf("the page has no %q at its place:\n%s", text, page)
			return
		}
		rest = after
	}
}

const evil = `<img src=x onerror=alert(1)>"'`

var evilStep = document.Step{If: evil, Text: evil, Command: evil, Node: evil, Address: evil, Cuts: evil, File: evil}

var hostile = documents{
	conflicts: func() document.Conflicts {
		c := conflict("10.0.0.7", binding("n1", "web", "10.0.0.7"), binding(evil, evil, "10.0.0.7"))
		c.Network, c.ID = evil, evil
		c.Holders[1].Evidence, c.Judgement.Text, c.Judgement.Steps[0] = 255, evil, evilStep
		return document.Conflicts{Conflicts: []document.Conflict{c}, Coverage: document.Coverage{Asked: 3, Missing: []string{evil}, Partial: true}}
	},
	explain: func() document.Explanation {
		one, other := binding("n1", "web", "10.0.0.7"), binding(evil, evil, "10.0.0.7")
		c := conflict("10.0.0.7", one, other)
		c.ID, c.Judgement.Text, c.Judgement.Steps[0] = evil, evil, evilStep
		return document.Explanation{Node: "n1", IP: netip.MustParseAddr("10.0.0.7"), Stories: []document.Story{{
			Network: evil, IP: netip.MustParseAddr("10.0.0.7"), Nodes: []string{"n1", evil}, Verdict: evil, Bindings: []document.Binding{one, other}, Conflict: &c,
			Notes: []document.Note{{At: seen, Kind: evil, Node: evil, Holder: &other.Holder, Text: evil + "\u202e\x00"}},
		}}, Books: []document.Book{{Node: evil, Kind: evil, CNINetwork: evil, Error: evil}}}
	},
	nodes: func() document.Nodes {
		return document.Nodes{Nodes: []document.Node{{
			Member:     cluster.Member{Name: evil, Boot: evil, State: evil, Namesake: true, Version: evil, Address: evil, Role: evil},
			Interfaces: map[string]int{evil: 1}, Findings: map[string]int{evil: 1}, Reported: seen,
		}}, Cluster: document.ClusterStatus{Status: cluster.Status{Problems: []string{evil}}}}
	},
	audit: func() document.Audit {
		return document.Audit{Node: "n1", Findings: []document.Finding{{
			Holder: document.Holder{Node: evil, Pod: &document.Pod{Namespace: evil, Name: evil}}, Kind: "unreserved", IP: netip.MustParseAddr("fe80::1%" + evil), CNINetwork: evil, Book: evil, Store: evil, Since: seen, ReservedFor: evil,
		}}, Unchecked: []string{evil}, Error: evil}
	},
}

// A browser loads nothing from elsewhere and runs no script of a text, and only this machine is answered.
func TestPolicy(t *testing.T) {
	const want = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
	for _, target := range []string{"/", "/page.js", "/nothing", "/?nothing=1"} {
		if got := ask(hostile, target).Header.Get("Content-Security-Policy"); got != want {
			t.Errorf("%s: %q, want %q", target, got, want)
		}
	}
	foreign, w := httptest.NewRequest(http.MethodGet, "http://rebound.example/", nil), httptest.NewRecorder()
	if New(hostile, "dupip").ServeHTTP(w, foreign); w.Code != http.StatusForbidden {
		t.Errorf("another host: %d", w.Code)
	}
}

// What pods, nodes and users wrote is text in every view.
func TestHostileTexts(t *testing.T) {
	failing := documents{err: errors.New(evil)}
	for target, source := range map[string]documents{
		"/": hostile, "/explain?ip=10.0.0.7": hostile, "/nodes": hostile, "/audit": hostile,
		"/?q=%3Cimg+src%3Dx+onerror": hostile, "/nodes?from=0&q=%22%27%3E%3Cimg": hostile, "/explain?ip=%3Cimg": hostile, "/?%3Cimg=1": hostile,
		"/audit?q=x": failing, "/%3Cimg": hostile,
	} {
		page := body(t, ask(source, target))
		if strings.Contains(page, "<img") || strings.ContainsAny(page, "\u202e\x00") {
			t.Errorf("%s:\n%s", target, page)
		}
		if !strings.Contains(page, "&lt;img") && target != "/%3Cimg" {
			t.Errorf("%s does not have the text:\n%s", target, page)
		}
	}
}

// Both holders, where they are and what to do, in the words of the command line.
func TestAddress(t *testing.T) {
	one, other := binding("n1", "web", "10.0.0.7"), binding("n2", "copy", "10.0.0.7")
	other.Given = detector.GivenNo
	c := conflict("10.0.0.7", one, other)
	page := body(t, ask(documents{explain: func() document.Explanation {
		return document.Explanation{Node: "n1", IP: netip.MustParseAddr("10.0.0.7"), Stories: []document.Story{{
			Network: "default", IP: netip.MustParseAddr("10.0.0.7"), Nodes: []string{"n1", "n2"}, Verdict: "both answered", Bindings: c.Holders, Former: c.Holders[:1], Conflict: &c,
			Notes: []document.Note{{At: seen, Kind: "conflict", Node: "n1", BootID: "b-n1", Text: "confirmed: 2 live holders"}},
		}}, Books: []document.Book{{Node: "n1", BootID: "b-n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.9"}}, Coverage: document.Coverage{Asked: 3, Missing: []string{"n3"}, Partial: true}}
	}}, "/explain?ip=10.0.0.7"))
	has(t, page, "<title>10.0.0.7 – dupip</title>", `<span class="badge confirmed">confirmed</span>`,
		"shop/web</h3>", "<strong>n1</strong>", "veth-web", "was given the address by a network plugin",
		"shop/copy</h3>", "<strong>n2</strong>", "was not given the address by any network plugin",
		"What to do</h2>", "Remove shop/copy on n2, which no network plugin gave the address (this cuts the pod shop/copy,",
		"<code>echo &#39;{&#34;apiVersion&#34;:", "kubectl delete --raw /api/v1/namespaces/shop/pods/copy -f -</code>",
		"Why</h2>", "No network plugin gave shop/copy on n2 the address", "Verdict: both answered.",
		"list it under &#34;shared&#34;", "Who had it before", "shop/web on node n1, interface veth-web: ",
		"What happened</h2>", "[n1] confirmed: 2 live holders",
		"on record</h2>", "Books of node n1:", "shop/web was given the address", "host-local, network pods: not reserved, although it gives out 10.0.0.1-10.0.0.9",
		"1 of 3 nodes did not answer: n3; their stories are missing.")
}

func TestCalm(t *testing.T) {
	page := body(t, ask(documents{conflicts: func() document.Conflicts { return document.Conflicts{Coverage: document.Coverage{Asked: 5000}} }}, "/"))
	has(t, page, "No conflict is open</h1>", "5000 of 5000 nodes have answered.")
	if strings.Contains(page, "<table") {
		t.Errorf("an empty table:\n%s", page)
	}
	has(t, page, `<h1 class="calm">`)
	partial := documents{conflicts: func() document.Conflicts {
		return document.Conflicts{Coverage: document.Coverage{Asked: 3, Missing: []string{"n3"}, Partial: true}}
	}}
	has(t, body(t, ask(partial, "/")), "<h1>No conflict is open</h1>", "2 of 3 nodes have answered.", "1 of 3 nodes did not answer: n3;")
	drill := documents{conflicts: func() document.Conflicts {
		c := conflict("192.0.2.7", binding("n1", "a", "192.0.2.7"), binding("n2", "b", "192.0.2.7"))
		c.Drill = true
		return document.Conflicts{Conflicts: []document.Conflict{c}, Coverage: document.Coverage{Asked: 1}}
	}}
	has(t, body(t, ask(drill, "/")), "No conflict is open</h1>", "1 drill</span>", "One node was asked.", `"badge drill">drill`, "192.0.2.7: Nothing: it is a drill")
}

// The resolved conflicts of a time, or all: when each began, and how long it lasted.
func TestEnded(t *testing.T) {
	over := conflict("10.0.0.8", binding("n1", "a", "10.0.0.8"), binding("n2", "b", "10.0.0.8"))
	over.State, over.ResolvedAt, over.Judgement = detector.Resolved, seen.Add(90*time.Minute), nil
	source := documents{conflicts: func() document.Conflicts {
		return document.Conflicts{Conflicts: []document.Conflict{over}, Coverage: document.Coverage{Asked: 2}}
	}}
	for target, chosen := range map[string]string{
		"/": `"" selected>no resolved ones`, "/?all=1": `"all" selected>`, "/?since=all": `"all" selected>`, "/?since=12h": `"12h" selected>`, "/?since=100h": `"100h" selected>resolved in the last 100h`,
	} {
		has(t, body(t, ask(source, target)), "<option value="+chosen, ">Began<", ">Lasted<", `data-label="began"><time`, seen.Local().Format(">Jan 2 15:04<"), `data-label="lasted">90m<`)
	}
	if page := body(t, ask(hostile, "/")); strings.Contains(page, "Began") {
		t.Errorf("nothing is over:\n%s", page)
	}
	for target, want := range map[string]request{
		"since=12h": {Since: 12 * time.Hour, Ended: "12h"}, "since=all": {Ended: "all"}, "all=1": {Ended: "all"}, "since=": {},
	} {
		values, _ := url.ParseQuery(target)
		if got, err := parse("conflicts", values); err != nil || got != want || got.All() != (target != "since=") {
			t.Errorf("%s: %+v, %v, want %+v", target, got, err, want)
		}
	}
}

// A page without findings says what was checked.
func TestAuditWithoutFindings(t *testing.T) {
	for verdict, want := range map[string]string{
		document.AuditAgrees: "No finding: books and wire agree</h1>", document.AuditNothing: "No finding, because nothing was checked</h1>",
		document.AuditPartly: "No finding, but the check is not complete</h1>", "": "No finding, but the check is not complete</h1>",
	} {
		page := body(t, ask(documents{
			audit: func() document.Audit {
				return document.Audit{Verdict: verdict, Unchecked: []string{"everything: no network"}}
			},
		}, "/audit"))
		has(t, page, want, "Not checked: everything: no network.")
		if agrees := strings.Contains(page, "agree"); agrees != (verdict == document.AuditAgrees) {
			t.Errorf("%q:\n%s", verdict, page)
		}
	}
	nodes := documents{nodes: func() document.Nodes {
		return document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n1", State: "alive"}, Audit: document.AuditNothing, Reported: seen}, {Member: cluster.Member{Name: "n2", State: "alive"}, Audit: document.AuditAgrees, Reported: seen}}}
	}}
	if page := body(t, ask(nodes, "/nodes")); strings.Count(page, `<span class="badge">audit: `) != 1 {
		t.Errorf("the nodes' audits:\n%s", page)
	} else {
		has(t, page, ">n1<", "audit: not checked</span>", ">n2<")
	}
}

// Counts of a node that is away have the time at which it sent them.
func TestLastCounts(t *testing.T) {
	counts := map[string]int{"attached": 3}
	page := body(t, ask(documents{nodes: func() document.Nodes {
		return document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n1", State: "alive"}, Interfaces: counts, Reported: seen}, {Member: cluster.Member{Name: "n2", State: "dead"}, Interfaces: counts, Reported: seen}}}
	}}, "/nodes"))
	const there = `3 attached</span> `
	has(t, page, ">n2<", there+` <span class="age"><time`, "3d ago</time>", ">n1<", there+"</td>")
}

// Of many nodes few are heard each second, so when does not say anything about one that is alive.
func TestHeard(t *testing.T) {
	page := body(t, ask(documents{nodes: func() document.Nodes {
		return document.Nodes{Nodes: []document.Node{{Member: cluster.Member{Name: "n1", State: "alive", Heard: seen}}, {Member: cluster.Member{Name: "n2", State: "dead", Heard: seen}}}}
	}}, "/nodes"))
	has(t, page, ">n2<", `data-label="heard"><time`, ">n1<", `data-label="heard">–<`)
}

// An error of the source is a line on a page that works.
func TestSourceFails(t *testing.T) {
	r := ask(documents{err: errors.New("no agent is running at /run/dupip.sock")}, "/")
	if r.StatusCode != http.StatusServiceUnavailable || r.Header.Get("ETag") != "" {
		t.Errorf("%s, ETag %q", r.Status, r.Header.Get("ETag"))
	}
	has(t, body(t, r), `<a href="/nodes"`, "no agent is running at /run/dupip.sock</p>")
}

func TestRefused(t *testing.T) {
	for target, want := range map[string]string{
		"/?ip=10.0.0.1":                   "no such parameter",
		"/?since=-1h":                     "must be a duration such as 30m or 12h",
		"/?since=87601h":                  "at most 87600h",
		"/nodes?since=1h":                 "no such parameter",
		"/explain?ip=10.0.0":              "is not an IP address",
		"/explain?ip=1.1.1.1&ip=1.1.1.2":  "given 2 times",
		"/nodes?from=-1":                  "must be a number",
		"/?q=" + strings.Repeat("x", 318): "at most 317 bytes",
	} {
		r := ask(hostile, target)
		if page := body(t, r); r.StatusCode != http.StatusBadRequest || !strings.Contains(page, want) {
			t.Errorf("%s: %s, %s", target, r.Status, page)
		}
	}
	if r := ask(hostile, "/other"); r.StatusCode != http.StatusNotFound {
		t.Errorf("another page: %s", r.Status)
	}
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions} {
		w := httptest.NewRecorder()
		New(hostile, "dupip").ServeHTTP(w, httptest.NewRequest(method, "http://localhost/", nil))
		if w.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: %d", method, w.Code)
		}
	}
}

// A page that has not changed is not sent again.
func TestNotModified(t *testing.T) {
	for _, target := range []string{"/", "/explain?ip=10.0.0.7", "/nodes", "/audit", "/page.css", "/page.js"} {
		first := ask(hostile, target)
		etag := first.Header.Get("ETag")
		again := ask(hostile, target, "If-None-Match", etag)
		if first.StatusCode != http.StatusOK || etag == "" || again.StatusCode != http.StatusNotModified || body(t, again) != "" {
			t.Errorf("%s: %s, ETag %s, then %s", target, first.Status, etag, again.Status)
		}
		if r := ask(documents{}, "/", "If-None-Match", etag); r.StatusCode != http.StatusOK {
			t.Errorf("another page with the ETag of %s: %s", target, r.Status)
		}
	}
}

func many(n int) documents {
	return documents{
		conflicts: func() document.Conflicts {
			d := document.Conflicts{Coverage: document.Coverage{Asked: n}}
			for i := range n {
				ip := fmt.Sprintf("10.1.%d.%d", i/250, i%250)
				d.Conflicts = append(d.Conflicts, conflict(ip, binding(fmt.Sprintf("n%d", i%7), fmt.Sprintf("a-%d", i), ip), binding("other", "b", ip)))
			}
			return d
		},
		nodes: func() (d document.Nodes) {
			for i := range n {
				d.Nodes = append(d.Nodes, document.Node{Member: cluster.Member{Name: fmt.Sprintf("node-%04d", i), State: "alive"}})
			}
			d.Nodes[n-1].State = "dead"
			return d
		},
		audit: func() (d document.Audit) {
			for i := range n {
				d.Findings = append(d.Findings, document.Finding{Holder: document.Holder{Node: "n1"}, Kind: "unreserved", IP: netip.MustParseAddr(fmt.Sprintf("10.1.%d.%d", i/250, i%250))})
			}
			return d
		},
	}
}

// Lists have parts and a filter, whatever their length.
func TestLongLists(t *testing.T) {
	for _, test := range []struct {
		n      int
		target string
		rows   int
		texts  []string
	}{
		{500, "/", 100, []string{"500 conflicts are open", "500 confirmed", "By node", "other 500", "What to do</h2>", "dupip explain 10.1.0.0", "1 to 100 of 500", "?from=100\""}},
		{500, "/?from=400", 100, []string{"10.1.1.150", "401 to 500 of 500", "?from=300\""}},
		{500, "/?from=9999", 100, []string{"401 to 500 of 500"}},
		{500, "/?q=10.1.1.0/30", 4, []string{"500 conflicts are open", `value="10.1.1.0/30"`, "10.1.1.0<", "10.1.1.3<"}},
		{500, "/?q=shop/a-7", 11, []string{"shop/a-7<", "shop/a-79<"}},
		{500, "/?q=N3", 71, []string{">n3<"}},
		{5000, "/nodes", 100, []string{"5000 nodes", "4999 alive", "1 dead", "node-4999", "node-0000", "1 to 100 of 5000"}},
		{5000, "/nodes?q=node-0&from=100", 100, []string{"101 to 200 of 1000", "?from=0&amp;q=node-0", "?from=200&amp;q=node-0"}},
		{500, "/audit", 100, []string{"500 audit findings", "1 to 100 of 500"}},
	} {
		page := body(t, ask(many(test.n), test.target))
		has(t, page, test.texts...)
		rows := strings.Count(page, `scope="rowgroup"`) + strings.Count(page, `scope="row"`)
		if rows != test.rows || len(page) > 150_000 {
			t.Errorf("%s has %d rows in %d bytes, want %d", test.target, rows, len(page), test.rows)
		}
	}
}

// A source that hangs holds up a few requests, for a while.
func TestSlowSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		page := New(stuck{}, "dupip")
		codes := make(chan int)
		began := time.Now()
		for range 3 * maxAtOnce {
			go func() {
				w := httptest.NewRecorder()
				page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://[::1]:80/", nil))
				codes <- w.Code
			}()
		}
		for range 3 * maxAtOnce {
			if code := <-codes; code != http.StatusServiceUnavailable {
				t.Errorf("status %d", code)
			}
		}
		if d := time.Since(began); d > maxTime {
			t.Errorf("took %v", d)
		}
	})
}

// stuck answers when it has to.
type stuck struct{ documents }

func (stuck) Conflicts(ctx context.Context, _ document.Query) (document.Conflicts, error) {
	<-ctx.Done()
	return document.Conflicts{}, ctx.Err()
}
