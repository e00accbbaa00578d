package scenarios

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	// MaySuspect allows a short suspicion in a quiet row: an address changes hands
	// there, and for a moment nothing tells whether the former holder is gone.
	MaySuspect bool
	// Text says in a few words what is played.
	Text string
	// Nodes is how many nodes there are, with agents that are a cluster; 0 is one node
	// whose agent is alone.
	Nodes int
	// Config is the agents' configuration file, none if empty.
	Config string
	Story  func(s *Stage)
}

// atOnce is how many rows play at the same time: they mostly wait.
const atOnce = "4"

func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); !isSet("test.parallel") {
		_ = f.Value.Set(atOnce)
	}
	code := lab.Main(m)
	board.print(os.Stdout)
	os.Exit(code)
}

func isSet(name string) (set bool) {
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

func TestScenarios(t *testing.T) {
	for _, sc := range slices.Concat(mustBeFound, mustStayQuiet) {
		name := sc.ID
		if sc.Nodes > 0 {
			// So that -run TestScenarios/^D9$ plays this form, too.
			name += "/cluster"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			row := board.add(sc)
			t.Cleanup(func() { row.finish(t.Failed()) })
			s := newStage(t, row)
			sc.Story(s)
			if sc.Want == Quiet {
				s.watchQuietly()
			}
		})
	}
}

// outcome is one line of the table.
type outcome struct {
	Scenario

	found, suspected, done, failed bool
	toSuspected, toConfirmed       time.Duration
}

// took keeps the slowest of a row's conflicts.
func (o *outcome) took(suspected, confirmed time.Duration) {
	o.toSuspected, o.toConfirmed = max(o.toSuspected, suspected), max(o.toConfirmed, confirmed)
}

func (o *outcome) finish(failed bool) { o.done, o.failed = true, failed }

// seen is what happened, in a word or two.
func (o *outcome) seen() string {
	switch {
	case o.Want == Found && o.found:
		return "found"
	case o.Want == Found:
		return "missed"
	case o.found:
		return "false alarm"
	case o.failed:
		return "failed"
	case o.suspected:
		return "quiet, suspected"
	}
	return "quiet"
}

// scoreboard collects the rows that were played.
type scoreboard struct {
	mu   sync.Mutex
	rows []*outcome
}

var board scoreboard

func (b *scoreboard) add(sc Scenario) *outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := &outcome{Scenario: sc}
	b.rows = append(b.rows, row)
	return row
}

func (b *scoreboard) print(out *os.File) {
	if len(b.rows) == 0 {
		return
	}
	order := func(id string) int {
		return slices.IndexFunc(slices.Concat(mustBeFound, mustStayQuiet), func(s Scenario) bool { return s.ID == id })
	}
	slices.SortStableFunc(b.rows, func(x, y *outcome) int { return order(x.ID) - order(y.ID) })
	line := "%-4s %-8s %-17s %9s %9s  %s\n"
	fmt.Fprintf(out, line, "ID", "EXPECTED", "SEEN", "SUSPECTED", "CONFIRMED", "SITUATION")
	passed := 0
	for _, r := range b.rows {
		seconds := func(d time.Duration) string {
			if d == 0 {
				return ""
			}
			return fmt.Sprintf("%.3f s", d.Seconds())
		}
		seen := r.seen()
		if r.failed || !r.done {
			seen = strings.ToUpper(seen)
		} else {
			passed++
		}
		fmt.Fprintf(out, line, r.ID, r.Want, seen, seconds(r.toSuspected), seconds(r.toConfirmed), r.Text)
	}
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, len(b.rows)-passed)
}
