// Package testjson reads what go test -json, and go tool test2json, print (go doc test2json).
package testjson

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
)

// Test is a test, or a part of one.
type Test struct {
	Package string `json:"package"`
	Name    string `json:"name"`
	// Action is pass, fail, skip or unfinished, as of one whose program crashed.
	Action  string  `json:"action"`
	Seconds float64 `json:"seconds"`
	// Output is what it printed, without the lines of the test runner about its beginning.
	Output []byte `json:"-"`
	// Began and Ended are the times of its first and last event, zero if events have none.
	Began time.Time `json:"-"`
	Ended time.Time `json:"-"`
}

// Failed reports whether it has not passed and was not skipped.
func (t *Test) Failed() bool { return t.Action == "fail" || t.Action == "unfinished" }

// Read returns the tests in the order in which they began. text is what is no event, such as what a build prints, and other is the
// output that belongs to no test.
func Read(log []byte) (tests []*Test, text, other string) {
	var texts, others strings.Builder
	byName := make(map[string]*Test)
	for line := range bytes.Lines(log) {
		var e struct {
			Time                          time.Time
			Action, Package, Test, Output string
			Elapsed                       float64
		}
		if json.Unmarshal(line, &e) != nil {
			texts.Write(line)
			continue
		}
		if e.Test == "" || strings.HasPrefix(e.Test, "Benchmark") {
			others.WriteString(e.Output)
			continue
		}
		key := e.Package + " " + e.Test
		t := byName[key]
		if t == nil {
			t = &Test{Package: e.Package, Name: e.Test, Action: "unfinished", Began: e.Time}
			byName[key] = t
			tests = append(tests, t)
		}
		t.Ended = e.Time
		switch e.Action {
		case "output":
			if !strings.HasPrefix(e.Output, "=== ") { // RUN, PAUSE, CONT
				t.Output = append(t.Output, e.Output...)
			}
		case "pass", "fail", "skip":
			t.Action, t.Seconds = e.Action, e.Elapsed
		}
	}
	return tests, texts.String(), others.String()
}
