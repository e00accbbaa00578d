package cli

import (
	"cmp"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Audit prints where the books and the wire differ, and how to repair it.
func (p *Printer) Audit(a document.Audit) {
	if p.NoHeaders {
		tables{Printer: p}.findings(a)
		return
	}
	switch agree := a.Verdict == document.AuditAgrees; {
	case len(a.Findings) > 0:
		tables{Printer: p}.findings(a)
	case agree && p.Selected:
		p.println("No such finding.")
	case agree:
		p.println(say.NoFinding(a) + ".")
	default:
		p.println(say.NoFinding(a) + ":")
	}
	steps{p}.entries(say.Repairs(a))
	if len(a.Findings) > 0 {
		p.println()
	}
	p.checked(a)
}

// AuditGaps prints what was not looked for.
func (p *Printer) AuditGaps(a document.Audit) {
	a.Books = nil
	p.checked(a)
}

// checked prints which books were looked at, and what was not looked for.
func (p *Printer) checked(a document.Audit) {
	p.sentences(2, say.Checked(a))
	p.Coverage(a.Coverage, "findings")
}

func (t tables) findings(a document.Audit) {
	holders := each(a.Findings, func(f document.Finding) document.Binding { return document.Binding{Holder: f.Holder, IP: f.IP} })
	nodes := t.nodeColumn(append(holders, document.Binding{Holder: document.Holder{Node: a.Node, BootID: a.BootID}}))
	header := []any{"node", "ip", "finding", "since", "holder", "reserved for"}
	if t.Wide {
		header = append(header, "book", "cni network", "store", "interface", "netns", "sandbox")
	}
	var rows []table.Row
	for _, f := range a.Findings {
		row := table.Row{
			nodes[f.NodeID()], address(f), t.Paint(f.Kind), Age(f.Since), cmp.Or(say.HolderOf(f), "-"), say.ReservationOf(f, t.Wide),
		}
		if t.Wide {
			row = append(row, f.Book, f.CNINetwork, f.Store, cmp.Or(f.Interface, "-"), cmp.Or(f.Netns, "-"), cmp.Or(f.Sandbox, "-"))
		}
		rows = append(rows, row)
	}
	t.fitted(rows, header, "holder", "since", "reserved for", "ip")
}

// address is that of a finding; one about a node has none.
func address(f document.Finding) string {
	if !f.IP.IsValid() {
		return "-"
	}
	return f.IP.String()
}
