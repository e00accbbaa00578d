package supply

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// bound is a constant or variable max..., or Max..., of a package.
type bound struct{ folder, name string }

var (
	boundName = regexp.MustCompile(`^[mM]ax[A-Z]`)
	// evidence is what a line of bounds.tsv quotes of the source.
	evidence = regexp.MustCompile(`"[^"]+"|\bdupip_[a-z_]+`)
)

// Of every bound it is known what happens when it is reached: see bounds.tsv.
func TestBounds(t *testing.T) {
	found, texts := bounds(t)
	list, err := os.ReadFile("bounds.tsv")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		columns := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(columns) != 4 {
			t.Errorf("a line has %d columns: %q", len(columns), line)
			continue
		}
		b, class, text := bound{columns[0], columns[1]}, columns[2], columns[3]
		if !found[b] {
			t.Errorf("%v is listed, and does not exist, or is listed twice", b)
		}
		delete(found, b)
		quoted := evidence.FindAllString(text, -1)
		for _, q := range quoted {
			if !strings.Contains(texts, strings.Trim(q, `"`)) {
				t.Errorf("%v: no text of the source has %s", b, q)
			}
		}
		switch class {
		case "counted", "told":
			if len(quoted) == 0 {
				t.Errorf("%v: nothing is quoted that says so: %s", b, text)
			}
		case "waits", "newest", "never":
			if len(strings.Fields(text)) < 3 {
				t.Errorf("%v has no reason: %s", b, text)
			}
		default:
			t.Errorf("%v: %s is no class", b, class)
		}
	}
	for b := range found {
		t.Errorf("constant %s of %s is not in bounds.tsv: count what it leaves out, or give the reason why nobody reaches it", b.name, b.folder)
	}
}

// bounds returns the bounds of the program, and all texts in its source.
func bounds(t *testing.T) (found map[bound]bool, texts string) {
	found = make(map[bound]bool)
	var all strings.Builder
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		folder, _ := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case d.IsDir() && (folder == "tests" || folder != "." && strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.BasicLit:
				if text, err := strconv.Unquote(n.Value); err == nil && n.Kind == token.STRING {
					fmt.Fprintln(&all, text)
				}
			case *ast.ValueSpec:
				for _, name := range n.Names {
					if boundName.MatchString(name.Name) {
						found[bound{filepath.Dir(folder), name.Name}] = true
					}
				}
			}
			return true
		})
		return nil
	})
	if err != nil || len(found) < 100 {
		t.Fatalf("%d constants, error %v", len(found), err)
	}
	return found, all.String()
}
