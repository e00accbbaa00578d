package cli

import (
	"cmp"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

// ForLocale returns a writer of text for people that has ASCII only if the user's locale (POSIX, Base Definitions, 8.2) has nothing else. A
// container has no locale, and its output is read in a terminal that has: so only one that is named counts.
func ForLocale(out io.Writer) io.Writer {
	locale := strings.ToLower(cmp.Or(os.Getenv("LC_ALL"), os.Getenv("LC_CTYPE"), os.Getenv("LANG")))
	if _, done := out.(ascii); done || locale == "" || strings.Contains(locale, "utf-8") || strings.Contains(locale, "utf8") {
		return out
	}
	return ascii{out}
}

// ascii writes texts with one character of ASCII for each other one, so that columns stay where they are.
type ascii struct{ io.Writer }

// Write implements [io.Writer].
func (a ascii) Write(text []byte) (int, error) {
	short := make([]byte, 0, len(text))
	for _, r := range string(text) {
		switch {
		case r < utf8.RuneSelf:
			short = append(short, byte(r))
		case r == '…': // as shells match what is left out
			short = append(short, '*')
		case r == '→':
			short = append(short, '>')
		case r == 'µ': // of microseconds
			short = append(short, 'u')
		default:
			short = append(short, '?')
		}
	}
	if n, err := a.Writer.Write(short); err != nil {
		return n, err
	}
	return len(text), nil
}
