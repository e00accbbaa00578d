package books

import (
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// The roles of the processes of TestHostRoot.
const (
	roleVariable = "DUPIP_BOOKS_ROLE"
	hostVariable = "DUPIP_BOOKS_HOST"
)

// The node's files are read through /proc/1/root with the capabilities of the manifest, and absolute links lead where
// they lead on the node. The test's process starts an init with another root in a PID namespace of its own, and that
// starts the reader.
func TestHostRoot(t *testing.T) {
	switch os.Getenv(roleVariable) {
	case "":
		testneeds.Root(t)
	case "init":
		if err := initMain(os.Getenv(hostVariable)); err != nil {
			t.Fatal(err)
		}
		return
	case "reader":
		read(t, "ptp") // of its own root, so that the two differ
		if _, err := io.ReadAll(os.Stdin); err != nil {
			t.Fatal(err)
		}
		c := NewCache("/state/cni/results")
		if e, err := c.Read("aa11"); err != nil || e.Name != "older" {
			t.Errorf("entry %+v, error %v", e, err)
		}
		if _, err := c.Read("bb22"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("no entry: error %v", err)
		}
		conn, err := DialHost(t.Context(), "/state/runtime.sock")
		if err != nil {
			t.Fatal(err)
		}
		if text, err := io.ReadAll(conn); err != nil || string(text) != "runtime" {
			t.Errorf("the socket says %q, error %v", text, err)
		}
		for path, want := range map[string]string{"/state/none.sock": "no such file", "/state/cni": "it is no socket"} {
			if _, err := DialHost(t.Context(), path); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %s", path, err, want)
			}
		}
		runtime.LockOSThread() // and it ends with this thread
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var none [2]unix.CapUserData
		if err := unix.Capset(&header, &none[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := c.List(); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("without capabilities: error %v", err)
		}
		if err := CheckSocket("/state/runtime.sock"); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("a socket without capabilities: error %v", err)
		}
		return
	}
	host := t.TempDir()
	results := filepath.Join(host, "private", "cni", "results")
	if err := errors.Join(
		os.MkdirAll(results, 0o700),
		os.Symlink("/private", filepath.Join(host, "state")),
		os.WriteFile(filepath.Join(results, "pods-aa11-eth0"), read(t, "ptp"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("unix", filepath.Join(host, "private", "runtime.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		if conn, err := listener.Accept(); err == nil {
			_, _ = io.WriteString(conn, "runtime")
			conn.Close()
		}
	}()
	cmd := again("init", hostVariable+"="+host)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS, Pdeathsig: unix.SIGKILL}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// again runs this test in another role.
func again(role string, env ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestHostRoot$")
	cmd.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	return cmd
}

// initMain is process 1: it starts the reader and takes another root.
func initMain(host string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	runtime.LockOSThread()
	if err := keepCapabilities(unix.CAP_NET_ADMIN, unix.CAP_NET_BROADCAST, unix.CAP_NET_RAW, unix.CAP_SYS_ADMIN, unix.CAP_SYS_PTRACE); err != nil {
		return err
	}
	reader := again("reader")
	reader.Stdout, reader.Stderr = os.Stdout, os.Stderr
	begin, err := reader.StdinPipe()
	if err != nil {
		return err
	}
	if err := errors.Join(reader.Start(), unix.Chroot(host), unix.Chdir("/"), begin.Close()); err != nil {
		return err
	}
	return reader.Wait()
}

// keepCapabilities leaves the programs that this thread starts no others.
func keepCapabilities(keep ...uintptr) error {
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		if slices.Contains(keep, c) {
			continue
		}
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
			return err
		}
	}
	return nil
}
