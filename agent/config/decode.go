package config

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"
)

// decoder reads values out of the nodes of a document and collects what is wrong with
// them. A value that is wrong is left out.
type decoder struct{ problems }

func (d *decoder) fail(n ast.Node, path, format string, args ...any) {
	line, column := position(n)
	d.add(line, column, path, format, args...)
}

// mapping returns the values of a mapping by key, those of the known keys only. A
// section without a value is as one that is left out: its keys may all be commented out.
func (d *decoder) mapping(n ast.Node, path string, known []string) map[string]ast.Node {
	if n == nil || n.Type() == ast.NullType {
		return nil
	}
	pairs, ok := n.(ast.MapNode)
	if !ok {
		d.fail(n, path, "%s is not a mapping; write keys and values, of the keys %s", describe(n), strings.Join(known, ", "))
		return nil
	}
	values := make(map[string]ast.Node)
	lines := make(map[string]int)
	for pair := pairs.MapRange(); pair.Next(); {
		key := pair.Key().GetToken()
		line, column := key.Position.Line, key.Position.Column
		switch first, again := lines[key.Value]; {
		case !slices.Contains(known, key.Value):
			d.add(line, column, path, "unknown key %s; the keys here are %s", quote(key.Value), strings.Join(known, ", "))
		case again:
			d.add(line, column, join(path, key.Value), "the key is on line %d already; remove one of the two", first)
		default:
			lines[key.Value] = line
			values[key.Value] = pair.Value()
		}
	}
	return values
}

// list returns the entries of a list of at most most entries. One without a value is
// as one that is left out.
func (d *decoder) list(n ast.Node, path string, most int) []ast.Node {
	if n == nil || n.Type() == ast.NullType {
		return nil
	}
	sequence, ok := n.(*ast.SequenceNode)
	if !ok {
		d.fail(n, path, "%s is not a list; write one entry per line, each after a -", describe(n))
		return nil
	}
	if len(sequence.Values) > most {
		d.fail(n, path, "has %d entries; at most %d are allowed", len(sequence.Values), most)
		return nil
	}
	return sequence.Values
}

// words is a list that must not be empty: an empty list would never match, and one
// that is left out always does.
func (d *decoder) words(n ast.Node, path string, most int) []ast.Node {
	if n == nil {
		return nil
	}
	entries := d.list(n, path, most)
	if sequence, ok := n.(*ast.SequenceNode); n.Type() == ast.NullType || ok && len(sequence.Values) == 0 {
		d.fail(n, path, "is empty; name at least one, or leave the key out")
	}
	return entries
}

// text returns a string, and false if there is none.
func (d *decoder) text(n ast.Node, path string) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		d.fail(n, path, "%s is not text; put it in quotes", describe(n))
	case *ast.NullNode:
		d.fail(n, path, "has no value; write one")
	default:
		d.fail(n, path, "%s is not text; write one value, in quotes if it has a colon", describe(n))
	}
	return "", false
}

// scope returns the reach of a network.
func (d *decoder) scope(n ast.Node, path string) (Scope, bool) {
	switch scope := Scope(scalar(n)); scope {
	case Cluster, Node:
		return scope, true
	}
	d.fail(n, path, "%s is not a scope; write cluster or node", describe(n))
	return "", false
}

// onOff returns a switch. In YAML 1.2 on and off are text, in 1.1 they are booleans.
func (d *decoder) onOff(n ast.Node, path string) (on, ok bool) {
	switch strings.ToLower(scalar(n)) {
	case "on", "true":
		return true, true
	case "off", "false":
		return false, true
	}
	d.fail(n, path, "%s is not a switch; write on or off", describe(n))
	return false, false
}

// number returns a whole number between bounds, and otherwise if there is none.
func (d *decoder) number(n ast.Node, path string, otherwise, least, most int) int {
	value, err := strconv.Atoi(scalar(n))
	integer := n.Type() == ast.IntegerType
	switch {
	case n.Type() == ast.NullType:
		d.fail(n, path, "has no value; give it one, or leave it out for %d", otherwise)
	case err == nil && !integer:
		d.fail(n, path, "%s is text; write the number without quotes", describe(n))
	case err != nil:
		d.fail(n, path, "%s is not a whole number; write one from %d to %d", describe(n), least, most)
	case value < least || value > most:
		d.fail(n, path, "%d is out of range; it must be from %d to %d", value, least, most)
	default:
		return value
	}
	return otherwise
}

// scalar returns a scalar as it is written, without quotes; empty for what is none.
func scalar(n ast.Node) string {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return n.GetToken().Value
	}
	return ""
}

// describe names a value that is wrong.
func describe(n ast.Node) string {
	switch n.(type) {
	case *ast.SequenceNode:
		return "a list"
	case ast.MapNode:
		return "a mapping"
	case *ast.NullNode:
		return "no value"
	}
	return quote(n.GetToken().Value)
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func index(path string, n int) string { return fmt.Sprintf("%s[%d]", path, n) }
