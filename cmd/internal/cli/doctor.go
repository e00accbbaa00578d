package cli

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Doctor prints a line for each check, and below it what to do.
func (p *Printer) Doctor(report document.DoctorReport) {
	const name, outcome = 14, 6
	const short = 30
	said := make(map[string]string) // sentences, by the check that said them first
	once := func(check, sentence string) string {
		if first := said[sentence]; first != "" && len(sentence) > short {
			return "as for \"" + first + "\""
		}
		said[sentence] = check
		return sentence
	}
	for _, check := range report.Checks {
		p.Entry(name+outcome, fmt.Sprintf("%-*s%s", name, check.Name, p.Paint(string(check.Status))), once(check.Name, check.Finding))
		if check.Advice != "" {
			p.Entry(name+outcome+2, strings.Repeat(" ", name+outcome)+"→", once(check.Name, check.Advice))
		}
	}
	s := report.Summary
	fmt.Fprintf(p.Out, "\n%d ok, %s, %s", s.OK, say.Plural(s.Warnings, "warning", "warnings"), say.Plural(s.Failures, "failure", "failures"))
	if s.Skipped > 0 {
		fmt.Fprintf(p.Out, ", %d skipped", s.Skipped)
	}
	fmt.Fprintln(p.Out)
}
