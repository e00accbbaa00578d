package cli

import (
	"strings"

	"github.com/dupip/dupip/document/say"
)

// Line is a sentence for a page, or what is to be copied: a command, or lines of a file.
type Line struct{ Text, Command string }

// Todo is what to do, with the commands of the program in sentences, as people call it.
func Todo(program string, entries []say.Entry) (lines []Line) {
	for _, e := range entries {
		text := e.Text
		if len(e.Addresses) > 0 {
			text = say.List(e.Addresses) + ": " + text
		}
		if text != "" {
			lines = append(lines, Line{Text: Rename(program, text)})
		}
		for _, s := range e.Steps {
			if lines = append(lines, Line{Text: Rename(program, say.Head(s))}); s.Command != "" {
				lines = append(lines, Line{Command: strings.TrimSpace(s.Command)})
			}
		}
	}
	return lines
}
