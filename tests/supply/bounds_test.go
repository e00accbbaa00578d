package supply

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// bound is a constant or variable max..., or Max..., of a package.
type bound struct{ folder, name string }

var (
	boundName = regexp.MustCompile(`^[mM]ax[A-Z]`)
	// evidence is what a line of bounds.tsv quotes of the source.
	evidence = regexp.MustCompile(`"([^"]+)"?|\bdupip_[a-z_]+`)
)

// Of every bound it is known what happens when it is reached: see bounds.tsv.
func TestBounds(t *testing.T) {
	found, source := bounds(t)
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
		quoted := evidence.FindAllStringSubmatch(text, -1)
		for _, q := range quoted {
			if piece := strings.Trim(q[0], `"`); !strings.Contains(source, piece) {
				t.Errorf("%v: the source has no %q", b, piece)
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

// bounds returns the bounds of the program, and its source without the backslashes of quotes.
func bounds(t *testing.T) (found map[bound]bool, source string) {
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
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		all.Write(text)
		file, err := parser.ParseFile(token.NewFileSet(), path, text, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			d, ok := n.(*ast.GenDecl)
			if !ok || d.Tok != token.CONST && d.Tok != token.VAR {
				return true
			}
			for _, spec := range d.Specs {
				for _, name := range spec.(*ast.ValueSpec).Names {
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
	return found, strings.ReplaceAll(all.String(), `\"`, `"`)
}
