// Package scenarios plays labelled situations in the netns lab, with real agents and real packets:
// those that must be found (D…) and those that must raise no alarm (Q…). Most are played on one node
// with one agent, and on several nodes whose agents are a cluster.
//
// A scenario is a few lines of what happens. A scenario without a duplicate must also prove that the
// agents received its packets, and each ends with a real duplicate that is found, so that agents that
// see nothing or cannot reach each other do not pass. A table at the end lists what was expected,
// what was found, and the seconds from the second holder's first packet, or what the row says, to
// the events.
package scenarios

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// Want is what a situation calls for.
type Want string

// The two verdicts.
const (
	Found Want = "found"
	Quiet Want = "quiet"
)

// Scenario is one labelled situation.
type Scenario struct {
	// ID names the situation; more than one row may play the same one.
	ID   string
	Want Want
	// MaySuspect allows a short suspicion without a duplicate: an address moves, and for a moment it
	// is unknown whether the previous holder is gone.
	MaySuspect bool
	// NoARP: the holders send no ARP request after their start.
	NoARP bool
	// Text is a short description.
	Text string
	// Nodes is how many nodes there are, with agents that are a cluster; 0 is one node
	// whose agent is alone.
	Nodes int
	// IPv6Only: the nodes and their pods have no IPv4 address.
	IPv6Only bool
	// Device is a kind of device that the scenario needs and that some kernels do not have; empty for those that all have. On a
	// kernel without it the scenario is not played: make test-vm plays it.
	Device string
	// UplinkKind is [lab.Lab.UplinkKind].
	UplinkKind string
	// MinOverlap is the agents' --min-overlap, minOverlap if 0.
	MinOverlap time.Duration
	// Config is the agents' configuration file, none if empty.
	Config string
	Play   func(s *Stage)
}

// atOnce is how many rows play at the same time: they mostly wait.
const atOnce = "6"

// wanted are the ids to play, all if empty.
var wanted = flag.String("id", "", "`IDs` of the situations to play, in any case; all if empty")

func TestMain(m *testing.M) {
	flag.Parse()
	if err := checkIDs(*wanted); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if f := flag.Lookup("test.parallel"); !isSet("test.parallel") {
		_ = f.Value.Set(atOnce)
		if *compared {
			_ = f.Value.Set(comparedAtOnce)
		}
	}
	code := lab.Main(m)
	board.print(os.Stdout)
	bench.print(os.Stdout)
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func TestScenarios(t *testing.T) {
	testneeds.Root(t)
	for place, sc := range allScenarios() {
		if !matchesID(*wanted, sc.ID) {
			continue
		}
		name := sc.ID
		if sc.Device != "" {
			name += "-" + sc.Device
		}
		if sc.Nodes > 0 {
			// So that -run TestScenarios/^D9$ plays this form, too.
			name += "/cluster"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if !hasDevice(t, sc.Device) {
				board.skip(sc.ID, sc.Device)
				t.Skipf("this machine has no %s devices", sc.Device)
			}
			row := board.add(sc, place)
			t.Cleanup(func() { row.finish(t.Failed()) })
			s := newStage(t, row)
			sc.Play(s)
			if sc.Want == Quiet {
				s.assertQuiet()
			}
		})
	}
}

// hasDevice returns whether the kernel has a kind of device.
func hasDevice(t *testing.T, kind string) bool {
	if kind == "" {
		return true
	}
	l := lab.NewT(t)
	has, err := l.HasDevices(kind)
	l.Do(err)
	return has
}

// with is a form of a scenario that needs a kind of device, which its text names in brackets.
func with(device string, sc Scenario) Scenario {
	sc.Device = device
	sc.Text += " [" + device + "]"
	return sc
}

// onOneAndMore are two rows of one scenario: on one node with a single agent, and on this many nodes,
// from the first to the last.
func onOneAndMore(nodes int, sc Scenario) []Scenario {
	more := sc
	more.Nodes = nodes
	more.Text += fmt.Sprintf("; %d nodes", nodes)
	return []Scenario{sc, more}
}

// allScenarios are all rows in order of their ids, those with one node first.
func allScenarios() []Scenario {
	all := slices.Concat(mustBeFound, mustStayQuiet)
	slices.SortStableFunc(all, func(x, y Scenario) int {
		return cmp.Or(compareIDs(x.ID, y.ID), cmp.Compare(x.Device, y.Device), cmp.Compare(min(x.Nodes, 1), min(y.Nodes, 1)))
	})
	return all
}
