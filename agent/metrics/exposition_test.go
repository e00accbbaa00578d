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
			found = append(found, name)
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
	scrape(t, m, func() {
		if err := testutil.GatherAndCompare(m.registry, strings.NewReader(text), names(t)...); err != nil {
			t.Error(err)
		}
	})
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

// A pedantic registry also compares what is collected with what was described.
func TestLint(t *testing.T) {
	m := New(rich())
	pedantic := prometheus.NewPedanticRegistry()
	pedantic.MustRegister(m.errors, m.detection, newBuildInfo("v1"), newNodeInfo("n1", "b", "tc"))
	for _, s := range m.sources {
		pedantic.MustRegister(s)
	}
	scrape(t, m, func() {
		problems, err := testutil.GatherAndLint(pedantic)
		if err != nil {
			t.Error(err)
		}
		for _, problem := range problems {
			t.Errorf("%s: %s", problem.Metric, problem.Text)
		}
	})
}

// What is not there yet has a 0 where an alert compares, and nothing where a time is meant.
func TestBeforeAnythingHappened(t *testing.T) {
	m := New(Sources{
		Detector:   answering(DetectorStats{}),
		Interfaces: answering(InterfaceStats{}),
		Agent:      answering(AgentStats{}),
		Cluster:    answering(ClusterStats{}),
		State:      answering(StateStats{}),
		Config:     answering(ConfigStats{}),
	})
	got := families(t, m)
	for name, series := range map[string]int{
		Conflicts: 6, ConflictsTotal: 3, ConflictInfoOmitted: 1, ConflictsResolvedTotal: 1, SuspicionsTotal: 1,
		SuspicionsFadedTotal: 1, Bindings: 4, Interfaces: 8, RefusedPacketsTotal: 4, ScrapeErrorsTotal: 6,
		GossipMembers: 4, GossipNamesakes: 1, GossipLeases: 1, GossipLeasesUnacked: 1, GossipLeasesKept: 1, GossipDroppedTotal: 0,
		GossipMessagesSentTotal: 8, GossipMessagesReceivedTotal: 8, GossipEncrypted: 1, GossipProblems: 1,
		NetlinkOverrunsTotal: 1, RecordsPending: 1, DetectionSeconds: 1,
		ConflictInfo: 0, InterfaceRefusedPacketsTotal: 0, StateLastWriteTimestamp: 0, ConfigLastReloadTimestamp: 0,
		SolicitationsTotal: 0, PodsRuntimeConnected: 0,
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

// An agent that is alone has no gossip to be in trouble.
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
	for _, state := range []links.State{links.Attached, links.Shadowed, links.Waiting, links.Failed, links.Unsupported, links.Ignored, links.Uplink} {
		if !slices.Contains(interfaceStates, word(string(state))) {
			t.Errorf("%s has no 0 before the first", state)
		}
	}
}
