package lab

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// BinaryVariable names the environment variable with the path of a dupip binary to use instead of
// building one.
const BinaryVariable = "DUPIP_TEST_BIN"

// Binary is the path of the dupip binary under test. It is built at the first call;
// [Main] removes it.
var Binary = sync.OnceValues(func() (string, error) {
	if path := os.Getenv(BinaryVariable); path != "" {
		return filepath.Abs(path)
	}
	root, err := moduleRoot()
	if err != nil {
		return "", err
	}
	dir, err := TempDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "dupip")
	return path, Build(root, path, "./cmd/dupip")
})

// Build builds a static program in a folder of its module, with more flags for `go build`.
func Build(dir, path, pkg string, flags ...string) error {
	// No test needs the revision, and git may not trust the folder's owner.
	args := slices.Concat([]string{"build", "-trimpath", "-buildvcs=false", "-o", path}, flags, []string{pkg})
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// Quickly is a flag for `go build` that inlines nothing. Large programs of others are compiled in three quarters of the time.
const Quickly = "-gcflags=all=-l"

// BuildCached builds a static program, with more flags for `go build`, and returns its path in the go command's cache. The go command is
// asked once. It may be called concurrently.
func BuildCached(dir, pkg string, flags ...string) (string, error) {
	name := strings.Join(slices.Concat([]string{dir, pkg}, flags), " ")
	build, _ := cached.LoadOrStore(name, sync.OnceValues(func() (string, error) { return buildCached(dir, pkg, flags) }))
	return build.(func() (string, error))()
}

// cached has a function for each program of BuildCached.
var cached sync.Map

func buildCached(dir, pkg string, flags []string) (string, error) {
	// What is built is run from a temporary folder; what is there, from the cache.
	for range 2 {
		cmd := exec.Command("go", slices.Concat([]string{"run", "-exec=echo", "-trimpath", "-buildvcs=false"}, flags, []string{pkg})...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, stderr.Bytes())
		}
		path := strings.TrimSpace(string(out))
		if _, err = os.Stat(path); err == nil {
			return path, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return "", fmt.Errorf("find %s: %w", pkg, err)
		}
	}
	return "", fmt.Errorf("build %s: it is not in the cache of go", pkg)
}

// TestsRoot is the folder of the tests' module.
func TestsRoot() (string, error) {
	root, err := moduleRoot()
	return filepath.Join(root, "tests"), err
}

// moduleRoot is the folder of the product's module, whose go.mod has the versions for its build.
var moduleRoot = sync.OnceValues(func() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/dupip/dupip").Output()
	if err != nil {
		return "", fmt.Errorf("find the module from here, or else set %s: %w", BinaryVariable, err)
	}
	return strings.TrimSpace(string(out)), nil
})

// TempDir is a folder of this process for the binary and for sockets, whose paths must be short. Other
// users can read it, because some tests run the binary as one.
var TempDir = sync.OnceValues(func() (string, error) {
	// First, because it removes folders with this process's id, too.
	if err := sweep(); err != nil {
		return "", fmt.Errorf("remove leftovers: %w", err)
	}
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%x-", namePrefix, os.Getpid()))
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
})

// Main runs the tests of a package that uses the lab, from TestMain, and returns the exit code. It
// closes open labs when the process is interrupted and removes the temporary folder.
func Main(m interface{ Run() int }) int {
	if socket := os.Getenv(programVariable); socket != "" {
		return callProgram(socket, os.Args[1:])
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGINT, unix.SIGTERM)
	go func() {
		<-signals
		open.Range(func(l, _ any) bool { l.(*Lab).interrupt(); return true })
		RemoveTemp()
		os.Exit(130)
	}()
	if os.Getenv(janitorVariable) != "" {
		return janitor()
	}
	defer RemoveTemp()
	defer startJanitor()()
	return m.Run()
}

// RemoveTemp removes the temporary folder of this process. No lab works afterwards.
func RemoveTemp() {
	if dir, err := TempDir(); err == nil {
		_ = os.RemoveAll(dir)
	}
}
