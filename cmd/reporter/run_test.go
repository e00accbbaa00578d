package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/report/collect"
	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/cmd/reporter/events"
	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/cmd/reporter/lead"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

// besideAgent is a member that is a reporter, beside one agent.
func besideAgent(t *testing.T) *gossip.Gossip {
	t.Helper()
	agent := member(t, members.Options{Node: "n1"}, func(cluster.Query) {})
	opts := members.Options{Node: "r1", Role: cluster.Reporter, Join: []string{agent.Status().Address}}
	return member(t, opts, func(cluster.Query) {})
}

// newReporter is a replica. Its API server has one Lease, and answers lists of Events as list does.
func newReporter(t *testing.T, g *gossip.Gossip, lease *kube.Lease, list http.HandlerFunc) (*reporter, *bytes.Buffer) {
	t.Helper()
	if lease == nil {
		lease = &kube.Lease{Metadata: kube.LeaseMeta{Meta: kube.Meta{Namespace: "dupip", Name: "lease", ResourceVersion: "1"}}}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /apis/events.k8s.io/v1/events", list)
	mux.HandleFunc("/apis/coordination.k8s.io/v1/namespaces/dupip/leases/lease", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			lease = new(kube.Lease)
			_ = json.NewDecoder(r.Body).Decode(lease)
		}
		_ = json.NewEncoder(w).Encode(lease)
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	log, client, rules := new(bytes.Buffer), kube.New(server.URL, token, nil), collect.Rules(new(config.Config))
	return &reporter{
		log: slog.New(slog.NewTextHandler(log, nil)), gossip: g, api: client, metrics: newMetrics(), books: books.New(books.Options{}), results: make(chan func(), 1),
		election:  &lead.Election{API: client, Namespace: "dupip", Name: "lease", Identity: "r1"},
		planner:   events.New("r1", "kubectl dupip", events.DefaultRenew, rules),
		documents: newDocuments(cluster.Member{Name: "r1", Role: cluster.Reporter}, g, rules, books.New(books.Options{}), func() string { return "" }),
	}, log
}

// until makes turns, each with the result of the one before, until something is true.
func (r *reporter) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not in 2 minutes: %s; readiness: %v", what, r.ready())
		}
		select {
		case apply := <-r.results:
			r.busy = false
			apply()
		default:
		}
		r.turn(t.Context(), time.Now())
	}
}

// TestBegin: a replica that has the Lease begins to write, whatever the list of its Events is, and is not ready before.
func TestBegin(t *testing.T) {
	const big = 20
	text, g := strings.Repeat("x", 255_000), besideAgent(t)
	huge := strings.Repeat(text, 20)
	for what, tt := range map[string]struct {
		list     http.HandlerFunc
		failures int
	}{
		"a tenant's twenty large Events": {func(w http.ResponseWriter, r *http.Request) {
			from, _ := strconv.Atoi(r.URL.Query().Get("continue"))
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			var items []string
			for n := from; n < min(from+limit, big); n++ {
				items = append(items, fmt.Sprintf(`{"metadata":{"namespace":"tenant","name":"e%d","annotations":{"a":"%s"}}}`, n, text))
			}
			more := ""
			if from+limit < big {
				more = strconv.Itoa(from + limit)
			}
			_, _ = fmt.Fprintf(w, `{"metadata":{"continue":%q},"items":[%s]}`, more, strings.Join(items, ","))
		}, 0},
		"one Event that is too large": {func(w http.ResponseWriter, _ *http.Request) {
			_, _ = fmt.Fprintf(w, `{"items":[{"metadata":{"name":"%s"}}]}`, huge)
		}, maxUnread},
		"no right to list": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }, maxUnread},
		"fails once":       {failOnce(), 1},
	} {
		t.Run(what, func(t *testing.T) {
			r, log := newReporter(t, g, nil, tt.list)
			r.until(t, "an agent", func() bool { return r.agents.Load() == 1 })
			if err := r.ready(); err == nil || !strings.Contains(err.Error(), "does not answer: not since the start") {
				t.Errorf("before the API server was asked: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			candidate := make(chan struct{})
			go func() { defer close(candidate); r.election.Run(ctx) }()
			defer func() { cancel(); <-candidate }()
			for failed := range tt.failures {
				r.until(t, "a list", func() bool { return r.unread > failed || r.leading })
				if err := r.ready(); !r.leading && (err == nil || !strings.Contains(err.Error(), "does not write yet")) {
					t.Errorf("after %d failures: %v", failed+1, err)
				}
				if r.leading != (failed+1 == maxUnread) || !r.leading && time.Until(r.retry) < readAgain/2 {
					t.Errorf("after %d failures, leading is %v, and the next try %v", failed+1, r.leading, r.retry)
				}
				r.retry = time.Time{} // now
			}
			r.until(t, "it writes", func() bool { return r.leading })
			r.turn(t.Context(), time.Now())
			if err := r.ready(); err != nil {
				t.Error(err)
			}
			without := 0
			if tt.failures == maxUnread {
				without = 1
			}
			got, said := testutil.ToFloat64(r.metrics.unread), strings.Contains(log.String(), "begins without")
			if got != float64(without) || said != (without == 1) || testutil.ToFloat64(r.metrics.failed) != float64(tt.failures) {
				t.Errorf("it counts %v lists, and says\n%s", got, log)
			}
		})
	}
}

// failOnce answers well from the second time on.
func failOnce() http.HandlerFunc {
	failed := false
	return func(w http.ResponseWriter, _ *http.Request) {
		if !failed {
			failed = true
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		_, _ = io.WriteString(w, `{"items":[]}`)
	}
}

// TestStandby: a replica that waits for the Lease is ready.
func TestStandby(t *testing.T) {
	lease := &kube.Lease{Metadata: kube.LeaseMeta{Meta: kube.Meta{ResourceVersion: "1"}}, Spec: kube.LeaseSpec{HolderIdentity: "another"}}
	r, _ := newReporter(t, besideAgent(t), lease, func(http.ResponseWriter, *http.Request) {
		t.Error("it lists Events")
	})
	ctx, cancel := context.WithCancel(t.Context())
	candidate := make(chan struct{})
	go func() { defer close(candidate); r.election.Run(ctx) }()
	defer func() { cancel(); <-candidate }()
	r.until(t, "it is ready", func() bool { return r.ready() == nil })
	if r.leading || r.waiting.Load() {
		t.Error("it leads")
	}
}

// TestFailuresLogged: thousands of writes that fail make one line in ten seconds, which says how many were left out.
func TestFailuresLogged(t *testing.T) {
	log := new(bytes.Buffer)
	r := &reporter{
		log: slog.New(slog.NewTextHandler(log, nil)), metrics: newMetrics(), books: books.New(books.Options{}),
		planner: events.New("r1", "kubectl dupip", events.DefaultRenew, collect.Rules(new(config.Config))),
	}
	now := time.Unix(1e9, 0)
	r.planner.Lead(nil, now)
	r.planner.Summary("red/boot", cluster.Summary{Findings: map[string]int{"unreserved address": 1}})
	w := r.planner.Next(now)
	for n := range 10_001 {
		r.wrote(w, &kube.StatusError{Code: http.StatusForbidden}, now.Add(time.Duration(n)*time.Millisecond))
	}
	if n := strings.Count(log.String(), "\n"); n != 2 || !strings.Contains(log.String(), "notLogged=9999\n") || testutil.ToFloat64(r.metrics.failed) != 10_001 {
		t.Errorf("%d lines, %v counted:\n%.2000s", n, testutil.ToFloat64(r.metrics.failed), log)
	}
}

// takeConflict takes a conflict of pods on nodes red and blue, as red reports it.
func (r *reporter) takeConflict(t *testing.T, ip string, state detector.State, now time.Time) {
	t.Helper()
	c := detector.Conflict{
		ID: "1-1", Key: detector.Key{Network: config.DefaultNetwork, IP: netip.MustParseAddr(ip)},
		State: state, Scope: detector.CrossNode, SuspectedAt: now, ConfirmedAt: now, ResolvedAt: now,
	}
	for _, node := range []string{"red", "blue"} {
		c.Holders = append(c.Holders, detector.Binding{
			Key: c.Key, Evidence: detector.Announced, FirstSeen: now, Holder: detector.Holder{
				ID: detector.HolderID{Node: cluster.NodeID(node, "boot"), Netns: 1}, Pod: detector.Pod{Namespace: "shop", Name: "on-" + node},
			},
		})
	}
	packed, err := new(document.NewConflict(c)).EncodeReport(now, 4096)
	if err != nil {
		t.Fatal(err)
	}
	r.take(cluster.Report{Node: "red/boot", At: now, Conflict: packed}, now)
}

// TestJudgementMetric: each replica exports what is decided about a conflict, until it ends.
func TestJudgementMetric(t *testing.T) {
	const name = "dupip_conflict_judgement_info"
	r, _ := newReporter(t, besideAgent(t), nil, failOnce())
	exported := func() int {
		n, err := testutil.GatherAndCount(r.metrics.registry, name)
		if err != nil {
			t.Error(err)
		}
		return n
	}
	r.takeConflict(t, "10.0.0.7", detector.Confirmed, time.Now().Add(-time.Minute))
	r.until(t, "it is exported", func() bool { return exported() == 1 })
	said := r.planner.Judgements(time.Now())
	if len(said) != 1 || said[0].Text == "" {
		t.Fatalf("%+v", said)
	}
	if err := testutil.GatherAndCompare(r.metrics.registry, strings.NewReader(fmt.Sprintf(`
# HELP dupip_conflict_judgement_info What is decided about a confirmed conflict by the facts of all nodes, always 1. At most 100, and 10 of one network: the oldest.
# TYPE dupip_conflict_judgement_info gauge
dupip_conflict_judgement_info{cause="unknown",confidence="open",ip="10.0.0.7",judgement=%q,network="default"} 1
`, said[0].Text)), name); err != nil || r.leading {
		t.Errorf("leads: %v; %v", r.leading, err)
	}
	r.takeConflict(t, "10.0.0.7", detector.Resolved, time.Now())
	r.until(t, "it has gone", func() bool { return exported() == 0 })
}

// TestTake: what agents say reaches the planner and the documents; what is not valid, or a drill, makes no Event.
func TestTake(t *testing.T) {
	log := new(bytes.Buffer)
	rules := collect.Rules(new(config.Config))
	r := &reporter{
		log:     slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		planner: events.New("r1", "kubectl dupip", events.DefaultRenew, rules), documents: newDocuments(cluster.Member{}, nil, rules, books.New(books.Options{}), func() string { return "" }), metrics: newMetrics(), books: books.New(books.Options{}),
	}
	now := time.Now()
	r.planner.Lead(nil, now)
	report := func(ip string, state detector.State) { r.takeConflict(t, ip, state, now) }
	open := func(what string, want int) {
		t.Helper()
		if got := r.planner.Stats().Open; got != want {
			t.Errorf("%s: %d conflicts are open, want %d", what, got, want)
		}
	}
	report("192.0.2.9", detector.Confirmed)
	open("a drill", 0)
	report("10.0.0.7", detector.Confirmed)
	open("a conflict", 1)
	if w := r.planner.Next(now.Add(3 * time.Second)); w == nil || !strings.HasPrefix(w.Event.Regarding.Name, "on-") || !strings.Contains(w.Event.Note, "pod shop/on-") {
		t.Errorf("%+v", w)
	}
	r.take(cluster.Report{Node: "red/boot", At: now, Conflict: []byte("no report")}, now)
	open("no report", 1)
	if text := log.String(); !strings.Contains(text, "a report was refused") || !strings.Contains(text, "red/boot") || testutil.ToFloat64(r.metrics.refused) != 1 {
		t.Errorf("the log:\n%s", text)
	}
	report("10.0.0.7", detector.Resolved)
	open("its end", 0)
	r.take(cluster.Report{Node: "red/boot", At: now, Summary: &cluster.Summary{Version: "0.2.0", Findings: map[string]int{"unreserved address": 1}}}, now)
	if got := r.documents.summaries["red/boot"]; got.Version != "0.2.0" || !got.at.Equal(now) {
		t.Errorf("the summary: %+v", got)
	}
	if w := r.planner.Next(now.Add(time.Minute)); w == nil || w.Event.Reason != events.ReasonUnreserved || w.Event.Regarding.Name != "red" {
		t.Errorf("%+v", w)
	}
}
