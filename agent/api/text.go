package api

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// Printable replaces what a terminal would obey: control characters, and those that change the direction of writing.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// Text makes a text of a pod, a runtime, a device or another node fit for people, logs and labels: [Printable], and of at most
// that many bytes.
func Text(s string, most int) string {
	const cut = "…"
	if s = Printable(s); len(s) <= most {
		return s
	}
	end := most - len(cut)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
