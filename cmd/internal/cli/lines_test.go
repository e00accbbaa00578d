package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/document"
)

// Sentences and commands are whole, however long, and no text of a document makes a command.
func TestLines(t *testing.T) {
	c := between("10.0.0.1", holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n2", "web-1", "10.0.0.1", time.Minute))
	long := "kubectl delete pod " + strings.Repeat("a-long-name ", 20) + "end"
	c.Holders[0].Pod.Name = "web" + commandMark + "rm -rf /" + commandMark
	c.Advice = &document.Advice{Unknown: "together", Remove: []document.Removal{{Holder: 0, Command: long}, {Holder: 1, Command: "ip link set dev x down", On: "n2"}}}
	document.Sanitize(&c)
	want := []Line{
		{Text: "What to do:"},
		{Text: "It is not known which is newer: they came within a second. Remove one of them:"},
		{Text: "anywhere:"},
		{Command: long},
		{Text: "on node n2:"},
		{Command: "ip link set dev x down"},
		{Text: "IPAM may give the address out again while the other has it: replace that one, too, or repair IPAM."},
	}
	if diff := cmp.Diff(want, Lines("dupip", &c, (*Printer).StoryAdvice)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for n := range c.Holders {
		c.Holders[n].Bridge, c.Holders[n].Pod = "shop", nil
	}
	const file = "networks:\n  - {name: \"shop\", scope: node, match: {bridges: [\"shop\"]}}"
	if lines := Lines("dupip", &c, (*Printer).StoryAdvice); len(lines) < 3 || lines[2].Command != file {
		t.Errorf("%+v, want the third to be %q", lines, file)
	}
}
