package supply

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The tests that pages name exist.
func TestPagesNameTests(t *testing.T) {
	there := make(map[string]bool)
	function := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, match := range function.FindAllStringSubmatch(string(data), -1) {
			there[filepath.Base(filepath.Dir(path))+"."+match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for path, least := range map[string]int{"SECURITY.md": 100, "deploy/UPGRADING.md": 10} {
		page, err := os.ReadFile(filepath.Join(root, path))
		if err != nil {
			t.Fatal(err)
		}
		named := regexp.MustCompile("`(\\w+\\.(?:Test|Fuzz)\\w+)`").FindAllStringSubmatch(string(page), -1)
		if len(named) < least {
			t.Errorf("%s names only %d tests", path, len(named))
		}
		for _, match := range named {
			if name := match[1]; !there[name] && name != "package.TestName" {
				t.Errorf("%s names %s, which does not exist", path, name)
			}
		}
	}
}
