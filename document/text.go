package document

import (
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
)

// Text makes a text of a pod, a runtime, a device or another node fit for people, logs and labels: [detector.Printable], and of at most
// that many bytes.
func Text(s string, most int) string {
	const cut = "…"
	if s = detector.Printable(s); len(s) <= most {
		return s
	}
	end := most - len(cut)
	for !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}
