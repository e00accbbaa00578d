// Package supply tests what the program is made of: a build is reproducible byte for byte, known
// vulnerabilities in dependencies are found, and each dependency is accounted for.
package supply

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// root is the folder of the module.
const root = "../.."

// The same sources make the same program, wherever, by whomever and with whatever caches
// it is built.
func TestReproducibleBuild(t *testing.T) {
	testneeds.Release(t)
	first := build(t, checkout(t, "first"))
	elsewhere := t.TempDir()
	t.Cleanup(func() {
		// Go makes the folders of modules read-only.
		_ = filepath.WalkDir(elsewhere, func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				err = os.Chmod(path, 0o755)
			}
			return err
		})
	})
	second := build(t, checkout(t, "the second, in a deeper folder/with/sources"),
		"HOME="+elsewhere, "GOPATH="+elsewhere+"/go", "GOCACHE="+elsewhere+"/cache", "GOMODCACHE="+elsewhere+"/modules",
		"GOPROXY="+cached(t), "TMPDIR="+elsewhere,
		"LANG=C", "TZ=Pacific/Kiritimati", "USER=somebody")
	t.Logf("%x, %d bytes", sha256.Sum256(first), len(first))
	if !bytes.Equal(first, second) {
		t.Errorf("two builds of the same sources differ: %x, %d bytes", sha256.Sum256(second), len(second))
	}
	info, err := buildinfo.Read(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	settings := make(map[string]string)
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	for key, want := range map[string]string{"-trimpath": "true", "CGO_ENABLED": "0", "vcs.modified": "false"} {
		if settings[key] != want {
			t.Errorf("%s is %q in the program, want %q", key, settings[key], want)
		}
	}
	if len(settings["vcs.revision"]) < 40 {
		t.Errorf("the revision in the program is %q", settings["vcs.revision"])
	}
}

// build runs make build and returns the program.
func build(t *testing.T, dir string, env ...string) []byte {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "make", "build")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make build: %v\n%s", err, out)
	}
	program, err := os.ReadFile(filepath.Join(dir, "bin/dupip"))
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// checkout returns a folder of that name with the sources.
func checkout(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	if err := lab.Checkout(t.Context(), root, dir); err != nil {
		t.Fatal(err)
	}
	return dir
}
