package e2e

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// TestStateIsNoCondition: whatever is wrong with the state folder, the agent runs, finds duplicates,
// and reports the problem.
func TestStateIsNoCondition(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(l *lab.T, dir string)
		logged  string
	}{
		"corrupt": {func(l *lab.T, dir string) {
			l.Do(os.WriteFile(filepath.Join(dir, "state.json"), []byte(`{"version": 1, "open": [{"id":`), 0o600))
		}, "corrupt"},
		"a pipe": {func(l *lab.T, dir string) {
			l.Do(unix.Mkfifo(filepath.Join(dir, "state.json"), 0o600))
		}, "state.json"},
		"full disk": {func(l *lab.T, dir string) {
			mount(l, dir, "size=4k")
			file, err := os.Create(filepath.Join(dir, "filler"))
			l.Do(err)
			_, err = file.Write(make([]byte, 64<<10))
			if err == nil {
				t.Error("the disk is not full")
			}
			l.Do(file.Close())
		}, "no space left"},
		"read-only": {func(l *lab.T, dir string) { mount(l, dir, "size=64k,ro") }, "read-only"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.NewT(t)
			n := l.Node("")
			dir := t.TempDir()
			test.prepare(l, dir)
			a := l.Agent(n, "--state-dir", dir)
			w := l.Watch(a)
			ip := n.IPv4(36)
			for _, name := range []string{"older", "newcomer"} {
				l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{ip}})
			}
			_, err := w.WaitConfirmed(ip, patience)
			l.Do(err)
			l.Do(lab.Poll(t.Context(), patience, func() error {
				if !strings.Contains(a.Log(), test.logged) {
					return os.ErrNotExist
				}
				return nil
			}))
			l.Do(a.Stop())
		})
	}
}

// mount puts a tmpfs on a folder for as long as the test runs.
func mount(l *lab.T, dir, options string) {
	l.Helper()
	flags := uintptr(0)
	size, ro, _ := strings.Cut(options, ",")
	if ro == "ro" {
		flags = unix.MS_RDONLY
	}
	l.Do(unix.Mount("dupip-test", dir, "tmpfs", flags, "mode=700,"+size))
	// Lazily: the agent of a test that failed still has files open there.
	l.Cleanup(func() { l.Do(unix.Unmount(dir, unix.MNT_DETACH)) })
}
