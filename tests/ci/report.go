package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/testjson"
)

// report is what became of all parts.
type report struct {
	Seconds float64   `json:"seconds"`
	CPU     float64   `json:"cpu"` // seconds, of the whole machine
	Parts   []*result `json:"parts"`
}

// result is what became of a part.
type result struct {
	Name    string           `json:"name"`
	Why     string           `json:"why"`
	Seconds float64          `json:"seconds"`
	CPU     float64          `json:"cpu"` // seconds, of its processes
	Budget  int              `json:"budget"`
	Err     string           `json:"err,omitempty"`
	Tests   []*testjson.Test `json:"tests"`

	began time.Duration
	log   string
}

// reason is the beginning of what a test has logged, of how it crashed, or what is known of the machine: one of these lines says why
// it failed. Tests of another machine log with that of this one, indented by more.
var reason = regexp.MustCompile(`(?m)^(?: {4,}\w+\.go:\d+: |    for |panic: ).{1,400}`)

// read takes what go test -json has printed. The output of a test that passed is not kept.
func (res *result) read(log []byte, busy *history) {
	tests, text, other := testjson.Read(log)
	var kept strings.Builder
	kept.WriteString(text)
	for _, t := range tests {
		if t.Failed() && !bytes.Contains(t.Output, []byte(" the machine was ")) { // as tests in the lab say
			t.Output = fmt.Appendf(t.Output, "    %s\n", busy.during(t.Began, t.Ended))
		}
		fmt.Fprintf(&kept, "%s %s (%.2fs)\n", t.Action, t.Name, t.Seconds)
		if t.Action != "pass" {
			kept.Write(t.Output)
		}
	}
	res.Tests = tests
	res.log = kept.String() + strings.ReplaceAll(other, "PASS\n", "")
}

// print prints how a part ended.
func (res *result) print(out io.Writer) {
	verdict := "passed"
	if res.Err != "" {
		verdict = "FAILED: " + res.Err
	}
	fmt.Fprintf(out, "== %s, %.0f to %.0f s, %.0f s of CPU: %s\n%s\n", res.Name, res.began.Seconds(), res.began.Seconds()+res.Seconds, res.CPU, verdict, strings.TrimSpace(res.log))
}

// add adds a later run.
func (r *report) add(next *report) {
	r.Seconds += next.Seconds
	r.CPU += next.CPU
	r.Parts = append(r.Parts, next.Parts...)
}

// failed are the names of the parts that failed.
func (r *report) failed() (names []string) {
	for _, p := range r.Parts {
		if p.Err != "" {
			names = append(names, p.Name)
		}
	}
	return names
}

// print prints what each part took of its budget, the tests that failed and why, and at last how many tests there were.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "\n%-12s %8s %8s %8s\n", "PART", "SECONDS", "BUDGET", "CPU")
	for _, p := range r.Parts {
		remark := ""
		if p.Seconds > float64(p.Budget) {
			remark += "  over its budget"
		}
		if p.Err != "" {
			remark += "  FAILED"
		}
		fmt.Fprintf(out, "%-12s %8.0f %8d %8.0f%s\n", p.Name, p.Seconds, p.Budget, p.CPU, remark)
	}
	fmt.Fprintf(out, "%-12s %8.0f %8s %8.0f\n\n", "all", r.Seconds, "", r.CPU)
	count := make(map[string]int)
	for _, p := range r.Parts {
		explained := false
		for _, t := range p.Tests {
			count[t.Action]++
			if t.Failed() {
				explained = true
				fmt.Fprintf(out, "%s: %s %s\n%s\n", t.Action, t.Package, t.Name, bytes.Join(last(reason.FindAll(t.Output, -1), 12), []byte("\n")))
			}
		}
		if p.Err != "" && !explained {
			fmt.Fprintf(out, "%s: %s\n%s\n", p.Name, p.Err, strings.Join(last(strings.Split(strings.TrimSpace(p.log), "\n"), 20), "\n"))
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"]+count["unfinished"], count["skip"])
}

func last[T any](all []T, n int) []T { return all[max(len(all)-n, 0):] }

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
