package cli

import (
	"cmp"
	"slices"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/jedib0t/go-pretty/v6/table"
)

// Audit prints where the books and the wire differ, and how to repair it.
func (p *Printer) Audit(a api.Audit) {
	if p.findings(a); len(a.Findings) == 0 {
		text := NoFinding(a)
		if p.Selected && a.Verdict == api.AuditAgrees {
			text = "No such finding"
		}
		p.println(text + map[bool]string{true: ".", false: ":"}[a.Verdict == api.AuditAgrees])
	}
	p.Repairs(a)
}

// NoFinding says what it means that an audit has no finding.
func NoFinding(a api.Audit) string {
	switch a.Verdict {
	case api.AuditAgrees:
		return "No finding: books and wire agree"
	case api.AuditNothing:
		return "No finding, because nothing was checked"
	}
	return "No finding, but the check is not complete"
}

// Repairs prints how to repair the findings, and what was looked at.
func (p *Printer) Repairs(a api.Audit) {
	p.repairs(a)
	for _, b := range a.Books {
		if b.Error == "" { // others are among those that are not checked
			p.wrapped(2, "Book: "+bookText(b)+".")
		}
	}
	p.AuditGaps(a)
}

// AuditGaps prints what was not looked for.
func (p *Printer) AuditGaps(a api.Audit) {
	for _, text := range a.Unchecked {
		p.wrapped(2, "Not checked: "+text+".")
	}
	p.Coverage(a.Coverage, "findings")
}

func (p *Printer) findings(a api.Audit) {
	if len(a.Findings) == 0 {
		return
	}
	nodes := p.nodeColumn(append(each(a.Findings, holderOf), api.Binding{Node: a.Node, BootID: a.BootID}))
	header := []any{"node", "ip", "finding", "since", "holder", "reserved for"}
	if p.Wide {
		header = append(header, "book", "network", "store", "interface", "netns", "sandbox")
	}
	var rows []table.Row
	for _, f := range a.Findings {
		row := table.Row{
			nodes[NodeID(holderOf(f))], f.IP, p.Paint(f.Kind), Age(f.Since), cmp.Or(PodName(f.Pod), f.Netns, "-"), ReservationOf(f, p.Wide),
		}
		if p.Wide {
			row = append(row, f.Book, f.Network, f.Store, cmp.Or(f.Interface, "-"), cmp.Or(f.Netns, "-"), cmp.Or(f.Sandbox, "-"))
		}
		rows = append(rows, row)
	}
	if nodes == nil {
		header = without("node", header, rows)
	}
	if p.Wide {
		p.table(rows, header...)
	} else {
		p.fitted(rows, header, "holder", "since", "reserved for")
	}
}

// holderOf is the node and the address of a finding.
func holderOf(f api.Finding) api.Binding {
	return api.Binding{Node: f.Node, BootID: f.BootID, IP: f.IP}
}

// repairs says what follows from the findings, and how to repair the first of each sort.
func (p *Printer) repairs(a api.Audit) {
	if len(a.Findings) > 0 {
		p.println()
	}
	on := each(a.Findings, holderOf)
	names, _ := NodesOf(on)
	nodes := make(map[string]string)
	for n, b := range on {
		nodes[NodeID(b)] = names[n]
	}
	for _, kind := range cluster.FindingKinds {
		for _, apart := range []bool{true, false} {
			same := slices.DeleteFunc(slices.Clone(a.Findings), func(f api.Finding) bool { return f.Kind != kind || IsApart(f) != apart })
			if len(same) > 0 {
				p.repair(same, nodes[NodeID(holderOf(same[0]))])
			}
		}
	}
	if len(a.Findings) > 0 {
		p.println()
	}
}

// repair says how to repair the first of findings that are repaired in the same way.
func (p *Printer) repair(same []api.Finding, node string) {
	text, command := Repair(same[0])
	p.wrapped(2, text)
	if command != "" {
		p.println(p.clip("  on node "+node+":", 0))
		p.command("    ", command)
	}
	if others := each(same[1:], func(f api.Finding) string { return f.IP }); len(others) > 0 {
		p.wrapped(4, "  likewise: "+List(others))
	}
}
