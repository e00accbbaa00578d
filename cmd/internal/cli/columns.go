package cli

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// wideTerminal is from which width on names in tables are whole, unless they are too long for the table.
const wideTerminal = 120

// none says that a list is empty, of everything or of what was asked for.
func (t tables) none(things string) {
	if t.Selected {
		t.println("No such " + things)
	} else {
		t.println("No " + things)
	}
}

// brief shortens the name of an interface for a narrow table. Others than Linux's have more than 15 characters.
func (t tables) brief(name string) string {
	if t.Width == 0 || t.Width >= wideTerminal {
		return name
	}
	return clip(name, 15)
}

// nodeColumn returns the text of a column for each node, by its id; none if all holders are on one
// node and no others were asked, so that no column is needed.
func (t tables) nodeColumn(holders []document.Binding) map[string]string {
	const least = 11 // if there are long addresses
	width, whole := 20, t.Width == 0 || t.Width >= wideTerminal
	names := merge.Names(each(holders, document.Binding.NodeID))
	if len(names) < 2 && !t.several {
		return nil
	}
	domains := distinct(each(holders, func(b document.Binding) string { _, domain := shortName(b.Node); return domain }))
	if slices.ContainsFunc(holders, func(b document.Binding) bool { return len(b.IP.String()) > 24 }) {
		width = least
	}
	column := make(map[string]string)
	for _, b := range holders {
		name, _ := shortName(b.Node)
		if len(domains) > 1 || whole {
			name = b.Node // the domain tells them apart
		}
		boot := ""
		if names[b.NodeID()] != b.Node {
			boot = fmt.Sprintf("/%.8s", b.BootID) // as in "dupip nodes"
		}
		if !whole {
			name = clip(name, min(width, max(width, least+2)-len(boot)))
		}
		column[b.NodeID()] = name + boot
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
