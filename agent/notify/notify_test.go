package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
)

// source has what a test says.
type source struct {
	mu    sync.Mutex
	doc   document.Conflicts
	local bool
	watch chan document.ConflictEvent
}

func newSource() *source { return &source{watch: make(chan document.ConflictEvent, 8)} }

func (s *source) Conflicts(context.Context, document.Query) (document.Conflicts, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	doc := s.doc
	doc.Conflicts = slices.Clone(doc.Conflicts)
	return doc, nil
}

func (s *source) WatchConflicts(context.Context) (<-chan document.ConflictEvent, error) {
	return s.watch, nil
}

func (s *source) Spans(context.Context) (func(string) bool, error) {
	return func(string) bool { return !s.local }, nil
}

// set changes what there is, and tells of it.
func (s *source) set(conflicts ...document.Conflict) {
	s.mu.Lock()
	s.doc.Conflicts = conflicts
	s.mu.Unlock()
	s.watch <- document.ConflictEvent{Type: "changed", Conflict: document.Conflict{State: detector.Confirmed}}
}

// conflict is one between some nodes.
func conflict(ip string, nodes ...string) document.Conflict {
	c := document.Conflict{
		ID: ip + "-1", Network: "default", IP: netip.MustParseAddr(ip), State: detector.Confirmed, ConfirmedAt: time.Now().Round(0),
		Judgement: &document.Judgement{
			Cause: document.CauseUnknown, Confidence: document.Undecided, Short: "It is not known which holder is right.", Text: "All of it.",
			Steps: []document.Step{{Text: "Look", Command: "ip address", Node: "a"}},
		},
	}
	for i, node := range nodes {
		h := document.Holder{Node: node, BootID: "boot", Interface: fmt.Sprint("veth", i), Netns: fmt.Sprint("pod", i)}
		c.Holders = append(c.Holders, document.Binding{Network: c.Network, IP: c.IP, Holder: h, Evidence: detector.Announced})
	}
	return c
}

// resolved is its end.
func resolved(c document.Conflict) document.Conflict {
	c.State, c.ResolvedAt, c.Holders = detector.Resolved, time.Now().Round(0), c.Holders[:1]
	return c
}

// alertmanager merges alerts as Alertmanager does (provider/mem.Put, types.Alert.Merge).
type alertmanager struct {
	mu       sync.Mutex
	away     bool
	alerts   map[string]posted
	changes  []string // of whether one fires
	largest  int      // request
	requests int
}

func (m *alertmanager) RoundTrip(q *http.Request) (*http.Response, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.requests++
	if m.away {
		return nil, errors.New("connection refused")
	}
	var list []posted
	if err := json.NewDecoder(q.Body).Decode(&list); err != nil {
		return nil, err
	}
	m.largest = max(m.largest, len(list))
	for _, p := range list {
		if p.EndsAt.Before(p.StartsAt) {
			return nil, fmt.Errorf("%v ends before it starts", p)
		}
		key := fmt.Sprint(p.Labels) // in order
		old, known := m.alerts[key]
		within := func(t time.Time) bool { return t.After(old.StartsAt) && t.Before(old.EndsAt) }
		was := known && old.EndsAt.After(time.Now())
		if known && (within(p.EndsAt) || within(p.StartsAt)) {
			if old.StartsAt.Before(p.StartsAt) {
				p.StartsAt = old.StartsAt
			}
			if fires := p.EndsAt.After(time.Now()); fires == was && old.EndsAt.After(p.EndsAt) {
				p.EndsAt = old.EndsAt
			}
		}
		m.alerts[key] = p
		if is := p.EndsAt.After(time.Now()); is != was {
			m.changes = append(m.changes, fmt.Sprint(p.Labels["alertname"], p.Labels["ip"], is))
		}
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(""))}, nil
}

// firing are the alerts that do.
func (m *alertmanager) firing() (list []posted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(m.alerts)) {
		if p := m.alerts[key]; p.EndsAt.After(time.Now()) {
			list = append(list, p)
		}
	}
	return list
}

func (m *alertmanager) setAway(away bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.away = away
}

// start runs the notifier of a node until stop.
func start(t *testing.T, node string, s *source, m *alertmanager, log io.Writer) (stop func(), n *Notifier) {
	t.Helper()
	n, err := New(Options{
		Log: slog.New(slog.NewTextHandler(log, nil)), Alertmanagers: []string{"http://alertmanager:9093/"}, Cluster: "prod",
		Self: cluster.Member{Name: node, Boot: "boot"},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.receivers[0].client.http = &http.Client{Transport: m}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { n.Run(ctx, s); close(done) }()
	return func() { cancel(); <-done }, n
}

func newAlertmanager() *alertmanager { return &alertmanager{alerts: make(map[string]posted)} }

// pass lets virtual time pass.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Two nodes tell of one conflict, which ends for one of them first.
func TestTwoNodesOneAlert(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, b := newAlertmanager(), newSource(), newSource()
		stopA, _ := start(t, "a", a, m, io.Discard)
		stopB, _ := start(t, "b", b, m, io.Discard)
		defer stopA()
		defer stopB()
		c := conflict("10.0.0.9", "a", "b")
		drill, suspected := conflict("192.0.2.1", "a", "b"), conflict("10.0.0.8", "a", "b")
		drill.Drill, suspected.State = true, detector.Suspected
		a.set(c, drill, suspected)
		b.set(c, drill, suspected)
		pass(time.Second)
		firing := m.firing()
		if len(firing) != 1 {
			t.Fatalf("%v fire, want one", firing)
		}
		p := firing[0]
		if got, want := fmt.Sprint(p.Labels), "map[alertname:DupipDuplicateAddress cluster:prod ip:10.0.0.9 network:default severity:critical]"; got != want {
			t.Errorf("labels %s, want %s", got, want)
		}
		if got, want := p.Annotations["summary"], "10.0.0.9 is held by pod0 on a and pod1 on b. It is not known which holder is right."; got != want {
			t.Errorf("summary %q, want %q", got, want)
		}
		if got, want := p.Annotations["description"], "All of it.\n- Look, on node a:\nip address\nTo see what to do, run: dupip explain 10.0.0.9"; got != want {
			t.Errorf("description %q, want %q", got, want)
		}

		// Node a has lost its holder and does not hear of b, which has the conflict.
		a.mu.Lock()
		a.doc.Missing = []string{"b"}
		a.mu.Unlock()
		a.set()
		pass(6 * time.Minute)
		if len(m.firing()) != 1 || len(m.changes) != 1 {
			t.Fatalf("%v fire after %v: b has it", m.firing(), m.changes)
		}
		b.set()
		pass(time.Second)
		if len(m.firing()) != 0 || len(m.changes) != 2 {
			t.Fatalf("%v fire after %v", m.firing(), m.changes)
		}

		// A third node has it with one of them: the other one is quiet.
		d := conflict("10.0.0.9", "b", "c")
		a.set(d)
		b.set(d)
		pass(30 * time.Minute)
		if len(m.firing()) != 1 || len(m.changes) != 3 {
			t.Errorf("%v fire after %v", m.firing(), m.changes)
		}
	})
}

// An Alertmanager that was away gets what is open, and what has ended meanwhile. It is tried again soon, and the log has two lines.
func TestAlertmanagerAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, log := newAlertmanager(), newSource(), new(bytes.Buffer)
		stop, n := start(t, "a", s, m, log)
		one, two := conflict("10.0.0.1", "a", "b"), conflict("10.0.0.2", "a", "b")
		s.set(one)
		pass(time.Second)
		m.setAway(true)
		s.set(two) // one has ended
		pass(2 * time.Minute)
		if e := n.Status()[0].Error; !strings.Contains(e, "connection refused") {
			t.Errorf("the status says %q", e)
		}
		m.setAway(false)
		pass(retry + time.Second)
		if f := m.firing(); len(f) != 1 || f[0].Labels["ip"] != "10.0.0.2" || !f[0].StartsAt.Equal(two.ConfirmedAt) {
			t.Errorf("%v fire", f)
		}
		if st := n.Status()[0]; st.Error != "" || st.Sent == 0 || st.Failed == 0 {
			t.Errorf("status %+v", st)
		}
		if lines := strings.Count(log.String(), "\n"); lines != 2 {
			t.Errorf("%d lines:\n%s", lines, log)
		}

		// The end is sent for 15 minutes, and then nothing.
		s.set()
		pass(keep + resend + time.Second)
		before := m.requests
		pass(time.Hour)
		if m.requests-before > 1 || len(m.firing()) != 0 {
			t.Errorf("%d requests in a quiet hour", m.requests-before)
		}

		// What an agent told that was killed ends by itself.
		s.set(conflict("10.0.0.3", "a", "b"))
		pass(time.Second)
		stop()
		pass(lapse - 2*time.Second)
		if len(m.firing()) != 1 {
			t.Error("it ends too early")
		}
		pass(2 * time.Second)
		if len(m.firing()) != 0 {
			t.Error("it does not end")
		}
	})
}

// A conflict waits for the facts of its holders, three seconds at most.
func TestWaitsForJudgement(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newAlertmanager(), newSource()
		stop, _ := start(t, "a", s, m, io.Discard)
		defer stop()
		pass(time.Minute)
		c := conflict("10.0.0.1", "a", "b")
		j := *c.Judgement
		c.Judgement.Cause = document.CauseComing
		s.set(c)
		pass(2 * time.Second)
		if f := m.firing(); len(f) != 0 {
			t.Errorf("%v fires before its facts are known", f)
		}
		c.Judgement = &j
		s.set(c)
		pass(time.Second)
		if len(m.firing()) != 1 {
			t.Error("it does not fire")
		}
		late := conflict("10.0.0.2", "a", "b")
		late.Judgement = nil
		s.set(c, late)
		pass(judgeWait + time.Second)
		if f := m.firing(); len(f) != 2 || !strings.HasSuffix(f[1].Annotations["description"], "dupip explain 10.0.0.2") {
			t.Errorf("%v fire", f)
		}
	})
}

// More than ten addresses of a network are one alert, and so is a node that shares addresses with many others.
func TestManyConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newAlertmanager(), newSource()
		stop, _ := start(t, "a", s, m, io.Discard)
		defer stop()
		var all []document.Conflict
		for i := range many + 1 {
			all = append(all, conflict(fmt.Sprintf("10.0.0.%d", i+1), "a", "b"))
		}
		s.set(all[:many]...)
		pass(time.Second)
		if n := len(m.firing()); n != many {
			t.Errorf("%d fire, want %d", n, many)
		}
		s.set(all...)
		pass(time.Second)
		f := m.firing()
		if len(f) != 1 || f[0].Labels["alertname"] != "DupipDuplicateAddresses" || f[0].Annotations["summary"] != "11 addresses of network default have two or more holders" {
			t.Fatalf("%v fire", f)
		}
		if !strings.Contains(f[0].Annotations["description"], "10.0.0.1") {
			t.Errorf("description %q", f[0].Annotations["description"])
		}
		var shared []document.Conflict
		s.mu.Lock()
		for i, other := range []string{"b", "c", "d", "e"} {
			shared = append(shared, conflict(fmt.Sprintf("10.0.1.%d", i), "a", other))
			s.doc.Pairs = append(s.doc.Pairs, document.Pair{Nodes: []string{"a", other}, Addresses: 1})
		}
		s.mu.Unlock()
		s.set(shared...)
		pass(time.Second)
		f = m.firing()
		if len(f) != 1 || f[0].Labels["alertname"] != "DupipNodeSharesWithMany" || f[0].Labels["node"] != "a" || f[0].Annotations["summary"] != "Node a shares addresses with 4 other nodes" {
			t.Errorf("%v fire", f)
		}
	})
}

// Networks that belong to one node have the same addresses on others.
func TestNetworksOfANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, a, b := newAlertmanager(), newSource(), newSource()
		a.local, b.local = true, true
		stopA, _ := start(t, "a", a, m, io.Discard)
		stopB, _ := start(t, "b", b, m, io.Discard)
		defer stopA()
		defer stopB()
		a.set(conflict("172.17.0.2", "a", "a"))
		b.set(conflict("172.17.0.2", "b", "b"))
		pass(time.Second)
		if f := m.firing(); len(f) != 2 || f[0].Labels["node"] != "a" || f[1].Labels["node"] != "b" {
			t.Errorf("%v fire, want one for each node", f)
		}
	})
}

// Requests and what is remembered are bounded.
func TestAlertsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s := newAlertmanager(), newSource()
		stop, n := start(t, "a", s, m, io.Discard)
		defer stop()
		var all []document.Conflict
		for i := range maxAlerts + 50 {
			c := conflict(fmt.Sprintf("10.0.%d.%d", i/250, i%250), "a", "b")
			c.Network = fmt.Sprint("net", i)
			c.Judgement.Text = strings.Repeat("long ", maxDescription)
			all = append(all, c)
		}
		before := tooManyAlertsLeftOut()
		s.set(all...)
		pass(time.Second)
		if len(n.alerts) != maxAlerts || len(m.firing()) != maxAlerts || m.largest != maxRequest || tooManyAlertsLeftOut()-before < 50 {
			t.Errorf("%d alerts, %d fire, at most %d in a request, %d left out", len(n.alerts), len(m.firing()), m.largest, tooManyAlertsLeftOut()-before)
		}
		for _, p := range m.firing()[:3] {
			if d := p.Annotations["description"]; len(d) > maxDescription {
				t.Errorf("a description of %d bytes", len(d))
			}
		}
	})
}

// A pod names its devices and its network namespace. Control characters in these names do not reach a terminal.
func TestHostileNames(t *testing.T) {
	c := conflict("10.0.0.1", "a", "b")
	c.Network, c.Holders[0].Netns, c.Judgement.Text = "net\x1b[31m@br", "x\ny\x1b]0;", "All of \u202ex."
	s := newSource()
	s.doc.Conflicts = []document.Conflict{c}
	p := &program{waiting: make(chan document.ConflictEvent, 1)}
	n := &Notifier{
		opts: Options{Self: cluster.Member{Name: "a", Boot: "boot"}}, due: true, program: p, receivers: []*receiver{newReceiver(nil, nil, "")},
		alerts: make(map[labels]alert), told: make(map[heldOn]document.Conflict),
	}
	n.look(t.Context(), s)
	posts, _ := json.Marshal(<-n.receivers[0].latest)
	event, _ := json.Marshal(<-p.waiting)
	for _, text := range []string{string(posts), string(event)} {
		for _, bad := range []string{"\\u001b", "\u202e", "\\u202e", "x\\ny"} {
			if !strings.Contains(text, "10.0.0.1") || strings.Contains(text, bad) {
				t.Errorf("%s has %q", text, bad)
			}
		}
	}
	if c.Holders[0].Netns != "x\ny\x1b]0;" {
		t.Error("the document of others was changed")
	}
}

// The alerts are those of the rules.
func TestAlertsAreThoseOfTheRules(t *testing.T) {
	data, err := os.ReadFile("../../deploy/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	rules := string(data)
	for name, summary := range map[string]string{
		"DupipDuplicateAddress": " is held by", "DupipDuplicateAddresses": " have two or more holders", "DupipNodeSharesWithMany": " shares addresses with ",
	} {
		_, rule, found := strings.Cut(rules, "- alert: "+name+"\n")
		rule, _, _ = strings.Cut(rule, "- alert: ")
		texts := new(Notifier).annotate(labels{name: name, ip: "10.0.0.1", network: "default", node: "a"}, []document.Conflict{conflict("10.0.0.1", "a", "b")}, nil, 4)
		if !found || !strings.Contains(rule, "severity: critical") || !strings.Contains(rule, summary) || !strings.Contains(texts["summary"], summary) ||
			!strings.Contains(rule, "runbook_url: "+texts["runbook_url"]+"\n") {
			t.Errorf("%s differs from the rule: %v", name, texts)
		}
	}
}

// An alert's runbook is that of the agent's version.
func TestRunbookOfVersion(t *testing.T) {
	for version, tag := range map[string]string{"": "main", "(devel)": "main", "0.3.0": "v0.3.0", "v0.3.1-0.20260301120000-abcdefabcdef": "main", "1.2.3/../..": "main"} {
		if got := runbook(version, "DupipX"); got != "https://github.com/dupip/dupip/blob/"+tag+"/deploy/RUNBOOK.md#dupipx" {
			t.Errorf("%q: %s", version, got)
		}
	}
}

func tooManyAlertsLeftOut() uint64 { return bounds.Counts()["too many alerts for Alertmanager"] }
