package cli

import "strings"

// Line is a part of what a [Printer] prints, for a page: a sentence, or what is to be copied: a command, or lines of a file.
type Line struct{ Text, Command string }

// commandMark is around commands. [Sanitize] leaves none in a document.
const commandMark = "\x00"

// Lines returns what text prints of a document, each sentence and each command whole. Commands are those of the program, as people
// call it.
func Lines[T any](program string, doc T, text func(*Printer, T)) (lines []Line) {
	const unbounded = 1 << 20
	var out strings.Builder
	text(&Printer{Out: &out, Width: unbounded, mark: commandMark, Program: program}, doc)
	for n, part := range strings.Split(out.String(), commandMark) {
		if n%2 == 1 { // between two marks
			lines = append(lines, Line{Command: strings.TrimSpace(strings.ReplaceAll(part, "\n    ", "\n"))})
			continue
		}
		for line := range strings.Lines(part) {
			if line = strings.TrimSpace(line); line != "" {
				lines = append(lines, Line{Text: line})
			}
		}
	}
	return lines
}
