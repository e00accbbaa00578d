package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dupip/dupip/tests/testjson"
)

const (
	page = "README.md" // of the tests
	// The table is between these.
	tableBegin = "<!-- Made by go run -C tests ./ci -table WARM,COLD. -->\n"
	tableEnd   = "<!-- End of what is made. -->\n"
	// slow is from how many seconds on a test has a row.
	slow = 5
)

// writeTable writes the table of the page from two records.
func writeTable(files string) error {
	warmFile, coldFile, ok := strings.Cut(files, ",")
	if !ok {
		return errors.New("-table needs two records: warm.json,cold.json")
	}
	warm, err := readReport(warmFile)
	if err != nil {
		return err
	}
	cold, err := readReport(coldFile)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(text), tableBegin)
	_, after, ended := strings.Cut(rest, tableEnd)
	if !ok || !ended {
		return fmt.Errorf("%s has no place for the table", page)
	}
	return os.WriteFile(page, []byte(before+tableBegin+"\n"+table(warm, cold)+"\n"+tableEnd+after), 0o644)
}

func readReport(file string) (*report, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var r report
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return &r, nil
}

// table is in Markdown.
func table(warm, cold *report) string {
	var b strings.Builder
	b.WriteString("Seconds, with a warm and with an empty cache of Go:\n\n| part | what for | budget | warm | CPU | cold | CPU |\n|---|---|---|---|---|---|---|\n")
	coldParts, coldTests := make(map[string]*result), make(map[string]float64)
	for _, p := range cold.Parts {
		coldParts[p.Name] = p
		for _, t := range p.Tests {
			coldTests[p.Name+" "+t.Package+" "+t.Name] = t.Seconds
		}
	}
	for _, p := range warm.Parts {
		c := coldParts[p.Name]
		if c == nil {
			c = &result{}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %.0f | %.0f | %.0f | %.0f |\n", p.Name, p.Why, p.Budget, p.Seconds, p.CPU, c.Seconds, c.CPU)
	}
	fmt.Fprintf(&b, "| all | | | %.0f | %.0f | %.0f | %.0f |\n", warm.Seconds, warm.CPU, cold.Seconds, cold.CPU)

	type row struct {
		part string
		*testjson.Test
		cold float64
	}
	var rows []row
	for _, p := range warm.Parts {
		for _, t := range p.Tests {
			coldly := coldTests[p.Name+" "+t.Package+" "+t.Name]
			if max(t.Seconds, coldly) > slow && !strings.Contains(t.Name, "/") {
				rows = append(rows, row{p.Name, t, coldly})
			}
		}
	}
	slices.SortStableFunc(rows, func(x, y row) int { return cmp.Compare(y.Seconds, x.Seconds) })
	fmt.Fprintf(&b, "\n%d tests take more than %d seconds:\n\n| test | part | warm | cold | what it shows |\n|---|---|---|---|---|\n", len(rows), slow)
	docs := make(map[string]map[string]string)
	for _, r := range rows {
		if docs[r.Package] == nil {
			docs[r.Package] = testDocs(r.Package)
		}
		fmt.Fprintf(&b, "| `%s` | `%s` | %.0f | %.0f | %s |\n", r.Name, r.part, r.Seconds, r.cold, docs[r.Package][r.Name])
	}
	b.WriteString("\n`make check-release` runs, one after the other:\n\n| part | what for | budget |\n|---|---|---|\n")
	for _, p := range parts {
		if p.isIn("release") {
			fmt.Fprintf(&b, "| `%s` | %s | %d |\n", p.name, p.why, p.budget)
		}
	}
	return b.String()
}

// testDocs are the first sentences of the comments of a package's tests, without their names. A package that is not there has none.
func testDocs(path string) map[string]string {
	docs := make(map[string]string)
	folder, err := exec.Command("go", "list", "-f", "{{.Dir}}", path).Output()
	if err != nil {
		return docs
	}
	files, _ := filepath.Glob(filepath.Join(strings.TrimSpace(string(folder)), "*_test.go"))
	for _, name := range files {
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		for _, d := range f.Decls {
			if fn, ok := d.(*ast.FuncDecl); ok && fn.Doc != nil {
				text := new(doc.Package).Synopsis(fn.Doc.Text())
				text = strings.TrimLeft(strings.TrimPrefix(text, fn.Name.Name), ": ")
				docs[fn.Name.Name] = strings.ReplaceAll(text, "|", `\|`)
			}
		}
	}
	return docs
}
