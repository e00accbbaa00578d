package pods

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
)

// A look at a node with 250 containers, without what their engine takes.
func BenchmarkLook(b *testing.B) {
	testneeds.Root(b)
	root := "/sys/fs/cgroup"
	if _, err := os.Stat(filepath.Join(root, "cgroup.procs")); err != nil {
		root += "/pids"
	}
	top := filepath.Join(root, fmt.Sprint("dupip-bench-", os.Getpid()))
	for i := range 250 {
		dir := filepath.Join(top, "docker", fmt.Sprintf("%064x", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			b.Fatal(err)
		}
		sleep := exec.Command("sleep", "600")
		sleep.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
		if err := sleep.Start(); err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() {
			_ = sleep.Process.Kill()
			_ = sleep.Wait()
			_ = os.Remove(dir)
			_ = os.Remove(filepath.Dir(dir))
			_ = os.Remove(top)
		})
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(sleep.Process.Pid)), 0o600); err != nil {
			b.Fatal(err)
		}
	}
	c, err := newContainers(slog.New(slog.DiscardHandler), nil)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if found, _ := c.look(b.Context(), nil); len(found) != 250 {
			b.Fatalf("%d containers", len(found))
		}
	}
}
