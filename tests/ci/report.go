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
)

// report is what became of all parts.
type report struct {
	Seconds float64   `json:"seconds"`
	CPU     float64   `json:"cpu"` // seconds, of the whole machine
	Parts   []*result `json:"parts"`
}

// result is what became of a part.
type result struct {
	Name    string  `json:"name"`
	Why     string  `json:"why"`
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"` // seconds, of its processes
	Budget  int     `json:"budget"`
	Err     string  `json:"err,omitempty"`
	Tests   []test  `json:"tests"`

	began time.Duration
	log   string
}

// test is a test, or a part of one.
type test struct {
	Package string  `json:"package"`
	Name    string  `json:"name"`
	Action  string  `json:"action"` // pass, fail, skip or unfinished
	Seconds float64 `json:"seconds"`

	said []string // why it failed
}

func (t test) failed() bool { return t.Action == "fail" || t.Action == "unfinished" }

// reason is the beginning of what a test has logged, or of how it crashed: one of these lines says why it failed. Logs of
// processes, which are long, are indented more.
var reason = regexp.MustCompile(`(?m)^(?:    \w+\.go:\d+: |panic: ).{1,400}`)

// event is a line of go test -json (go doc test2json).
type event struct {
	Time                                      time.Time
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

// read takes what go test -json has printed. The output of a test that passed is not kept.
func (res *result) read(log []byte, busy *history) {
	type begun struct {
		test
		output   []byte
		from, to time.Time
	}
	var order []*begun
	byName := make(map[string]*begun)
	var text, rest strings.Builder
	for line := range bytes.Lines(log) {
		var e event
		if json.Unmarshal(line, &e) != nil {
			text.Write(line)
			continue
		}
		if e.Test == "" {
			if e.Output != "PASS\n" {
				rest.WriteString(e.Output)
			}
			continue
		}
		key := e.Package + " " + e.Test
		t := byName[key]
		if t == nil {
			t = &begun{test: test{Package: e.Package, Name: e.Test, Action: "unfinished"}, from: e.Time}
			byName[key] = t
			order = append(order, t)
		}
		t.to = e.Time
		switch e.Action {
		case "output":
			if strings.HasPrefix(e.Output, "=== ") {
				continue // RUN, PAUSE, CONT
			}
			t.output = append(t.output, e.Output...)
		case "pass", "fail", "skip":
			t.Action, t.Seconds = e.Action, e.Elapsed
		}
	}
	for _, t := range order {
		fmt.Fprintf(&text, "%s %s (%.2fs)\n", t.Action, t.Name, t.Seconds)
		if t.Action != "pass" {
			text.Write(t.output)
		}
		if t.failed() {
			t.said = append(reason.FindAllString(string(t.output), 10), "    "+busy.during(t.from, t.to))
			fmt.Fprintln(&text, t.said[len(t.said)-1])
		}
		res.Tests = append(res.Tests, t.test)
	}
	res.log = text.String() + rest.String()
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
		for _, t := range p.Tests {
			count[t.Action]++
			if t.failed() {
				fmt.Fprintf(out, "%s: %s %s\n%s\n", t.Action, t.Package, t.Name, strings.Join(t.said, "\n"))
			}
		}
	}
	fmt.Fprintf(out, "%d passed, %d failed, %d skipped\n", count["pass"], count["fail"]+count["unfinished"], count["skip"])
}

func (r *report) write(file string) error {
	data, err := json.MarshalIndent(r, "", "\t")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(data, '\n'), 0o644)
}
