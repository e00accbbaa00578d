// Package needs lets a test name what it needs of the machine. Where that is missing the test
// is skipped, so that anybody can run all tests. In CI (CI=true) it fails instead: a test that
// never runs shows nothing, and nobody sees that.
package needs

import (
	"os"
	"os/exec"
)

// SlowVariable names the environment variable that makes slow tests run. The Makefile sets it.
const SlowVariable = "DUPIP_TEST_SLOW"

// T is the part of testing.TB that is used here.
type T interface {
	Helper()
	Fatal(args ...any)
	Skip(args ...any)
}

// Root skips a test that makes network namespaces, mounts or BPF programs.
func Root(t T) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "this test needs root")
	}
}

// Program skips a test that runs a program which is not installed. The package is Debian's
// name of what has it.
func Program(t T, name, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, "this test needs the program "+name+" (Debian package "+debianPackage+")")
	}
}

// Slow skips a test that takes minutes, at least where nothing is in Go's caches: it builds
// the program from nothing, downloads and builds another one, or boots a machine.
func Slow(t T) {
	t.Helper()
	if os.Getenv(SlowVariable) == "" {
		t.Skip("this test is slow: make test runs it, and " + SlowVariable + "=1")
	}
}

func missing(t T, what string) {
	t.Helper()
	if inCI() {
		t.Fatal(what + ", and none is skipped in CI")
	}
	t.Skip(what)
}

func inCI() bool { return os.Getenv("CI") == "true" || os.Getenv("CI") == "1" }
