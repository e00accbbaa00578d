package query

import (
	"bytes"
	"errors"
	"testing"

	"github.com/dupip/dupip/agent/api"
)

// A node that does not answer is an error, not an empty table.
func TestNodeThatDoesNotAnswer(t *testing.T) {
	for _, test := range []struct {
		node     string
		coverage api.Coverage
		fails    bool
	}{
		{"n2", api.Coverage{Asked: 1, Missing: []string{"n2"}, Partial: true}, true},
		{"n2", api.Coverage{Asked: 2, Missing: []string{"n2 (boot 12345678)"}, Partial: true}, false},
		{"n2", api.Coverage{Asked: 1}, false},
		{"", api.Coverage{Asked: 1, Missing: []string{"n2"}, Partial: true}, false},
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

// With --exit-code, what was not seen is not clean.
func TestConflictsExit(t *testing.T) {
	confirmed, resolved, drill := api.Conflict{State: "confirmed"}, api.Conflict{State: "resolved"}, api.Conflict{State: "confirmed", Drill: true}
	missing := api.Coverage{Partial: true, Missing: []string{"n3"}}
	for name, test := range map[string]struct {
		conflicts []api.Conflict
		coverage  api.Coverage
		want      int
	}{
		"none":                   {},
		"one":                    {[]api.Conflict{resolved, confirmed}, api.Coverage{}, exitFound},
		"resolved, and a drill":  {[]api.Conflict{resolved, drill}, api.Coverage{}, 0},
		"none, a node is silent": {[]api.Conflict{resolved, drill}, missing, exitPartial},
		"one, a node is silent":  {[]api.Conflict{confirmed}, missing, exitFound},
	} {
		if got := conflictList.exit(api.Conflicts{Conflicts: test.conflicts, Coverage: test.coverage}); got != test.want {
			t.Errorf("%s: exit code %d, want %d", name, got, test.want)
		}
	}
}
