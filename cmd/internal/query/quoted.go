package query

import (
	"regexp"
	"strings"
)

// plain matches words that no shell changes.
var plain = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

// Quoted is a word as a shell takes it.
func Quoted(word string) string {
	if plain.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}
