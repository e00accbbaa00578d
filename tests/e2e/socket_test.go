package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// Without an agent every command fails with the same single line.
func TestNoAgent(t *testing.T) {
	t.Parallel()
	none := filepath.Join(t.TempDir(), "none.sock")
	stale := filepath.Join(t.TempDir(), "stale.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	for _, socket := range []string{none, stale} {
		for _, args := range [][]string{
			{"bindings"},
			{"bindings", "--watch"},
			{"conflicts"},
			{"conflicts", "--exit-code"},
			{"conflicts", "--watch"},
			{"explain", "10.0.0.1"},
			{"status"},
			{"status", "-o", "json"},
		} {
			got := dupip(t, nil, append(args, "--api-socket", socket)...)
			wantOneLine(t, got, "no agent is running", socket)
			// 3 means that a conflict is open.
			if got.code != 1 || got.stdout != "" {
				t.Errorf("dupip %v: exit %d, stdout %q", args, got.code, got.stdout)
			}
		}
	}
}

// Places where an agent cannot open its socket.
func TestSocketPlaces(t *testing.T) {
	t.Parallel()
	testneeds.Root(t)
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, socket := range map[string]string{
		"path too long":     filepath.Join(t.TempDir(), strings.Repeat("x", 120)+".sock"),
		"a file for folder": filepath.Join(file, "a.sock"),
		"a folder":          t.TempDir(),
		"not writable":      "/proc/dupip/a.sock",
	} {
		t.Run(name, func(t *testing.T) {
			wantOneLine(t, dupip(t, nil, "agent", "--api-socket", socket), "API socket")
		})
	}
}

// The socket that a killed agent left is taken over; that of a living one is not, and the
// living one does not notice.
func TestSecondAgent(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	socket := filepath.Join(t.TempDir(), "a.sock")
	client := lab.NewClient(socket)
	for _, mode := range []string{"tcx", "tc"} {
		killed, err := n.StartAgent("--api-socket", socket, "--attach", mode)
		l.Do(err)
		l.Eventually("the first agent answers", func() error {
			_, err := client.Status(t.Context())
			return err
		})
		l.Do(killed.Kill())
		if _, err := os.Stat(socket); err != nil {
			t.Errorf("a killed agent leaves its socket: %v", err)
		}

		living, err := n.StartAgent("--api-socket", socket, "--attach", mode)
		l.Do(err)
		observed := programs{TCX: 1}
		if mode == "tc" {
			observed = programs{TC: 1, Qdisc: "clsact"}
		}
		wantPrograms(l, n, "the second agent took the socket over", observed)
		if info, err := os.Stat(socket); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("socket: %v, %v; want mode 0600", info.Mode(), err)
		}
		var got outcome
		l.Do(n.Exec(func() error {
			got = dupip(t, nil, "agent", "--api-socket", socket, "--attach", mode)
			return nil
		}))
		wantOneLine(t, got, socket, "another agent")
		wantPrograms(l, n, "after a third was refused", observed)
		if _, err := client.Status(t.Context()); err != nil {
			t.Errorf("after a third agent was refused: %v", err)
		}
		l.Do(living.Stop())
		if _, err := os.Stat(socket); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a stopped agent leaves its socket: %v", err)
		}
	}
}

// SIGTERM and SIGINT end an agent in order at any moment of its start.
func TestSignalsAtStart(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for i := range 4 {
		l.Pod(n, fmt.Sprintf("pod%d", i), lab.PodOptions{Addrs: []netip.Addr{n.IPv4(byte(5 + i))}})
	}
	for _, signal := range []syscall.Signal{unix.SIGTERM, unix.SIGINT} {
		for _, word := range []string{"", "msg=starting", "msg=observing"} {
			a, err := n.StartAgent()
			l.Do(err)
			l.Eventually("log", func() error {
				if _, err := os.Stat(a.Socket); word == "" && err != nil {
					return err
				}
				if !strings.Contains(a.Log(), word) {
					return fmt.Errorf("no %q in the log", word)
				}
				return nil
			})
			l.Do(unix.Kill(a.PID(), signal))
			if err := a.Wait(within(l, patience)); err != nil {
				t.Errorf("%v after %q: %v\n%s", signal, word, err, a.Log())
			}
			if _, err := os.Stat(a.Socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v after %q: the socket is still there (%v)", signal, word, err)
			}
			wantPrograms(l, n, "ended at once", programs{})
		}
	}
}
