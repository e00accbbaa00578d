package doctor

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// TestMain gives root a netns of its own.
func TestMain(m *testing.M) { ownnetns.Main(m) }

// Run abandons a check that hangs, but not one that returns at its deadline.
func TestCheckTimeout(t *testing.T) {
	for _, test := range []struct {
		name    string
		examine func(context.Context, *facts) Check
		cancel  bool
		want    string
		took    time.Duration
	}{
		{"hangs", func(context.Context, *facts) Check { time.Sleep(time.Hour); return ok("late") }, false, "no result after 15s", hangTimeout},
		{"listens", func(ctx context.Context, _ *facts) Check { <-ctx.Done(); return ok("the disk hangs") }, false, "the disk hangs", answerTimeout},
		{"interrupted", func(context.Context, *facts) Check { time.Sleep(time.Hour); return ok("late") }, true, "not examined: context canceled", 0},
		{"quick", func(context.Context, *facts) Check { return ok("done") }, false, "done", 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if test.cancel {
					cancel()
				}
				began := time.Now()
				f := examine(ctx, check{test.name, test.examine, 0}, nil)
				if took := time.Since(began); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if !strings.Contains(f.Finding, test.want) {
					t.Errorf("got %q, want %q", f.Finding, test.want)
				}
				time.Sleep(2 * time.Hour) // the abandoned check ends before the bubble
			})
		})
	}
}

func TestSanitize(t *testing.T) {
	for text, want := range map[string]string{
		"plain":               "plain",
		"two\nlines\tand tab": "two lines and tab",
		"\x1b[2Jred\x07":      "?[2Jred?",
		"bad \xff utf8":       "bad ? utf8",
		"täglich → …":         "täglich → …",
		"right\u202eleft":     "right?left",
	} {
		if got := sanitize(text); got != want {
			t.Errorf("%q: got %q, want %q", text, got, want)
		}
	}
	if got := sanitize(strings.Repeat("ä", maxText)); len(got) > maxText || strings.ContainsRune(got, '?') {
		t.Errorf("%d bytes: %.20s", len(got), got)
	}
}

func TestMountOf(t *testing.T) {
	const table = `22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:20 / /run rw - tmpfs tmpfs rw
24 23 0:20 /netns /run/netns rw master:7 - tmpfs tmpfs rw
25 22 0:21 / /runner rw shared:3 - tmpfs tmpfs rw
26 24 0:4 net:[4026532281] /run/netns/pod rw - nsfs nsfs rw
27 23 0:30 / /run/docker rw shared:9 - tmpfs tmpfs rw
28 27 0:31 / /run/docker rw - tmpfs tmpfs rw,x=shared:1
broken
`
	for _, test := range []struct {
		dir, point string
		private    bool
	}{
		{"/run/netns", "/run/netns", false},
		{"/run/docker/netns", "/run/docker", true}, // the later mount covers the earlier
		{"/run/crio", "/run", true},
		{"/runner/x", "/runner", false},
		{"/var", "/", false},
	} {
		point, private := mountOf(table, test.dir)
		if point != test.point || private != test.private {
			t.Errorf("%s: %s, %t; want %s, %t", test.dir, point, private, test.point, test.private)
		}
	}
}

// The checks of status documents that are hard to produce with a real agent.
func TestStatusChecks(t *testing.T) {
	ready := func(change func(*document.Status)) *facts {
		s := document.Status{Node: "n", Version: "v1", Started: time.Now().Add(-time.Hour), Ready: true, ByState: map[string]int{"attached": 3}}
		change(&s)
		return &facts{opts: Options{Options: agent.Options{Version: "v1"}}, status: &s}
	}
	for _, test := range []struct {
		name   string
		check  string
		change func(*document.Status)
		status Status
		words  []string
	}{
		{"ready", "agent", func(*document.Status) {}, OK, []string{"ready"}},
		{"starting", "agent", func(s *document.Status) { s.Ready, s.Started = false, time.Now() }, Warn, []string{"starting"}},
		{"stuck", "agent", func(s *document.Status) { s.Ready = false }, Fail, []string{"still not ready", "log"}},
		{"another version", "agent", func(s *document.Status) { s.Version = "v0" }, Warn, []string{"v0", "v1"}},
		{"waiting", "interfaces", func(s *document.Status) {
			s.ByState["waiting"] = 1
			s.Interfaces = []document.InterfaceStatus{{Name: "veth1", State: "waiting", Reason: "for quiet"}}
		}, OK, []string{"3 interfaces", "waiting: veth1 (for quiet)"}},
		{"unseen", "interfaces", func(s *document.Status) { s.ByState["unseen netns"] = 2 }, Warn, []string{"unseen netns: 2", "netns names"}},
		{"failed counts more than shadowed", "interfaces", func(s *document.Status) {
			s.ByState["failed"], s.ByState["shadowed"] = 5, 1
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				s.Interfaces = append(s.Interfaces, document.InterfaceStatus{Name: name, State: "failed", Reason: "busy"})
			}
		}, Fail, []string{"a (busy)", "and 2 more"}},
		{"ordinary drops", "drops", func(s *document.Status) {
			s.Dropped = map[string]uint64{"interface gone": 7, "older than the TTL": 1, "no holder here": 9, "unanswered": 2, "early": 0, "log lines about conflicts": 105}
		}, OK, []string{"none"}},
		{"drops", "drops", func(s *document.Status) {
			s.Dropped = map[string]uint64{"packets while the ring was full": 7, "evicted: table full": 2}
			s.Interfaces = []document.InterfaceStatus{
				{Name: "few", Refused: &document.Refused{RingFull: 1}}, {Name: "most", Netns: "pod", Refused: &document.Refused{RingFull: 6}}, {Name: "none"},
			}
		}, Warn, []string{"7 packets while", "CPU", "the table holds", "most (pod), few"}},
		{"more addresses than are compared", "drops", func(s *document.Status) {
			s.HostAddressesOmitted = 7
		}, Warn, []string{"7 of the node's own addresses are not compared", "once in each network"}},
		{"a reason not known here", "drops", func(s *document.Status) { s.Dropped = map[string]uint64{"new": 1} }, Warn, []string{"1 new", "dupip status"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			want(t, test.check, ready(test.change), test.status, test.words...)
		})
	}
}

func TestConfigCheck(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	for _, test := range []struct {
		text   string
		status Status
		words  []string
	}{
		{"", OK, []string{path}},
		{"shared: [10.0.0.0/8]\n", OK, []string{path}},
		{"shraed: []\nlimits: {history: 0}\n", Fail, []string{path, "line 1", "shraed", "line 2", "history", "--config"}},
	} {
		if err := os.WriteFile(path, []byte(test.text), 0o600); err != nil {
			t.Fatal(err)
		}
		want(t, "config", &facts{opts: Options{Options: agent.Options{Config: path}}}, test.status, test.words...)
	}
	want(t, "config", &facts{}, Skip, "no --config")
}

// want runs one check and compares its outcome. The finding and the advice must contain the words.
func want(t *testing.T, name string, known *facts, status Status, words ...string) {
	t.Helper()
	c := checks[slices.IndexFunc(checks, func(c check) bool { return c.name == name })]
	wantCheck(t, examine(t.Context(), c, known), status, words...)
}

// wantCheck compares the outcome of a check.
func wantCheck(t *testing.T, f Check, status Status, words ...string) {
	t.Helper()
	if f.Status != status {
		t.Errorf("%+v, want %s", f, status)
	}
	for _, word := range words {
		if !strings.Contains(f.Finding+"\n"+f.Advice, word) {
			t.Errorf("%+v does not contain %q", f, word)
		}
	}
}

// dropAdvice has every reason for which the detector drops.
func TestEveryDropReasonIsListed(t *testing.T) {
	for reason := range detector.New(detector.Options{Node: "n"}).Counts().Refused {
		if reason != "invalid" && dropAdvice[reason] == "" && document.NormalDrops[reason] == "" {
			t.Errorf("%q has no entry in dropAdvice or document.NormalDrops", reason)
		}
	}
}
