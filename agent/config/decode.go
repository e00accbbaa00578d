package config

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"
	"go.yaml.in/yaml/v4/plugin/loaderlimits"
)

const (
	// MaxSize limits the file in bytes.
	MaxSize = 64 << 10
	// maxDepth limits the nesting, maxKeys the keys of one mapping; the format needs 5 each.
	// The library takes quadratic time for both: 64 KiB of nested keys took 5 s.
	maxDepth    = 16
	maxKeys     = 16
	maxProblems = 10
)

var (
	// maxEntries limits lists, because each sighting searches them; the default is 64.
	maxEntries = map[string]int{"networks": 256, "shared": 1_024, "ignore.interfaces": 256}
	maxLimits  = map[string]int{
		"limits.bindings":             1 << 20,
		"limits.bindingsPerInterface": 65_536,
		"limits.history":              10_000,
		"limits.verifyPerSecond":      10_000,
		"limits.refreshPerSecond":     10_000,
	}
	// sections may be empty: their keys may all be comments.
	sections = []string{"", "networks", "shared", "ignore", "ignore.interfaces", "limits"}
	// keys are those of the mappings, by the type that a mapping is decoded into.
	keys = map[string]string{
		"config.file":     "networks, shared, exclusive, segments, ignore, limits",
		"config.segments": "ask, infer",
		"config.entry":    "name, scope, solicit, match",
		"config.match":    "interfaces, peers, bridges, cidrs",
		"config.ignore":   "interfaces",
		"config.Limits":   "bindings, bindingsPerInterface, history, verifyPerSecond, refreshPerSecond",
	}
	nothing     = yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null"}
	mismatch    = regexp.MustCompile(`^(?s)(?:field (.*) not found in type|cannot construct (\S+ ?(.*)) into) (\S+)`)
	unprintable = regexp.MustCompile(`[^\pL\pM\pN\pP\pS ]`) // see unicode.IsPrint
)

// decoder records where the values of a file are, and collects problems.
type decoder struct {
	paths    map[yaml.Mark]string // such as "networks[1].match.cidrs[0]"
	lines    map[string]int       // by path
	problems []problem
}

type problem struct {
	line int
	text string // one printable line
}

// fail adds a problem with the value at a path, which may be empty.
func (d *decoder) fail(line int, path, format string, args ...any) {
	if len(d.problems) >= maxProblems {
		d.problems = append(d.problems[:maxProblems], problem{MaxSize + 1, "and more"}) // after all lines
		return
	}
	text := fmt.Sprintf("line %d: %s%s", line, strings.TrimPrefix(path+": ", ": "), fmt.Sprintf(format, args...))
	text = unprintable.ReplaceAllString(fmt.Sprintf("%.400s", strings.ToValidUTF8(text, "?")), "?")
	d.problems = append(d.problems, problem{line, text})
}

// err joins the problems in the order of the file, nil if there are none.
func (d *decoder) err() (err error) {
	slices.SortStableFunc(d.problems, func(a, b problem) int { return cmp.Compare(a.line, b.line) })
	for _, p := range d.problems {
		err = errors.Join(err, errors.New(p.text))
	}
	return err
}

// decode decodes a file, which is one YAML document or nothing.
func (d *decoder) decode(data []byte, into *file) {
	isNoText := func(r rune) bool {
		return r == unicode.ReplacementChar || unicode.IsControl(r) && r != '\t' && r != '\n'
	}
	data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n")) // any other \r would begin a line that editors do not show
	if len(data) > MaxSize {
		d.fail(1, "", "there are more than %d bytes; is it the right file?", MaxSize)
		return
	} else if i := bytes.IndexFunc(data, isNoText); i >= 0 {
		d.fail(1+bytes.Count(data[:i], []byte("\n")), "", "there is a byte that is not text; is it the right file?")
		return
	}
	var documents []yaml.Node
	lines := append(slices.Clip(data), '\n') // the last one, too, so that errors do not depend on it
	err := yaml.Load(lines, &documents, yaml.WithAllDocuments(),
		yaml.WithPlugin(loaderlimits.New(loaderlimits.DepthValue(maxDepth))))
	if len(documents) > 1 {
		d.fail(documents[1].Line, "", "a second YAML document begins here; keep everything in one, without ---")
	} else if err == nil && len(documents) == 1 {
		d.check(documents[0].Content[0], "")
		err = documents[0].Load(into, yaml.WithKnownFields())
	}
	if err == nil {
		return
	}
	failed, ok := errors.AsType[*yaml.LoadErrors](err)
	if one, _ := errors.AsType[*yaml.LoadError](err); !ok {
		failed = &yaml.LoadErrors{Errors: []*yaml.LoadError{cmp.Or(one, &yaml.LoadError{Message: err.Error()})}}
	}
	for _, e := range failed.Errors {
		d.fail(e.Mark.Line, d.paths[e.Mark], "%s", (*advice)(e))
	}
}

// check refuses what the library accepts, or is slow for, and records positions.
func (d *decoder) check(n *yaml.Node, path string) {
	d.paths[yaml.Mark{Line: n.Line, Column: n.Column}], d.lines[path] = path, n.Line
	if n.ShortTag() == "!!null" && !slices.Contains(sections, path) {
		n.Tag, n.Value = "!!str", "" // the library would ignore the key
	}
	if problem := refuse(n, path); problem != "" {
		d.fail(n.Line, path, "%s", problem)
		*n = nothing
	}
	for i, child := range n.Content {
		switch {
		case n.Kind == yaml.SequenceNode:
			d.check(child, fmt.Sprintf("%s[%d]", path, i))
		case i%2 == 1:
			d.check(child, strings.TrimPrefix(fmt.Sprintf("%s.%.64s", path, n.Content[i-1].Value), "."))
		case child.Kind != yaml.ScalarNode || child.Anchor != "" || child.ShortTag() != "!!str":
			d.fail(child.Line, path, "a key is not plain text; write a name and a colon")
			*child = nothing
		default:
			d.paths[yaml.Mark{Line: child.Line, Column: child.Column}] = path
		}
	}
}

// refuse returns what is wrong with a value, apart from its children.
func refuse(n *yaml.Node, path string) string {
	tag, entries, limit := n.ShortTag(), cmp.Or(maxEntries[path], 64), maxLimits[path]
	number, _ := strconv.Atoi(n.Value)
	switch {
	case n.Kind == yaml.AliasNode || n.Anchor != "" || n.Style&yaml.TaggedStyle != 0: // aliases make a large value of a small file
		return "YAML anchors (&), aliases (*) and tags (!) are not supported; write the value out, or put it in quotes"
	case n.Kind == yaml.SequenceNode && len(n.Content) > entries:
		return fmt.Sprintf("has %d entries; at most %d are allowed", len(n.Content), entries)
	case n.Kind == yaml.MappingNode && len(n.Content) > 2*maxKeys:
		return fmt.Sprintf("has %d keys; at most %d are allowed; is it the right file?", len(n.Content)/2, maxKeys)
	case n.Kind != yaml.ScalarNode && len(n.Content) == 0 && strings.Contains(path, ".match"): // matches nothing, unlike a missing one
		return "is empty; name at least one, or leave the key out"
	case n.Kind == yaml.ScalarNode && tag != "!!str" && tag != "!!timestamp" && strings.HasSuffix(strings.TrimSuffix(path, ".name"), "]"):
		return fmt.Sprintf("%.64q is not text; put it in quotes", n.Value)
	case limit > 0 && (tag != "!!int" || strconv.Itoa(number) != n.Value || number < 1 || number > limit): // in YAML 010 is 8
		return fmt.Sprintf("%.64q cannot be used; write a whole number from 1 to %d, without quotes", n.Value, limit)
	}
	return ""
}

// advice adds to an error of the library what to do.
type advice yaml.LoadError

func (e *advice) String() string {
	m, context := mismatch.FindStringSubmatch(e.Message), ""
	if begin := e.ContextMark.Line; begin > 0 && begin < e.Mark.Line { // such as a quotation mark that is not closed
		context = fmt.Sprintf(" %s that begins on line %d", e.ContextMsg, begin)
	}
	switch {
	case e.Stage != yaml.ConstructorStage:
		return "not valid YAML: " + e.Message + context + "; check indentation, colons and brackets, and put text with special characters in quotes"
	case strings.HasPrefix(e.Message, "mapping key "):
		return e.Message + "; remove one of the two"
	case m == nil:
		return e.Message
	case m[2] == "":
		return fmt.Sprintf("unknown key %.64q; the keys here are %s", m[1], keys[m[4]])
	}
	value := cmp.Or(map[string]string{"!!seq": "a list", "!!map": "a mapping", "!!str ``": "no value"}[m[2]], m[3])
	switch {
	case keys[m[4]] != "":
		return value + " is not a mapping; the keys here are " + keys[m[4]]
	case strings.HasPrefix(m[4], "[]"):
		return value + " is not a list; write one entry per line, each after a -"
	}
	return value + " is not text; write one value, in quotes if it has a colon"
}
