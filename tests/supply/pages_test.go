package supply

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

// Links between the pages lead to files that exist, and files of the source that they name do.
func TestLinks(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	file := regexp.MustCompile("`([a-z0-9_/]+\\.(?:go|h))`")
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
		for _, match := range file.FindAllStringSubmatch(string(text), -1) {
			_, here := os.Stat(filepath.Join(filepath.Dir(path), match[1])) // of the page's own folder, or of the project
			if _, err := os.Stat(filepath.Join(root, match[1])); err != nil && here != nil {
				t.Errorf("%s names %s, which does not exist", path, match[1])
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
