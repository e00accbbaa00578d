// Package ownnetns runs a package's tests in a new network namespace, so that the devices that they
// make disappear with it.
package ownnetns

import (
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
)

const mark = "DUPIP_TEST_OWN_NETNS"

// Main is for TestMain. It runs the tests in a copy of the process whose threads are all in a new netns.
// Without root it runs them directly: each test that needs root makes a netns by this package, or calls
// [testneeds.Root].
func Main(m *testing.M) {
	if os.Getenv(mark) != "" || os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), mark+"=1")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(os.Stderr, "making a netns for the tests:", err)
		os.Exit(1)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// Pod is a network namespace without a name, and a process in it.
type Pod struct {
	Pid    int
	Delete func() // ends the netns and the veths into it
}

// NewPod makes a netns, until Delete or the end of the test.
func NewPod(t testing.TB) *Pod {
	t.Helper()
	testneeds.Root(t)
	cmd := exec.Command("cat")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	_, err := cmd.StdinPipe() // cat ends when its other end is closed, at the latest with this process
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatalf("making a pod netns: %v", err)
	}
	p := &Pod{cmd.Process.Pid, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // only the first call of Delete has to wait
	}}
	t.Cleanup(p.Delete)
	return p
}

// Path returns the file that opens the netns.
func (p *Pod) Path() string { return fmt.Sprintf("/proc/%d/ns/net", p.Pid) }

// Open opens the netns.
func (p *Pod) Open(t testing.TB) *os.File {
	t.Helper()
	file, err := os.Open(p.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return file
}
