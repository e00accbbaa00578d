package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Format is the value of --output.
type Format string

// The formats.
const (
	Table Format = "table"
	Wide  Format = "wide" // a table with all columns and rows
	Names Format = "name" // only what the rows are about, one a line: addresses or nodes
	JSON  Format = "json"
	YAML  Format = "yaml"
)

// Show prints a document, or an event of a watch, in a format; text prints it for people.
func Show[T any](p *Printer, f Format, doc T, text func(p *Printer, doc T)) error {
	if done, err := f.Encode(p.Out, doc, p.events); done {
		return err
	}
	document.Sanitize(&doc)
	if done, err := f.evaluate(p, doc); done || err != nil {
		return err
	}
	p.Wide = f == Wide
	if f != Names {
		p.Out = ForLocale(p.Out)
	}
	text(p, doc)
	return nil
}

// EventsHeader begins a watch, and prints its header.
func (p *Printer) EventsHeader(f Format, header string) {
	p.events = true
	if (f == Table || f == Wide) && !p.NoHeaders {
		fmt.Fprint(p.Out, header)
	}
}

// Encode prints v as JSON or YAML and reports whether the format is one of them. Each document of
// a stream is one JSON line, or a YAML document after "---".
func (f Format) Encode(w io.Writer, v any, stream bool) (bool, error) {
	var data []byte
	var err error
	switch {
	case f == JSON && stream:
		data, err = json.Marshal(v)
	case f == JSON:
		data, err = json.MarshalIndent(v, "", "  ")
	case f == YAML:
		data, err = marshalYAML(v)
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("encoding %s: %w", f, err)
	}
	if f == JSON {
		data = append(escape(JSON, data), '\n')
	} else if stream {
		data = append([]byte("---\n"), data...)
	}
	_, err = w.Write(data)
	return true, err
}

// marshalYAML goes through JSON, which is YAML, so that both have the same fields. A text that a terminal would obey stays as it is there.
func marshalYAML(v any) ([]byte, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	if err := yaml.Unmarshal(escape(YAML, data), &root); err != nil {
		return nil, err
	}
	for nodes := []*yaml.Node{&root}; len(nodes) > 0; {
		n := nodes[len(nodes)-1]
		nodes = append(nodes[:len(nodes)-1], n.Content...)
		if n.Kind != yaml.ScalarNode && len(n.Content) > 0 || n.Kind == yaml.ScalarNode && detector.Printable(n.Value) == n.Value {
			n.Style = 0
		}
	}
	out, err := yaml.Dump(&root, yaml.WithV3Defaults(), yaml.WithIndent(2), yaml.WithLineWidth(-1)) // commands stay whole
	return escape(YAML, out), err
}

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
