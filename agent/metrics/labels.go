package metrics

import (
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	// maxLabel bounds a label's value, in bytes.
	maxLabel = 128
	// maxLabels bounds the values of a label that comes from a map.
	maxLabels = 64
)

// clean makes a label value of a name that a pod, a runtime or a device may have chosen:
// short, and nothing in it that a terminal or a page would obey.
func clean(s string) string {
	const cut = "…"
	s = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
	if len(s) <= maxLabel {
		return s
	}
	end := maxLabel - len(cut)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}

// sanitizeLabel makes a label value of one of our own reasons or states as the documents have
// them: "evicted: table full" becomes "evicted_table_full".
func sanitizeLabel(s string) string {
	between := func(r rune) bool {
		return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return clean(strings.ToLower(strings.Join(strings.FieldsFunc(s, between), "_")))
}

// byLabel sums figures by [word]. There are at most maxWords; the rest is "other".
func byLabel[N int | uint64](figures map[string]N) map[string]N {
	sums := make(map[string]N, len(figures))
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		w := sanitizeLabel(name)
		if _, known := sums[w]; !known && len(sums) >= maxLabels-1 {
			w = "other"
		}
		sums[w] += figures[name]
	}
	return sums
}
