package cli

import (
	"cmp"
	"slices"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// Audit prints where the books and the wire differ, and how to repair it.
func (p *Printer) Audit(a document.Audit) {
	switch agree := a.Verdict == document.AuditAgrees; {
	case len(a.Findings) > 0:
		p.findings(a)
	case agree && p.Selected:
		p.println("No such finding.")
	case agree:
		p.println(NoFinding(a) + ".")
	default:
		p.println(NoFinding(a) + ":")
	}
	p.Repairs(a)
}

// NoFinding says what it means that an audit has no finding.
func NoFinding(a document.Audit) string {
	switch a.Verdict {
	case document.AuditAgrees:
		return "No finding: books and wire agree"
	case document.AuditNothing:
		return "No finding, because nothing was checked"
	}
	return "No finding, but the check is not complete"
}

// Repairs prints how to repair the findings, and what was looked at.
func (p *Printer) Repairs(a document.Audit) {
	p.repairs(a)
	for _, b := range a.Books {
		if b.Error == "" { // others are among those that are not checked
			p.wrapped(2, "Book: "+bookText(b)+".")
		}
	}
	p.AuditGaps(a)
}

// AuditGaps prints what was not looked for.
func (p *Printer) AuditGaps(a document.Audit) {
	for _, text := range a.Unchecked {
		p.wrapped(2, "Not checked: "+text+".")
	}
	p.Coverage(a.Coverage, "findings")
}

func (p *Printer) findings(a document.Audit) {
	holders := each(a.Findings, func(f document.Finding) document.Binding { return document.Binding{Holder: f.Holder, IP: f.IP} })
	nodes := p.nodeColumn(append(holders, document.Binding{Holder: document.Holder{Node: a.Node, BootID: a.BootID}}))
	header := []any{"node", "ip", "finding", "since", "holder", "reserved for"}
	if p.Wide {
		header = append(header, "book", "cni network", "store", "interface", "netns", "sandbox")
	}
	var rows []table.Row
	for _, f := range a.Findings {
		row := table.Row{
			nodes[f.NodeID()], f.IP, p.Paint(f.Kind), Age(f.Since), cmp.Or(f.Pod.String(), f.Netns, "-"), ReservationOf(f, p.Wide),
		}
		if p.Wide {
			row = append(row, f.Book, f.CNINetwork, f.Store, cmp.Or(f.Interface, "-"), cmp.Or(f.Netns, "-"), cmp.Or(f.Sandbox, "-"))
		}
		rows = append(rows, row)
	}
	p.fitted(rows, header, "holder", "since", "reserved for")
}

// repairs says what follows from the findings, and how to repair the first of each sort.
func (p *Printer) repairs(a document.Audit) {
	if len(a.Findings) == 0 {
		return
	}
	p.println()
	nodes := merge.Names(each(a.Findings, document.Finding.NodeID))
	for _, kind := range document.FindingKinds {
		for _, apart := range []bool{true, false} {
			same := slices.DeleteFunc(slices.Clone(a.Findings), func(f document.Finding) bool { return f.Kind != kind || IsApart(f) != apart })
			if len(same) > 0 {
				p.repair(same, nodes[same[0].NodeID()])
			}
		}
	}
	p.println()
}

// repair says how to repair the first of findings that are repaired in the same way.
func (p *Printer) repair(same []document.Finding, node string) {
	text, command := Repair(same[0])
	p.wrapped(2, text)
	if command != "" {
		p.println(p.clip("  on node "+node+":", 0))
		p.command("    ", command)
	}
	if others := each(same[1:], func(f document.Finding) string { return f.IP.String() }); len(others) > 0 {
		p.wrapped(4, "  likewise: "+List(others))
	}
}
