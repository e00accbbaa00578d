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
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
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

// checkout copies the sources as they are now into a folder of that name, and commits them:
// equal sources are the same commit.
func checkout(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), name)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		at, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		switch {
		case at == ".git" && !entry.IsDir(): // of a worktree
			return nil
		case at == ".git", at == "bin":
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(dir, at), 0o755)
		case entry.Type() == fs.ModeSymlink:
			to, err := os.Readlink(path)
			if err != nil {
				return err
			}
			return os.Symlink(to, filepath.Join(dir, at))
		case !entry.Type().IsRegular():
			return nil
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, at), data, info.Mode().Perm())
	})
	if err != nil {
		t.Fatal(err)
	}
	const when = "2026-01-01T00:00:00Z"
	for _, args := range [][]string{
		{"init", "-q"},
		{"add", "--all"},
		{"-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false", "commit", "-q", "-m", "as it is"},
	} {
		cmd := exec.CommandContext(t.Context(), "git", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GIT_AUTHOR_DATE="+when, "GIT_COMMITTER_DATE="+when, "GIT_CONFIG_GLOBAL=/dev/null")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	return dir
}
