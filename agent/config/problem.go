package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// Problem is one mistake in the file: where it is and what to do about it. Its text is
// one printable line, whatever is in the file.
type Problem struct {
	// Line and Column count from 1. They are 0 for what is about the whole file.
	Line, Column int
	// Path leads to the value, as in "networks[1].match.cidrs[0]". It is empty where
	// the text is no YAML.
	Path string
	Text string
}

// Error implements error.
func (p *Problem) Error() string {
	switch {
	case p.Line == 0:
		return p.Text
	case p.Path == "":
		return fmt.Sprintf("line %d, column %d: %s", p.Line, p.Column, p.Text)
	}
	return fmt.Sprintf("line %d: %s: %s", p.Line, p.Path, p.Text)
}

// maxProblems are told at once; who made more of them will come again.
const maxProblems = 10

// problems collects mistakes.
type problems struct {
	list []*Problem
	more int
}

func (p *problems) add(line, column int, path, format string, args ...any) {
	if len(p.list) == maxProblems {
		p.more++
		return
	}
	p.list = append(p.list, &Problem{Line: line, Column: column, Path: path, Text: fmt.Sprintf(format, args...)})
}

// err joins the problems in the order of the file, nil if there are none.
func (p *problems) err() error {
	slices.SortStableFunc(p.list, func(a, b *Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	var errs []error
	for _, problem := range p.list {
		errs = append(errs, problem)
	}
	switch {
	case p.more == 1:
		errs = append(errs, errors.New("and 1 more problem"))
	case p.more > 1:
		errs = append(errs, fmt.Errorf("and %d more problems", p.more))
	}
	return errors.Join(errs...)
}

// each returns the single errors of a joined one.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// quote makes a value from the file fit to be shown: short, and without anything that
// a terminal would act upon.
func quote(value string) string { return strconv.Quote(clip(value, 64)) }

// printable does the same for a message that may contain such a value.
func printable(message string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, clip(message, 200))
}

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
