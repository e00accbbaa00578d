package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Sentences and commands are whole, however long, and no text of a document makes a command.
func TestTodo(t *testing.T) {
	long := "kubectl delete pod " + strings.Repeat("a-long-name ", 20) + "end"
	c := document.Conflict{Judgement: &document.Judgement{Text: "Because\n  rm -rf /\n", Steps: []document.Step{
		{Text: "Remove one", Command: long},
		{If: "If not", Text: "Read \"dupip nodes\"", Node: "n2", Cuts: "the web"},
		{Text: "Add this", Command: "networks:\n  - {name: \"a\x1b\"}\n", File: "the configuration"},
	}}}
	document.Sanitize(&c)
	want := []Line{
		{Text: "10.0.0.1: Because?  rm -rf /?"},
		{Text: "Remove one:"},
		{Command: long},
		{Text: "If not: Read \"kubectl dupip nodes\", on node n2 (this cuts the web)."},
		{Text: "Add this:"},
		{Command: "networks:\n  - {name: \"a?\"}"},
	}
	got := Todo("kubectl dupip", []say.Entry{{Addresses: []string{"10.0.0.1"}, Text: c.Judgement.Text, Steps: c.Judgement.Steps}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
