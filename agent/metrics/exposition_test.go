package metrics

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/dupip/dupip/agent/links"
)

// names reads the metric names from the source, so that none can be forgotten here.
func names(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "names.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for node := range ast.Preorder(file) {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			name, err := strconv.Unquote(literal.Value)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(name, "dupip_") {
				found = append(found, name)
			}
		}
	}
	return found
}

func TestExposition(t *testing.T) {
	want, err := os.ReadFile("testdata/exposition.txt")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.NewReplacer("GO_VERSION", runtime.Version(), "ARCH", runtime.GOARCH).Replace(string(want))
	m := New(rich())
	for _, d := range []time.Duration{-time.Second, 1050 * time.Millisecond, 1400 * time.Millisecond, 4 * time.Second} {
		m.ObserveDetection(d)
	}
	if err := testutil.GatherAndCompare(prometheus.GathererFunc(m.gather), strings.NewReader(text), names(t)...); err != nil {
		t.Error(err)
	}
}

func TestEveryName(t *testing.T) {
	known := names(t)
	if len(known) < 25 {
		t.Fatalf("%d names: the source was not understood", len(known))
	}
	exported := families(t, New(rich()))
	for _, name := range known {
		if len(exported[name]) == 0 {
			t.Errorf("%s has a name but is not exported", name)
		}
	}
	for name := range exported {
		if strings.HasPrefix(name, "dupip_") && !slices.Contains(known, name) {
			t.Errorf("%s is exported without a name in names.go", name)
		}
	}
	for _, name := range []string{"go_goroutines", "process_open_fds", "process_resident_memory_bytes"} {
		if len(exported[name]) == 0 {
			t.Errorf("%s is not exported", name)
		}
	}
}

func TestLint(t *testing.T) {
	problems, err := testutil.GatherAndLint(prometheus.GathererFunc(New(rich()).gather))
	if err != nil {
		t.Error(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
}

// Before the first event counters and gauges are 0, and times are absent.
func TestBeforeAnythingHappened(t *testing.T) {
	m := New(Sources{
		Loop:    answering(LoopStats{}),
		Cluster: nodes{},
		State:   func() (written time.Time, bytes int, err error) { return written, bytes, err },
		Config:  func() (loadedAt time.Time, err error) { return loadedAt, err },
	})
	got := families(t, m)
	for name, series := range map[string]int{
		conflicts.name: 8, conflictsTotal.name: 4, conflictInfoOmitted.name: 1, conflictsResolved.name: 1, suspicions.name: 1,
		suspicionsFaded.name: 1, bindings.name: 6, interfaces.name: 12, refusedPackets.name: 4, dadFailed.name: 1, scrapeErrors.name: 1,
		gossipMembers.name: 4, gossipReporters.name: 1, gossipNamesakes.name: 1, gossipLeases.name: 1, gossipUnacked.name: 1, gossipKept.name: 1, gossipDropped.name: 0,
		gossipSent.name: 0, gossipReceived.name: 0, gossipProblems.name: 1,
		netlinkOverruns.name: 1, recordsPending.name: 1, hostOmitted.name: 1, detectionSeconds.Name: 1,
		conflictInfo.name: 0, interfaceRefusedPackets.name: 0, stateTimestamp.name: 0, configTimestamp.name: 0,
		solicitations.name: 2, podsConnected.name: 0,
	} {
		if len(got[name]) != series {
			t.Errorf("%s has %d series, want %d", name, len(got[name]), series)
		}
		for labels, value := range got[name] {
			if value != 0 {
				t.Errorf("%s{%s} is %v, want 0", name, labels, value)
			}
		}
	}
}

// An agent without a cluster exports no metrics of gossip.
func TestAlone(t *testing.T) {
	sources := rich()
	sources.Cluster = nil
	for name := range families(t, New(sources)) {
		if strings.HasPrefix(name, "dupip_gossip_") {
			t.Errorf("%s is exported", name)
		}
	}
}

func TestEveryInterfaceState(t *testing.T) {
	for _, state := range []links.State{links.Attached, links.Pending, links.Shadowed, links.Waiting, links.Failed, links.Unsupported, links.Ignored, links.Uplink} {
		if !slices.Contains(interfaceStates, reasonLabel(string(state))) {
			t.Errorf("%s has no 0 before the first", state)
		}
	}
}
