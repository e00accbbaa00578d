package supply

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Each command has a manual page that says what its help says, whoever makes it.
func TestManual(t *testing.T) {
	t.Parallel()
	root := filepath.Join("..", "..")
	manual, err := lab.BuildCached(root, "./cmd/dupip", "-tags=dupip_manual")
	if err != nil {
		t.Fatal(err)
	}
	program, err := lab.BuildCached(root, "./cmd/dupip")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), manual, dir)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH=1700000000", "SUDO_USER=somebody-else")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	pages, err := filepath.Glob(filepath.Join(dir, "*.8"))
	if err != nil || len(pages) < 15 {
		t.Fatalf("pages %q, %v", pages, err)
	}
	for _, path := range pages {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		name := strings.TrimSuffix(filepath.Base(path), ".8")
		help := exec.CommandContext(t.Context(), program, append(strings.Split(name, "-")[1:], "--help")...)
		help.Env = append(os.Environ(), "SUDO_USER=somebody-else", "COLUMNS=1000")
		out, err := help.Output()
		if err != nil {
			t.Fatal(err)
		}
		page := strings.NewReplacer(`\fB`, "", `\fP`, "", `\\`, `\`, `\&`, "").Replace(string(data))
		about, _, _ := strings.Cut(string(out), "\nUsage:")
		for word := range strings.FieldsSeq(strings.ReplaceAll(about, "####", "")) {
			if !strings.Contains(page, word) {
				t.Errorf("%s.8 does not have %q of the help", name, word)
			}
		}
		if !strings.Contains(page, ".SH OPTIONS") || strings.Contains(page, "somebody-else") || strings.Contains(page, `\_`) {
			t.Errorf("%s.8:\n%s", name, page)
		}
	}
}
