package config

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

const (
	// MaxSize bounds the file, in bytes.
	MaxSize = 1 << 20
	// maxContent bounds what is left of it without comments, maxKeys the keys and
	// maxDashes the list entries that begin with one: the parser takes quadratic time
	// for many.
	maxContent = 64 << 10
	maxKeys    = 4_096
	maxDashes  = 8_192
	// maxDepth bounds flow collections within each other; the schema needs 4.
	maxDepth = 16
	// maxColumn bounds the indentation of keys and list entries, and so their depth.
	maxColumn = 200
)

// parse reads the text as one YAML document, nil if it is empty.
func parse(data []byte) (ast.Node, error) {
	var found problems
	if len(data) > MaxSize {
		found.add(0, 0, "", "the file is larger than %d bytes; is it the right one?", MaxSize)
		return nil, found.err()
	}
	text := content(data, &found)
	if len(found.list) > 0 {
		return nil, found.err()
	}
	tokens := lexer.Tokenize(text)
	if bad := tokens.InvalidToken(); bad != nil {
		found.syntax(bad, bad.Error)
		return nil, found.err()
	}
	checkTokens(tokens, &found)
	if len(found.list) > 0 {
		return nil, found.err()
	}
	// Duplicate keys are found later, with all others.
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		if syntax, ok := errors.AsType[yaml.Error](err); ok {
			found.syntax(syntax.GetToken(), syntax.GetMessage())
		} else {
			found.add(0, 0, "", "not valid YAML: %s", printable(err.Error()))
		}
		return nil, found.err()
	}
	if len(file.Docs) == 0 {
		return nil, nil
	}
	return file.Docs[0].Body, nil // checkTokens lets one pass
}

func (p *problems) syntax(at *token.Token, message string) {
	line, column := 1, 1
	if at != nil && at.Position != nil {
		line, column = at.Position.Line, at.Position.Column
	}
	p.add(line, column, "", "not valid YAML: %s; check indentation, colons, quotes and brackets", printable(message))
}

// content takes the comments out of the text and refuses what the lexer would take
// quadratic time for: 64 KiB in a block scalar cost it 12 s, and so does a list entry
// that it must take for the continuation of a plain scalar. No value here needs
// either. Because what counts as a comment never reaches the lexer, the two
// cannot be of different opinions about it.
func content(data []byte, found *problems) string {
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	var text strings.Builder
	var entries entryColumns
	number, size := 0, 0
	for line := range strings.Lines(string(data)) {
		number++
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		for n, r := range line {
			if r == utf8.RuneError || unicode.IsControl(r) && r != '\t' {
				found.add(number, utf8.RuneCountInString(line[:n])+1, "",
					"there is a byte that is no text (%s); is it the right file?", strings.Trim(quote(line[n:n+1]), `"`))
				return ""
			}
		}
		line = strings.TrimRight(withoutComment(line), " \t")
		if problem := entries.check(line); problem != "" {
			found.add(number, indentation(line)+1, "", "%s", problem)
		}
		if n := strings.IndexAny(line, "|>"); n >= 0 {
			found.add(number, utf8.RuneCountInString(line[:n])+1, "",
				"%c begins a text block in YAML, and no name has it; write values on one line", line[n])
		}
		if size += len(line); size > maxContent {
			found.add(number, 1, "", "there are more than %d bytes, not counting comments; is it the right file?", maxContent)
			return ""
		}
		text.WriteString(line)
		text.WriteByte('\n')
	}
	return text.String()
}

// withoutComment cuts the comment off a line. A # after an odd number of quotation
// marks is left alone: it may be in a string.
func withoutComment(line string) string {
	for n := 0; n < len(line); n++ {
		if line[n] != '#' || n > 0 && line[n-1] != ' ' && line[n-1] != '\t' {
			continue
		}
		before := line[:n]
		if strings.Count(before, `"`)%2 == 0 && strings.Count(before, `'`)%2 == 0 {
			return before
		}
	}
	return line
}

// entryColumns follows the columns of list entries through the lines of a text.
type entryColumns struct {
	open []int  // columns, ascending
	last string // the line before that is not blank
}

// check says what is wrong with where a line begins, if anything.
func (e *entryColumns) check(line string) string {
	column := indentation(line)
	body := line[column:]
	switch {
	case body == "":
		return ""
	case body[0] == '\t':
		return "a tab is at the beginning of the line; YAML wants spaces"
	}
	last := e.last
	e.last = line
	for len(e.open) > 0 && e.open[len(e.open)-1] > column {
		e.open = e.open[:len(e.open)-1]
	}
	if strings.HasPrefix(line, "---") || body[0] != '-' {
		return ""
	}
	again := len(e.open) > 0 && e.open[len(e.open)-1] == column
	if !again && last != "" && !strings.HasSuffix(last, ":") && strings.Trim(last, "- ") != "" {
		return "a line that begins with - cannot stand here; end the one above with a colon, or indent this one like the entries before it"
	}
	if !again {
		e.open = append(e.open, column)
	}
	for n := column + 1; n < len(line) && (line[n] == ' ' || line[n] == '-'); n++ {
		if line[n] == '-' {
			e.open = append(e.open, n)
		}
	}
	return ""
}

func indentation(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// checkTokens refuses what this file has no need for and the parser could be hurt by:
// deep nesting, many documents, and above all aliases, by which a small text becomes a
// huge value.
func checkTokens(tokens token.Tokens, found *problems) {
	depth, keys, dashes := 0, 0, 0
	for n, t := range tokens {
		why := ""
		switch t.Type {
		case token.MappingStartType, token.SequenceStartType:
			if depth++; depth > maxDepth {
				why = fmt.Sprintf("brackets are nested more than %d deep", maxDepth)
			}
		case token.MappingEndType, token.SequenceEndType:
			depth = max(depth-1, 0)
		case token.SequenceEntryType:
			switch dashes++; {
			case dashes > maxDashes:
				why = fmt.Sprintf("there are more than %d list entries; is it the right file?", maxDashes)
			case depth > 0:
				why = "a list in brackets has no -; write its entries with commas in between"
			case t.Position.Column > maxColumn:
				why = fmt.Sprintf("indented by more than %d columns", maxColumn)
			}
		case token.MappingValueType:
			switch keys++; {
			case keys > maxKeys:
				why = fmt.Sprintf("there are more than %d keys; is it the right file?", maxKeys)
			case depth == 0 && t.Position.Column > maxColumn:
				why = fmt.Sprintf("indented by more than %d columns", maxColumn)
			}
		case token.DocumentHeaderType:
			if n > 0 {
				why = "a second YAML document begins here; keep everything in one, without ---"
			}
		case token.DocumentEndType:
			why = "... ends a YAML document; remove the line"
		case token.AliasType:
			why = "* begins a YAML alias, which is not used here; put a name that begins with * in quotes"
		case token.AnchorType:
			why = "& begins a YAML anchor, which is not used here; remove it, or put the value in quotes"
		case token.TagType:
			why = "! begins a YAML tag, which is not used here; remove it, or put the value in quotes"
		case token.MergeKeyType:
			why = "the merge key << is not used here; write the keys out"
		case token.MappingKeyType:
			why = "? begins a complex key, which is not used here; write the key and a colon, or put a name that begins with ? in quotes"
		case token.DirectiveType:
			why = "% begins a YAML directive, which is not used here; remove the line"
		}
		if why != "" {
			found.add(t.Position.Line, t.Position.Column, "", "%s", why)
			if depth > maxDepth || keys > maxKeys || dashes > maxDashes {
				return
			}
		}
	}
}

// position returns where a node begins.
func position(n ast.Node) (line, column int) {
	t := n.GetToken()
	switch n := n.(type) {
	case *ast.MappingNode:
		if !n.IsFlowStyle && len(n.Values) > 0 {
			t = n.Values[0].Key.GetToken()
		}
	case *ast.MappingValueNode:
		t = n.Key.GetToken()
	}
	if t == nil || t.Position == nil {
		return 1, 1
	}
	return t.Position.Line, t.Position.Column
}
