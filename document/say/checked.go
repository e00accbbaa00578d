package say

import (
	"fmt"
	"math"
	"strings"

	"github.com/dupip/dupip/document"
)

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

// Checked says which books an audit has read, and what it has not looked for.
func Checked(a document.Audit) (lines []string) {
	for _, b := range a.Books {
		if b.Error == "" { // others are among those that are not checked
			lines = append(lines, "Book: "+BookStatus(b)+".")
		}
	}
	for _, text := range a.Unchecked {
		lines = append(lines, "Not checked: "+text+".")
	}
	return lines
}

// BookStatus says which addresses a book covers, and how many of them it has reserved.
func BookStatus(b document.BookStatus) string {
	text := fmt.Sprintf("%s, network %s, ", b.Kind, b.CNINetwork)
	if b.Error != "" {
		return text + "problem: " + b.Error
	}
	covered := "no known range"
	if len(b.Ranges) > 0 {
		covered = strings.Join(b.Ranges, " and ")
	}
	text = fmt.Sprintf("%s%s reserved of %s", text, Addresses(b.Reserved), covered)
	if b.LeftPercent != nil {
		text += fmt.Sprintf(", %.0f%% left", math.Floor(*b.LeftPercent))
	}
	return text
}

// Coverage says which things an answer of the cluster lacks.
func Coverage(c document.Coverage, things string) (lines []string) {
	if c.Alone {
		lines = append(lines, "This agent is alone: it was started without --join and --bind and knows its own node only.")
	}
	if n := len(c.Missing); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d nodes did not answer: %s; their %s are missing.", n, c.Asked, List(c.Missing), things))
	}
	if c.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%d %s did not fit into the answers: give one --ip or one --node.", c.Omitted, things))
	}
	return lines
}
