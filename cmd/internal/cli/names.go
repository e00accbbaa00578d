package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// DescribeHolder is who, with a remark if the holder's node does not answer.
func DescribeHolder(b document.Binding) string {
	if b.Unreachable {
		return say.Who(b) + " (unreachable)"
	}
	return say.Who(b)
}

// conflictIP is the address of a conflict, with a mark if that is a drill.
func conflictIP(c document.Conflict) string {
	if c.Drill {
		return c.IP.String() + " (drill)"
	}
	return c.IP.String()
}

// holdersOf are the holders of all conflicts.
func holdersOf(conflicts []document.Conflict) []document.Binding {
	return slices.Concat(each(conflicts, func(c document.Conflict) []document.Binding { return c.Holders })...)
}

// each returns what f makes of each element of a list.
func each[T, V any](list []T, f func(T) V) (values []V) {
	for _, element := range list {
		values = append(values, f(element))
	}
	return values
}

// Disjoin joins all names, with "or" before the last.
func Disjoin(names []string) string {
	if n := len(names) - 1; n > 0 {
		return strings.Join(names[:n], ", ") + " or " + names[n]
	}
	return strings.Join(names, "")
}

// Age is how long ago t was.
func Age(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return say.Span(time.Since(t))
}

// clock is the layout for t and later times: a time of day alone does not say which day it was a day ago.
func clock(t time.Time) string {
	if time.Since(t) < 24*time.Hour {
		return "15:04:05.000"
	}
	return "Jan _2 15:04:05.000"
}

// distinct sorts texts and removes duplicates.
func distinct(texts []string) []string {
	slices.Sort(texts)
	return slices.Compact(texts)
}
