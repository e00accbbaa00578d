// Package releasetest makes releases for tests: of the files as they are, signed by a key of the test's own.
package releasetest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cosign"
	"github.com/dupip/dupip/tests/lab"
)

// Password is that of the keys.
const Password = "of a test"

// Keys makes a pair of keys, and returns their paths without .key and .pub.
func Keys(t *testing.T) string {
	t.Helper()
	keys := filepath.Join(t.TempDir(), "cosign")
	if err := cosign.GenerateKeyPair(t.Context(), keys, Password); err != nil {
		t.Fatal(err)
	}
	return keys
}

// Make runs make release in a copy of the sources, with shell commands before it, and returns the folder with the files. Without
// a key nothing is signed.
func Make(t *testing.T, name, version, key string, before ...string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := lab.Checkout(t.Context(), "../..", dir, "v"+version); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.Join(before, " ")+` make release VERSION="$1" KEY="$2"`, "sh", version, key)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "COSIGN_PASSWORD="+Password, "GOVULNDB="+emptyDatabase(t))
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make release: %v\n%s", err, out)
	}
	return filepath.Join(dir, "bin/release")
}

// emptyDatabase returns the URL of a database that knows no vulnerability.
func emptyDatabase(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "index"), 0o755); err != nil {
		t.Fatal(err)
	}
	now := time.Now().UTC().Format(time.RFC3339)
	for name, text := range map[string]string{"db.json": `{"modified": "` + now + `"}`, "modules.json": "[]"} {
		if err := os.WriteFile(filepath.Join(dir, "index", name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return "file://" + dir
}
