// Package testneeds skips a test where the machine lacks what the test needs, so that everybody can run all
// tests. In CI (CI=true) such a test fails instead: nobody would notice that it never runs.
package testneeds

import (
	"os"
	"os/exec"
	"testing"
)

// SlowVariable is the environment variable that enables slow tests. The Makefile sets it.
const SlowVariable = "DUPIP_TEST_SLOW"

// releaseVariable enables the tests of a release.
const releaseVariable = "DUPIP_TEST_RELEASE"

// Root skips a test that makes network namespaces, mounts or BPF programs.
func Root(t testing.TB) {
	t.Helper()
	if os.Geteuid() != 0 {
		missing(t, "this test needs root")
	}
}

// Program skips a test that runs a program which is not installed.
func Program(t testing.TB, name, debianPackage string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		missing(t, "this test needs the program "+name+" (Debian package "+debianPackage+")")
	}
}

// Slow skips a test that takes minutes, at least with empty Go caches: it builds programs or boots a
// machine.
func Slow(t testing.TB) {
	t.Helper()
	if os.Getenv(SlowVariable) == "" {
		t.Skip("this test is slow: make test runs it, and " + SlowVariable + "=1")
	}
}

// Release skips a test that is for releases only: it takes minutes, and what it shows rarely changes.
func Release(t testing.TB) {
	t.Helper()
	if !IsRelease() {
		t.Skip("this test is for releases: make check-release runs it, and " + releaseVariable + "=1")
	}
}

// IsRelease reports whether tests that are for releases only are to run.
func IsRelease() bool { return os.Getenv(releaseVariable) != "" }

func missing(t testing.TB, what string) {
	t.Helper()
	if ci := os.Getenv("CI"); ci == "true" || ci == "1" {
		t.Fatal(what + ", and none is skipped in CI")
	}
	t.Skip(what)
}
