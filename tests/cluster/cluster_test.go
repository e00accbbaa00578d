package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/procfs"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// TestCluster: a cluster runs pods.
func TestCluster(t *testing.T) {
	began := time.Now()
	c := newTestCluster(t, "node1")
	t.Logf("ready after %v", time.Since(began).Round(time.Second))
	c.shop()
	c.Apply(pod("web", "node1"))
	c.running("web")
}

// TestKilled: tests that are killed leave nothing.
func TestKilled(t *testing.T) {
	testneeds.Root(t)
	testneeds.Slow(t)
	for range 3 {
		cmd := exec.Command(os.Args[0], "-test.run=^TestCluster$")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		after := rand.N(15 * time.Second)
		t.Logf("killed after %v", after)
		ctx, cancel := context.WithTimeout(t.Context(), after)
		ended := make(chan error, 1)
		go func() { ended <- cmd.Wait() }()
		select {
		case <-ctx.Done():
			_ = cmd.Process.Kill()
			<-ended
		case <-ended: // faster than that
		}
		cancel()
		owner := fmt.Sprintf("-%x-", cmd.Process.Pid)
		if err := lab.Poll(t.Context(), patience, func() error { return left(owner) }); err != nil {
			t.Error(err)
		}
	}
}

// left returns an error if there are processes, mounts, namespaces, cgroups or files with this in their names.
func left(owner string) error {
	var errs []error
	all, err := procfs.AllProcs()
	errs = append(errs, err)
	for _, p := range all {
		arguments, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.PID)) // it may have ended
		environ, _ := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if strings.Contains(string(arguments)+string(environ), owner) {
			errs = append(errs, fmt.Errorf("process %d: %s", p.PID, strings.ReplaceAll(string(arguments), "\x00", " ")))
		}
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	errs = append(errs, err)
	if strings.Contains(string(mounts), owner) {
		errs = append(errs, errors.New("mounts"))
	}
	for _, pattern := range []string{"/run/netns/*", "/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*", filepath.Join(os.TempDir(), "*")} {
		paths, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, path := range paths {
			if strings.Contains(path, owner) {
				errs = append(errs, errors.New(path))
			}
		}
	}
	return errors.Join(errs...)
}
