package supply

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Links between the pages lead to files that exist.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range link.FindAllStringSubmatch(string(text), -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), match[1])); err != nil {
				t.Errorf("%s links to %s, which does not exist", path, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
