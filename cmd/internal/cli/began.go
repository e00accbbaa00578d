package cli

import (
	"cmp"
	"slices"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Began is when a second holder of the address was seen first.
func Began(c document.Conflict) time.Time { return cmp.Or(c.SecondSeen, c.SuspectedAt) }

// BeganText is when a conflict began, in local time: the time of day of the last 24 hours, else with the date.
func BeganText(c document.Conflict) string {
	began, layout := Began(c), "15:04:05"
	switch age := time.Since(began); {
	case began.IsZero():
		return "-"
	case age >= 300*24*time.Hour:
		layout = "Jan 2 2006"
	case age >= 24*time.Hour:
		layout = "Jan 2 15:04"
	}
	return began.Local().Format(layout)
}

// Lasted is how long a conflict lasted, or has lasted so far.
func Lasted(c document.Conflict) string {
	if Began(c).IsZero() {
		return "-"
	}
	return say.Span(cmp.Or(c.ResolvedAt, time.Now()).Sub(Began(c)))
}

// HasEnded reports whether any of the conflicts is over: then a table says when each began, and how long it lasted.
func HasEnded(conflicts []document.Conflict) bool {
	return slices.ContainsFunc(conflicts, func(c document.Conflict) bool { return c.State == detector.Resolved })
}

// timesOf removes the columns of begin and duration from a table of conflicts that are all open, and returns its header.
func timesOf(conflicts []document.Conflict, header []any, rows []table.Row) []any {
	if HasEnded(conflicts) {
		return header
	}
	return without("lasted", without("began", header, rows), rows)
}
