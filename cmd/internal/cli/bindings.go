package cli

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Bindings prints which address was seen behind which interface.
func (p *Printer) Bindings(doc document.Bindings) {
	t := tables{p, doc.Asked > 1}
	if len(doc.Bindings) == 0 {
		t.none("address seen.")
	} else {
		t.bindings(doc.Bindings)
	}
	if !p.NoHeaders {
		p.Coverage(doc.Coverage, "bindings")
	}
}

func (t tables) bindings(bindings []document.Binding) {
	var rows []table.Row
	if t.Wide {
		for _, b := range bindings {
			rows = append(rows, table.Row{
				b.Network, b.IP, say.Who(b), b.Node, b.Interface, b.Ifindex, b.MAC, b.Evidence.String(),
				Age(b.FirstSeen), Age(b.LastSeen),
			})
		}
		t.table(rows, "network", "ip", "holder", "node", "interface", "ifindex", "mac", "evidence", "first seen", "last seen")
		return
	}
	nodes := t.nodeColumn(bindings)
	for _, b := range once(bindings) {
		rows = append(rows, table.Row{
			say.InNetwork(b.IP.String(), b.Network), nodes[b.NodeID()], say.Who(b), t.brief(b.Interface), b.Evidence.String(), Age(b.FirstSeen), Age(b.LastSeen),
		})
	}
	t.fitted(rows, []any{"ip", "node", "holder", "interface", "evidence", "first seen", "last seen"}, "holder", "first seen", "interface", "last seen", "ip", "evidence")
}

// once leaves out what is listed without its network, too: a node's own address is in that of all pods and in that of its segment.
func once(bindings []document.Binding) []document.Binding {
	type place struct {
		ip          netip.Addr
		node, netns string
		ifindex     uint32
	}
	of := func(b document.Binding) place { return place{b.IP, b.NodeID(), b.Netns, b.Ifindex} }
	isPlain := func(b document.Binding) bool { return say.InNetwork(b.IP.String(), b.Network) == b.IP.String() }
	plain := make(map[place]bool)
	for _, b := range bindings {
		plain[of(b)] = plain[of(b)] || isPlain(b)
	}
	return slices.DeleteFunc(slices.Clone(bindings), func(b document.Binding) bool { return plain[of(b)] && !isPlain(b) })
}

// bindingEvent has what may be long at its end.
const bindingEvent = "%-12s  %-7s  %-9s  %-15s  %-15s  %s\n"

// BindingEventsHeader is the header of [Printer.BindingEvent].
var BindingEventsHeader = fmt.Sprintf(bindingEvent, "TIME", "EVENT", "EVIDENCE", "INTERFACE", "IP", "HOLDER")

// BindingEvent prints a line for an event of a watch.
func (p *Printer) BindingEvent(event document.BindingEvent) {
	b := event.Binding
	p.printf(bindingEvent, event.At.Local().Format("15:04:05.000"), event.Type, b.Evidence, b.Interface, say.InNetwork(b.IP.String(), b.Network), say.Who(b))
}
