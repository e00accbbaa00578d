package cli

import (
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// escape replaces what a terminal would obey and JSON allows within strings: control characters
// from DEL on, and characters that change the direction of writing. The document, JSON or YAML, means the same.
func escape(f Format, doc []byte) []byte {
	out := make([]byte, 0, len(doc))
	for _, r := range string(doc) {
		if r == '\n' || unicode.IsPrint(r) {
			out = utf8.AppendRune(out, r)
			continue
		}
		if f == YAML && r > 0xffff { // which knows no surrogates
			out = fmt.Appendf(out, "\\U%08x", r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, "\\u%04x", unit)
		}
	}
	return out
}
