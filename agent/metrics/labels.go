package metrics

import (
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/dupip/dupip/document"
)

const (
	maxLabel  = 128 // bytes of a value
	maxLabels = 64  // values of a label that comes from a map
)

// escape makes a label value of a name from a pod, a runtime or a device.
func escape(s string) string { return document.Text(s, maxLabel) }

// reasonLabel makes a label value of a reason or state in the documents: "evicted: table full" becomes
// "evicted_table_full".
func reasonLabel(s string) string {
	between := func(r rune) bool {
		return r != '-' && !unicode.IsLetter(r) && !unicode.IsDigit(r)
	}
	return escape(strings.ToLower(strings.Join(strings.FieldsFunc(s, between), "_")))
}

// byLabel sums figures by [reasonLabel]. Those beyond maxLabels are "other".
func byLabel[N int | uint64](figures map[string]N) map[string]N {
	sums := make(map[string]N, len(figures))
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		w := reasonLabel(name)
		if _, known := sums[w]; !known && len(sums) >= maxLabels-1 {
			w = "other"
		}
		sums[w] += figures[name]
	}
	return sums
}
