package cli

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/goccy/go-yaml"
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
func Show[T any](p *Printer, f Format, document T, text func(p *Printer, document T)) error {
	if done, err := f.Encode(p.Out, document, p.events); done {
		return err
	}
	Sanitize(&document)
	p.Wide = f == Wide
	text(p, document)
	return nil
}

// EventsHeader begins a watch, and prints its header.
func (p *Printer) EventsHeader(f Format, header func(*Printer)) {
	p.events = true
	if (f == Table || f == Wide) && !p.NoHeaders {
		header(p)
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
		// Through JSON, so that both have the same fields.
		data, err = yaml.MarshalWithOptions(v,
			yaml.UseJSONMarshaler(), yaml.IndentSequence(true), yaml.CustomMarshaler(quoteUnprintable))
	default:
		return false, nil
	}
	if err != nil {
		return true, fmt.Errorf("encoding %s: %w", f, err)
	}
	if f == JSON {
		data = append(escape(data), '\n')
	} else if stream {
		data = append([]byte("---\n"), data...)
	}
	_, err = w.Write(data)
	return true, err
}

// PrintNames prints the name of each element once.
func PrintNames[E any](p *Printer, list []E, name func(E) string) {
	printed := make(map[string]bool)
	for _, e := range list {
		if name := name(e); !printed[name] {
			printed[name] = true
			p.println(name)
		}
	}
}
