package cli

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// either is yes or no.
func either(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}

// Configuration prints what a configuration file says.
func (p *Printer) Configuration(c document.Configuration) {
	var networks []string
	for _, n := range c.Networks {
		text := n.Name + " (one in the cluster"
		if n.Scope == "node" {
			text = n.Name + " (one on each node"
		}
		if !n.Solicit {
			text += ", not probed"
		}
		networks = append(networks, text+")")
	}
	l := c.Limits
	p.printf("%s: OK\n", c.File)
	for _, line := range []struct{ what, text string }{
		{"networks", strings.Join(networks, ", ")},
		{"shared", strings.Join(c.Shared, ", ")},
		{"exclusive", strings.Join(c.Exclusive, ", ")},
		{"segments", either(c.Segments.Ask, "asked", "not asked") + "; " + either(c.Segments.Infer, "inferred", "not inferred")},
		{"ignored interfaces", strings.Join(c.Ignored, ", ")},
		{"limits", fmt.Sprintf("%s, %d for one interface; %s; %d verifying and %d refreshing probes a second",
			say.Plural(l.Bindings, "binding", "bindings"), l.BindingsPerInterface,
			say.Plural(l.History, "resolved conflict", "resolved conflicts"), l.VerifyPerSecond, l.RefreshPerSecond)},
	} {
		p.Entry(20, line.what, cmp.Or(line.text, none))
	}
}
