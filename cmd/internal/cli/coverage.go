package cli

import (
	"fmt"

	"github.com/dupip/dupip/document"
)

// Coverage says which things an answer of the cluster lacks.
func (p *Printer) Coverage(c document.Coverage, things string) {
	if c.Alone {
		p.wrapped(0, "This agent is alone: it was started without --join and --bind and knows its own node only.")
	}
	if n := len(c.Missing); n > 0 {
		p.wrapped(0, fmt.Sprintf("%d of %d nodes did not answer: %s; their %s are missing.",
			n, c.Asked, List(c.Missing), things))
	}
	if c.Omitted > 0 {
		p.wrapped(0, fmt.Sprintf("%d %s did not fit into the answers: give one --ip or one --node.", c.Omitted, things))
	}
}
