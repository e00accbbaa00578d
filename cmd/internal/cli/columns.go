package cli

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/dupip/dupip/document"
)

// wideTerminal is from which width on names in tables are whole, unless they are too long for the table.
const wideTerminal = 120

// none says that a list is empty, of everything or of what was asked for.
func (p *Printer) none(things string) {
	if p.Selected {
		p.println("No such " + things)
	} else {
		p.println("No " + things)
	}
}

// brief shortens the name of an interface for a narrow table. Others than Linux's have more than 15 characters.
func (p *Printer) brief(name string) string {
	if p.Width == 0 || p.Width >= wideTerminal {
		return name
	}
	return clip(name, 15)
}

// nodeColumn returns the text of a column for each node, by its id; none if all holders are on one
// node and no others were asked, so that no column is needed.
func (p *Printer) nodeColumn(holders []document.Binding) map[string]string {
	const least = 11 // if there are long addresses
	width, whole := 20, p.Width == 0 || p.Width >= wideTerminal
	nodes := make(map[string]document.Binding)
	names, domains := make(map[string]int), make(map[string]bool)
	for _, b := range holders {
		if _, ok := nodes[b.NodeID()]; !ok {
			nodes[b.NodeID()] = b
			names[b.Node]++
		}
		_, domain := shortName(b.Node)
		domains[domain] = true
		if len(b.IP.String()) > 24 {
			width = least
		}
	}
	if len(nodes) < 2 && !p.several {
		return nil
	}
	column := make(map[string]string)
	for id, b := range nodes {
		name, _ := shortName(b.Node)
		if len(domains) > 1 || whole {
			name = b.Node // the domain tells them apart
		}
		boot := ""
		if names[b.Node] > 1 {
			boot = fmt.Sprintf("/%.8s", b.BootID) // as in "dupip nodes"
		}
		if !whole {
			name = clip(name, min(width, max(width, least+2)-len(boot)))
		}
		column[id] = name + boot
	}
	return column
}

// shortName splits a node's name into its first label and its domain. An address is a short name.
func shortName(node string) (short, domain string) {
	if _, err := netip.ParseAddr(node); err == nil {
		return node, ""
	}
	short, domain, _ = strings.Cut(node, ".")
	return short, domain
}
