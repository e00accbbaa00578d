package cli

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"k8s.io/client-go/util/jsonpath"
)

// The formats that have an expression, as kubectl has them.
const (
	Paths   = "jsonpath="       // a template for the document
	Columns = "custom-columns=" // HEADER:PATH,…, a row for each element of a list
)

// column is a path of a template, or a column with it.
type column struct {
	header string
	path   *jsonpath.JSONPath
}

// columns reads the expression of a format; nil if it has none.
func (f Format) columns() (list []column, err error) {
	var specs []string
	if text, ok := strings.CutPrefix(string(f), Columns); ok {
		specs = strings.Split(text, ",")
	} else if text, ok := strings.CutPrefix(string(f), Paths); ok {
		specs = []string{":" + text}
	}
	for _, spec := range specs {
		header, path, found := strings.Cut(spec, ":")
		if path == "" && strings.HasPrefix(string(f), Paths) {
			return nil, fmt.Errorf("-o %s: must be %sTEMPLATE, as %s{.conflicts[*].ip}", f, Paths, Paths)
		} else if !found || path == "" {
			return nil, fmt.Errorf("-o %s: must be %sHEADER:PATH,HEADER:PATH, as %sIP:.ip", f, Columns, Columns)
		}
		c := column{header, jsonpath.New(header).AllowMissingKeys(true)}
		if !strings.Contains(path, "{") {
			path = "{." + strings.TrimPrefix(path, ".") + "}"
		}
		if err := c.path.Parse(path); err != nil {
			return nil, fmt.Errorf("-o %s: %w; a path is such as {.conflicts[*].ip}", f, err)
		}
		list = append(list, c)
	}
	return list, nil
}

// Check returns an error unless f has an expression that can be used, or is one of the formats.
func (f Format) Check(formats []string) error {
	columns, err := f.columns()
	if err != nil || columns != nil {
		return err
	}
	switch {
	case slices.Contains(formats, string(f)):
		return nil
	case f == Names:
		return errors.New("-o name is for lists; use table, wide, json or yaml")
	}
	return fmt.Errorf("-o %q: must be %s", f, Disjoin(formats))
}

// evaluate prints what a template selects of a document, or rows with what columns select of its elements. It reports whether f is one of these.
func (f Format) evaluate(p *Printer, doc any) (bool, error) {
	columns, err := f.columns()
	if err != nil || columns == nil {
		return false, err
	}
	value, err := generic(doc)
	if err != nil {
		return true, err
	}
	if strings.HasPrefix(string(f), Paths) {
		found, err := columns[0].find(value)
		for _, values := range found {
			if err == nil {
				err = columns[0].path.PrintResults(p.Out, values)
			}
		}
		return true, f.failed(err)
	}
	elements := []any{value}
	if fields, ok := value.(map[string]any); ok && p.List != "" {
		elements, _ = fields[p.List].([]any)
	}
	var rows []table.Row
	if !p.NoHeaders { // a row, so that it stays as it was given
		rows = append(rows, each(columns, func(c column) any { return c.header }))
	}
	for _, element := range elements {
		row := make(table.Row, len(columns))
		for n, c := range columns {
			if row[n], err = c.of(element); err != nil {
				return true, f.failed(err)
			}
		}
		rows = append(rows, row)
	}
	tables{Printer: p}.table(rows)
	p.NoHeaders = p.NoHeaders || p.events
	return true, nil
}

// find returns what a path selects. The library panics for some that are wrong, such as {range .nothing[]}{range}.
func (c column) find(value any) (found [][]reflect.Value, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("no such path can be followed (%v)", reason)
		}
	}()
	return c.path.FindResults(value)
}

// of is what a column has of an element: several values with commas between them, as kubectl has them.
func (c column) of(element any) (string, error) {
	found, err := c.find(element)
	if err != nil {
		return "", err
	}
	var values []string
	for _, value := range slices.Concat(found...) {
		var text strings.Builder
		if err := c.path.PrintResults(&text, []reflect.Value{value}); err != nil {
			return "", err
		}
		values = append(values, text.String())
	}
	return cmp.Or(strings.Join(values, ","), "<none>"), nil
}

// failed says which paths a document does not have.
func (f Format) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("-o %s: %w; -o json shows what there is", f, err)
}

// generic is a document as its JSON has it, with whole numbers as such.
func generic(doc any) (value any, err error) {
	data, err := json.Marshal(doc)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.UseNumber()
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return numbers(value), nil
}

func numbers(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for key, element := range v {
			v[key] = numbers(element)
		}
	case []any:
		for n, element := range v {
			v[n] = numbers(element)
		}
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	}
	return value
}
