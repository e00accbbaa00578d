package scenarios

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// outcome is one line of the table.
type outcome struct {
	Scenario

	// place is the row's among all, in order of the ids.
	place int

	found, suspected, done, failed, timed bool

	// why is what failed first.
	why                      string
	toSuspected, toConfirmed time.Duration
}

// took keeps the slowest of a row's conflicts. A negative time is an event before the row's clock
// started.
func (o *outcome) took(suspected, confirmed time.Duration) {
	if !o.timed {
		o.timed, o.toSuspected, o.toConfirmed = true, suspected, confirmed
		return
	}
	o.toSuspected, o.toConfirmed = max(o.toSuspected, suspected), max(o.toConfirmed, confirmed)
}

func (o *outcome) finish(failed bool) { o.done, o.failed = true, failed }

// seen is a short text about what happened.
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

// seconds formats a time of the row.
func (o *outcome) seconds(d time.Duration) string {
	switch {
	case !o.timed:
		return ""
	case d <= 0:
		return "before"
	}
	return fmt.Sprintf("%.3f s", d.Seconds())
}

// recorder keeps what fails a row for the table: logs of tests that run at the same time are long, and mixed.
type recorder struct {
	testing.TB
	row *outcome
}

func (r recorder) Fatal(args ...any) {
	r.Helper()
	r.row.why = cmp.Or(r.row.why, strings.TrimSpace(fmt.Sprintln(args...)))
	r.TB.Fatal(args...)
}

func (r recorder) Errorf(format string, args ...any) {
	r.Helper()
	r.row.why = cmp.Or(r.row.why, fmt.Sprintf(format, args...))
	r.TB.Errorf(format, args...)
}

// scoreboard collects the rows that were played.
type scoreboard struct {
	mu   sync.Mutex
	rows []*outcome
	// skipped are those that were not played, by the kind of device that the kernel has not.
	skipped map[string][]string
}

var board scoreboard

func (b *scoreboard) add(sc Scenario, place int) *outcome {
	b.mu.Lock()
	defer b.mu.Unlock()
	row := &outcome{Scenario: sc, place: place}
	b.rows = append(b.rows, row)
	return row
}

func (b *scoreboard) skip(id, device string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.skipped == nil {
		b.skipped = map[string][]string{}
	}
	b.skipped[device] = append(b.skipped[device], id)
}

func (b *scoreboard) print(out *os.File) {
	if len(b.rows) == 0 {
		return
	}
	slices.SortFunc(b.rows, func(x, y *outcome) int { return x.place - y.place })
	line := "%-4s %-8s %-17s %9s %9s  %s\n"
	fmt.Fprintf(out, line, "ID", "EXPECTED", "SEEN", "SUSPECTED", "CONFIRMED", "SITUATION")
	passed := 0
	for _, r := range b.rows {
		seen := r.seen()
		if r.failed || !r.done {
			seen = strings.ToUpper(seen)
		} else {
			passed++
		}
		fmt.Fprintf(out, line, r.ID, r.Want, seen, r.seconds(r.toSuspected), r.seconds(r.toConfirmed), r.Text)
		if r.why != "" {
			fmt.Fprintf(out, "     %.600s\n", r.why)
		}
	}
	fmt.Fprintln(out, b.sum())
	fmt.Fprintf(out, "%d passed, %d failed\n", passed, len(b.rows)-passed)
	for _, device := range slices.Sorted(maps.Keys(b.skipped)) {
		all := slices.SortedFunc(slices.Values(b.skipped[device]), compareIDs)
		fmt.Fprintf(out, "not played, because this machine has no %s devices (make test-vm): %s\n", device, strings.Join(all, " "))
	}
}

// sum is the table in one line.
func (b *scoreboard) sum() string {
	var found, mustFind, alarms, mustNot int
	var suspected, confirmed []time.Duration
	for _, r := range b.rows {
		switch r.Want {
		case Quiet:
			mustNot++
			if r.found {
				alarms++
			}
		case Found:
			mustFind++
			if r.found {
				found++
			}
			if r.found && r.timed {
				suspected = append(suspected, max(0, r.toSuspected))
				confirmed = append(confirmed, max(0, r.toConfirmed))
			}
		}
	}
	text := fmt.Sprintf("found %d of %d, false alarms in %d of %d", found, mustFind, alarms, mustNot)
	if len(confirmed) > 0 {
		text += "; " + spread("suspected", suspected) + "; " + spread("confirmed", confirmed)
	}
	return text
}

// spread is the median and the largest of some times.
func spread(word string, all []time.Duration) string {
	slices.Sort(all)
	return fmt.Sprintf("%s: median %.3f s, slowest %.3f s", word, all[len(all)/2].Seconds(), all[len(all)-1].Seconds())
}
