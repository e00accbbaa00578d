package query

import (
	"bytes"
	"errors"
	"net/netip"
	"slices"
	"testing"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// A node that does not answer is an error, not an empty table.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	for _, test := range []struct {
		node     string
		coverage document.Coverage
		fails    bool
	}{
		{"n2", document.Coverage{Asked: 1, Missing: []string{"n2"}, Partial: true}, true},
		{"n2", document.Coverage{Asked: 2, Missing: []string{"n2 (boot 12345678)"}, Partial: true}, false},
		{"n2", document.Coverage{Asked: 1}, false},
		{"", document.Coverage{Asked: 1, Missing: []string{"n2"}, Partial: true}, false},
	} {
		if err := Unanswered(test.node, test.coverage); (err != nil) != test.fails {
			t.Errorf("node %q, %+v: %v", test.node, test.coverage, err)
		}
	}
}

// An error from the agent's socket cannot control the terminal.
func TestHostileErrors(t *testing.T) {
	for reason, want := range map[string]string{
		`"dupip nodes" lists them`: "kubectl dupip: \"kubectl dupip nodes\" lists them\n",
		"a\x1b[2J\u202eb":          "kubectl dupip: a?[2J?b\n",
		"one\ntwo":                 "kubectl dupip: one\ntwo\n", // a configuration with two mistakes
	} {
		var out bytes.Buffer
		PrintError(&out, "kubectl dupip", errors.New(reason))
		if got := out.String(); got != want {
			t.Errorf("%q is printed as %q, want %q", reason, got, want)
		}
	}
}

// Nor has it what the locale has not.
func TestErrorsInASCII(t *testing.T) {
	t.Setenv("LC_ALL", "POSIX")
	var out bytes.Buffer
	if PrintError(&out, "dupip", errors.New("a → b…")); out.String() != "dupip: a > b*\n" {
		t.Errorf("%q", out.String())
	}
}

// With --exit-code, what was not seen is not clean.
func TestConflictsExit(t *testing.T) {
	confirmed, resolved, drill := document.Conflict{State: detector.Confirmed}, document.Conflict{State: detector.Resolved}, document.Conflict{State: detector.Confirmed, Drill: true}
	missing := document.Coverage{Partial: true, Missing: []string{"n3"}}
	for name, test := range map[string]struct {
		conflicts []document.Conflict
		coverage  document.Coverage
		want      int
	}{
		"none":                   {},
		"one":                    {[]document.Conflict{resolved, confirmed}, document.Coverage{}, exitFound},
		"resolved, and a drill":  {[]document.Conflict{resolved, drill}, document.Coverage{}, 0},
		"none, a node is silent": {[]document.Conflict{resolved, drill}, missing, exitPartial},
		"one, a node is silent":  {[]document.Conflict{confirmed}, missing, exitFound},
	} {
		if got := conflictList.exit(document.Conflicts{Conflicts: test.conflicts, Coverage: test.coverage}); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}

// What is completed is what elements have: one without an address, or without a pod, has nothing for that flag.
func TestCompleted(t *testing.T) {
	pod := func(name string) *document.Pod { return &document.Pod{Namespace: "shop", Name: name} }
	holders := append(
		findingList.holders(document.Audit{
			Findings: []document.Finding{{CNINetwork: "pods", IP: netip.MustParseAddr("10.1.2.5"), Holder: document.Holder{Pod: pod("web-0")}, ReservedPod: pod("web-1")}},
			Checked:  []string{"other"},
		}),
		conflictList.holders(document.Conflicts{Conflicts: []document.Conflict{{Network: "default", IP: netip.MustParseAddr("fd00::1")}}})...,
	)
	for flag, want := range map[string][]string{
		"ip": {"10.1.2.5", "fd00::1"}, "network": {"default", "other", "pods"}, "namespace": {"shop"}, "pod": {"shop/web-0", "shop/web-1"},
	} {
		var got []string
		for _, b := range holders {
			if value := selectors[flag](b); value != "" {
				got = append(got, value)
			}
		}
		slices.Sort(got)
		if got = slices.Compact(got); !slices.Equal(got, want) {
			t.Errorf("--%s: %q, want %q", flag, got, want)
		}
	}
}
