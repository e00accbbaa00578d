package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/testjson"
)

// TestEveryPackage: each package with tests is in one part of CI that runs all of them, and the soaks in one of a release. gossip's
// largest clusters are played in the part user. Where there are threads and no lab, the race detector looks on.
func TestEveryPackage(t *testing.T) {
	for _, module := range []string{".", "tests"} {
		played := make(map[string][]string)
		for _, p := range parts {
			chooses := slices.ContainsFunc(p.flags, func(f string) bool { return strings.HasPrefix(f, "-run") || strings.HasPrefix(f, "-skip") })
			if (p.isIn("ci") && !p.ordinary || p.name == "soaks") && p.module == module && !chooses {
				if raced := slices.Contains(p.flags, "-race"); raced != (module == ".") && p.name != "detector" {
					t.Errorf("%s has the race detector: %v", p.name, raced)
				}
				for _, name := range packagesOf(t, module, p.packages...) {
					played[name] = append(played[name], p.name)
				}
			}
		}
		for _, name := range packagesOf(t, module, "./...") {
			if len(played[name]) != 1 {
				t.Errorf("%s is in the parts %q, want one", name, played[name])
			}
		}
	}
}

// packagesOf are the packages of patterns that have tests.
func packagesOf(t *testing.T, module string, patterns ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}"}, patterns...)...)
	cmd.Dir = "../../" + module
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list %q: %v\n%s", patterns, err, stderr.Bytes())
	}
	return strings.Fields(string(out))
}

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, p := range parts {
		if seen[p.name] {
			t.Errorf("two parts are called %s", p.name)
		}
		for _, before := range p.after {
			if !seen[before] {
				t.Errorf("%s waits for %s, which is no part, or a later one", p.name, before)
			}
		}
		if p.budget == 0 || p.why == "" || (p.script == "") == (p.packages == nil) {
			t.Errorf("%s needs a budget, a reason, and either packages or a script", p.name)
		}
		if p.lane != timed && p.lane != spare {
			t.Errorf("%s has no lane", p.name)
		}
		for _, set := range p.sets {
			if !slices.Contains(sets(), set) {
				t.Errorf("%s is in %s, which is no set", p.name, set)
			}
		}
		seen[p.name] = true
	}
}

// TestRunner: parts run after those that they wait for, all to their end, and one that fails fails the run.
func TestRunner(t *testing.T) {
	var out bytes.Buffer
	r := newRunner([]part{
		{name: "late", lane: timed, budget: 9, after: []string{"early", "of another set"}, script: "echo late"},
		{name: "early", lane: spare, budget: 0, script: "echo early; exit 3"},
		{name: "other", lane: timed, budget: 9, script: "echo other"},
		{name: "lost", lane: "lost", script: "true"},
	}, &out)
	all := r.run(t.Context())
	all.print(&out)
	text := out.String()
	for _, want := range []string{"early\n", "late\n", "other\n", "FAILED: exit status 3", "early: exit status 3\nearly\n", "over its budget  FAILED", "0 passed, 0 failed, 0 skipped\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no %q", want)
		}
	}
	if strings.Index(text, "== early") > strings.Index(text, "== late") {
		t.Error("late did not wait for early")
	}
	if p := all.Parts[0]; p.CPU <= 0 || p.Seconds <= 0 {
		t.Errorf("%s took %v s and %v s of CPU, all %v", p.Name, p.Seconds, p.CPU, all.CPU)
	}
	if got := strings.Join(all.failed(), ","); got != "early,lost" {
		t.Errorf("failed are %s, want early and the one that nobody takes", got)
	}
	if t.Failed() {
		t.Log(text)
	}
}

// TestInterrupted: a part that is interrupted ends, with all that it has started, and no other one begins.
func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	file, cleaned := filepath.Join(t.TempDir(), "pid"), filepath.Join(t.TempDir(), "cleaned")
	script := "trap 'sleep 0.2; touch " + cleaned + "; exit 1' INT; set -m; sleep 1000 & echo $! >" + file + ".new; mv " + file + ".new " + file + "; wait"
	r := newRunner([]part{
		{name: "endless", lane: timed, script: script},
		{name: "next", lane: spare, after: []string{"endless"}, script: "true"},
		{name: "last", lane: timed, after: []string{"next"}, script: "true"},
	}, new(bytes.Buffer))
	var pid []byte
	go func() {
		defer stop()
		_ = lab.Poll(ctx, time.Minute, func() (err error) {
			pid, err = os.ReadFile(file)
			return err
		})
	}()
	all := r.run(ctx)
	if got := strings.Join(all.failed(), ","); got != "endless" || len(all.Parts) != 1 {
		t.Errorf("%d parts have begun, and failed are %q", len(all.Parts), got)
	}
	if _, err := os.Stat(cleaned); err != nil {
		t.Errorf("it could not clean up: %v", err)
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	// One that was killed may be there for a moment.
	if err := lab.Poll(t.Context(), time.Minute, func() error { return alive(id) }); err != nil {
		t.Error(err)
	}
}

// TestLeftBehind: what a part that failed has started ends. A worker that is alone takes parts of each lane.
func TestLeftBehind(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	r := newRunner([]part{
		{name: "first", lane: spare, script: "true"},
		{name: "careless", lane: timed, after: []string{"first"}, script: "set -m; sleep 1000 & echo $! >" + file + "; exit 3"},
	}, new(bytes.Buffer))
	r.workers = alone
	if got := strings.Join(r.run(t.Context()).failed(), ","); got != "careless" {
		t.Errorf("failed are %q", got)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	id, err := strconv.Atoi(strings.TrimSpace(string(pid)))
	if err != nil {
		t.Fatal(err)
	}
	if err := lab.Poll(t.Context(), time.Minute, func() error { return alive(id) }); err != nil {
		t.Error(err)
	}
}

// alive returns an error if there is such a process, and it is no zombie.
func alive(id int) error {
	p, err := procfs.NewProc(id)
	if err != nil {
		return nil
	}
	if stat, err := p.Stat(); err == nil && stat.State != "Z" {
		return fmt.Errorf("process %d is still there", id)
	}
	return nil
}

// TestNoTest: a part whose tests do not exist has failed.
func TestNoTest(t *testing.T) {
	t.Chdir("..") // as the program
	for name, want := range map[string]string{"TestNames": "", "TestNoSuchThing": "no test has passed"} {
		r := newRunner([]part{{name: "some", lane: timed, module: "tests", packages: []string{"./ci"}, flags: []string{"-run=^" + name + "$"}}}, new(bytes.Buffer))
		if got := r.run(t.Context()).Parts[0].Err; got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}

// TestRead: the output of a test that passed is left out; one that did not end has failed, and says how busy the machine was.
func TestRead(t *testing.T) {
	var res result
	var h history
	ctx, stop := context.WithCancel(t.Context())
	stop()
	h.watch(ctx)
	res.read([]byte(`{"Time":"2026-01-01T10:00:00Z","Action":"run","Package":"p","Test":"TestA"}
{"Action":"output","Package":"p","Test":"TestA","Output":"=== RUN   TestA\n"}
{"Action":"output","Package":"p","Test":"TestA","Output":"noise of A\n"}
{"Action":"pass","Package":"p","Test":"TestA","Elapsed":1.5}
{"Action":"run","Package":"p","Test":"TestB"}
{"Action":"output","Package":"p","Test":"TestB","Output":"    p_test.go:7: it is 3\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"        the log of a process\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"            inside_test.go:9: it is 4\n"}
{"Action":"output","Package":"p","Test":"TestB","Output":"panic: boom\n"}
{"Action":"output","Package":"p","Output":"FAIL\tp\t2s\n"}
{"Action":"fail","Package":"p","Elapsed":2}
{"ImportPath":"q [q.test]","Action":"build-output","Output":"q.go:1:1: syntax error\n"}
not of go test
`), &h)
	got := res.log
	for _, want := range []string{"pass TestA (1.50s)\n", "unfinished TestB (0.00s)\n    p_test.go:7: it is 3\n        the log of a process\n            inside_test.go:9: it is 4\npanic: boom\n", "how busy the machine was is not known\n", "FAIL\tp\t2s\n", "syntax error", "not of go test\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "noise") || strings.Contains(got, "RUN") {
		t.Errorf("there is noise in\n%s", got)
	}
	var out bytes.Buffer
	(&report{Parts: []*result{&res}}).print(&out)
	for _, want := range []string{"unfinished: p TestB\n    p_test.go:7: it is 3\n            inside_test.go:9: it is 4\npanic: boom\n", "\n1 passed, 1 failed, 0 skipped\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("at the end there is no %q in\n%s", want, &out)
		}
	}
}

// TestTable: a test that takes long has a row, with its comment.
func TestTable(t *testing.T) {
	const here = "github.com/dupip/dupip/tests/ci"
	warm := &report{Seconds: 10, CPU: 12, Parts: []*result{{Name: "ci", Why: "itself", Seconds: 7.4, CPU: 3, Budget: 9, Tests: []*testjson.Test{{Package: here, Name: "TestTable", Action: "pass", Seconds: 6}, {Package: here, Name: "TestRead", Seconds: 4}}}}}
	cold := &report{Seconds: 70, CPU: 120, Parts: []*result{{Name: "ci", Seconds: 64, CPU: 30, Tests: []*testjson.Test{{Package: here, Name: "TestTable", Seconds: 60}}}}}
	got := table(warm, cold)
	for _, want := range []string{
		"| `ci` | itself | 9 | 7 | 3 | 64 | 30 |\n", "| all | | | 10 | 12 | 70 | 120 |\n",
		"| `TestTable` | `ci` | 6 | 60 | a test that takes long has a row, with its comment. |\n", "| `soaks` | a random life",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, "TestRead") {
		t.Errorf("a quick test has a row in\n%s", got)
	}
}
