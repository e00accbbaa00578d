package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// row is one line of the table: what was measured, the figure, and the goal where the design
// sets one.
type row struct{ what, figure, goal string }

// block is a part of the table under a title.
type block struct {
	title string
	rows  []row
	// notes are lines of text below the rows.
	notes []string
}

// render makes the table. Columns are as wide as what is in them.
func render(header []string, blocks []block) string {
	heads := row{"WHAT", "FIGURE", "GOAL"}
	what, figure := len(heads.what), len(heads.figure)
	for _, b := range blocks {
		for _, r := range b.rows {
			what, figure = max(what, utf8.RuneCountInString(r.what)), max(figure, utf8.RuneCountInString(r.figure))
		}
	}
	var out strings.Builder
	line := func(indent string, r row) {
		text := indent + pad(r.what, what) + "  " + pad(r.figure, figure) + "  " + r.goal
		out.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	for _, text := range header {
		out.WriteString(text + "\n")
	}
	out.WriteByte('\n')
	line("  ", heads)
	for _, b := range blocks {
		out.WriteString("\n" + b.title + "\n")
		for _, r := range b.rows {
			line("  ", r)
		}
		for _, note := range b.notes {
			out.WriteString("  " + note + "\n")
		}
	}
	return out.String()
}

func pad(s string, width int) string {
	return s + strings.Repeat(" ", width-utf8.RuneCountInString(s))
}

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// median returns the middle value, the mean of the two middle ones of an even number, and 0
// for none.
func median[T number](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// percentile returns the smallest value that this percentage of the values does not exceed
// (nearest rank). There must be a value.
func percentile[T number](values []T, percent int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// thousands writes a count with commas.
func thousands(n int) string {
	digits := fmt.Sprint(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

// perSecondOf writes a rate as exactly as it is known.
func perSecondOf(rate float64) string {
	if rate >= 1e6 {
		return fmt.Sprintf("%.1f million", rate/1e6)
	}
	return thousands(int(math.Round(rate/1000)) * 1000)
}
