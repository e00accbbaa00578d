package e2e

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// Without an agent every command says the same, in one line.
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
			{"bindings"}, {"bindings", "--watch"}, {"conflicts"}, {"conflicts", "--exit-code"}, {"conflicts", "--watch"},
			{"explain", "10.0.0.1"}, {"status"}, {"status", "-o", "json"},
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
		eventually(l, "the first agent answers", func() error {
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
		for _, word := range []string{"", "observing"} {
			a, err := n.StartAgent()
			l.Do(err)
			eventually(l, "log", func() error {
				if _, err := os.Stat(a.Socket); word == "" && err != nil {
					return err
				}
				if !strings.Contains(a.Log(), word) {
					return fmt.Errorf("no %q in the log", word)
				}
				return nil
			})
			l.Do(unix.Kill(a.PID(), signal))
			if err := a.Wait(within(l, 5*time.Second)); err != nil {
				t.Errorf("%v after %q: %v\n%s", signal, word, err, a.Log())
			}
			if _, err := os.Stat(a.Socket); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%v after %q: the socket is still there (%v)", signal, word, err)
			}
			wantPrograms(l, n, "ended at once", programs{})
		}
	}
}

// Every right that the agent needs is named when it is missing.
func TestEveryMissingRight(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	for _, tt := range []struct {
		name string
		drop []uintptr
		word string
	}{
		{"no right at all", capabilities(), "CAP_"},
		{"net_admin", []uintptr{unix.CAP_NET_ADMIN}, "CAP_NET_ADMIN"},
		{"net_raw", []uintptr{unix.CAP_NET_RAW}, "CAP_NET_RAW"},
		{"perfmon", []uintptr{unix.CAP_PERFMON, unix.CAP_SYS_ADMIN}, "CAP_PERFMON"},
		{"sys_admin", []uintptr{unix.CAP_SYS_ADMIN}, "CAP_SYS_ADMIN"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			socket := filepath.Join(t.TempDir(), "a.sock")
			var got outcome
			if err := withoutRights(n, tt.drop, func() {
				got = dupip(t, nil, "agent", "--api-socket", socket)
			}); err != nil {
				t.Fatal(err)
			}
			wantOneLine(t, got, tt.word)
		})
	}
}

func capabilities() []uintptr {
	var all []uintptr
	for c := range uintptr(unix.CAP_LAST_CAP + 1) {
		all = append(all, c)
	}
	return all
}

// withoutRights runs f in the node's netns on a thread whose children do not get some
// capabilities. The thread ends with it.
func withoutRights(n *lab.Node, drop []uintptr, f func()) error {
	done := make(chan error, 1)
	go func() {
		done <- n.Exec(func() error {
			// Locked once more than Exec unlocks, so the thread dies.
			runtime.LockOSThread()
			for _, c := range drop {
				if err := unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0); err != nil {
					return fmt.Errorf("drop capability %d: %w", c, err)
				}
			}
			f()
			return nil
		})
	}()
	return <-done
}

// Somebody who may not use the socket is told so.
func TestUnprivilegedClient(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	socket := filepath.Join(t.TempDir(), "a.sock")
	l.Do(os.Chmod(filepath.Dir(filepath.Dir(socket)), 0o755))
	a, err := n.StartAgent("--api-socket", socket)
	l.Do(err)
	eventually(l, "the agent answers", func() error {
		_, err := lab.NewClient(socket).Status(t.Context())
		return err
	})
	wantOneLine(t, dupip(t, asNobody, "conflicts", "--api-socket", socket), "not allowed", "root")
	l.Do(a.Stop())
}

// Clients that behave badly do not stop the agent or each other.
func TestRudeClients(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	l.Pod(n, "pod", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
	a := l.Agent(n)
	for name, text := range map[string]string{
		"no HTTP":        "\x00\x01\x02nonsense\r\n\r\n",
		"large header":   "GET /v1/status HTTP/1.1\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n",
		"no address":     "GET /v1/explain?ip=%00 HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"another method": "DELETE /v1/conflicts HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
		"unknown path":   "GET /v2/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
	} {
		conn, err := net.Dial("unix", a.Socket)
		l.Do(err)
		l.Do(conn.SetDeadline(time.Now().Add(patience)))
		_, _ = io.WriteString(conn, text) // may be refused half-way
		answer, _ := io.ReadAll(conn)
		_ = conn.Close()
		if !strings.HasPrefix(string(answer), "HTTP/1.1 4") {
			t.Errorf("%s: answer %q, want a status of 400 to 499", name, answer)
		}
	}

	// More streams than there is room for, none of them read.
	var refused int
	for range 40 {
		body, err := a.Client.Get(t.Context(), "/v1/bindings", "watch=1")
		if err != nil {
			refused++
			continue
		}
		t.Cleanup(func() { _ = body.Close() })
	}
	if refused != 8 {
		t.Errorf("%d of 40 streams were refused, want 8", refused)
	}
	wantOneLine(t, dupip(t, nil, "bindings", "--watch", "--api-socket", a.Socket), "too many")
	got := dupip(t, nil, "bindings", "--api-socket", a.Socket)
	if got.code != 0 || !strings.Contains(got.stdout, n.IPv4(5).String()) {
		t.Errorf("bindings beside the streams: %+v", got)
	}
	l.Do(a.Stop())
}

// Tables fit a terminal of 80 columns whatever the addresses and names are.
func TestLongNames(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	long := netip.MustParseAddr("fd5f:5801:f9ef:a93e:16d3:e3fc:a5ab:9d40")
	short := n.IPv4(5)
	for i, name := range []string{"payments-reconciliation-worker-6f4c9d7b58-x2x9z", "checkout-frontend-canary-7d9f8b6c5d-abcde"} {
		l.Pod(n, name, lab.PodOptions{
			Addrs:         []netip.Addr{short, long},
			HostInterface: fmt.Sprintf("vethabcdef%05d", i),
		})
	}
	for _, ip := range []netip.Addr{short, long} {
		_, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
	}
	for _, args := range [][]string{{"bindings"}, {"conflicts"}, {"conflicts", "--all"}, {"explain", long.String()}, {"status"}} {
		got := dupip(t, nil, append(args, "--api-socket", a.Socket)...)
		if got.code != 0 {
			t.Errorf("dupip %v: %+v", args, got)
		}
		if args[0] != "status" && !strings.Contains(got.stdout, long.String()) {
			t.Errorf("dupip %v: the address is not whole:\n%s", args, got.stdout)
		}
		for line := range strings.Lines(got.stdout) {
			if columns := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); columns > 80 {
				t.Errorf("dupip %v: a line of %d columns:\n%s", args, columns, got.stdout)
				break
			}
		}
	}
}

// Scripts rely on the exit code: nothing open is success, and a reader that goes away is
// no reason to go on.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	if got := dupip(t, nil, "conflicts", "--exit-code", "--api-socket", a.Socket); got.code != 0 {
		t.Errorf("no conflict: %+v, want exit 0", got)
	}
	w := l.Watch(a)
	ip := n.IPv4(5)
	var pods []*lab.Pod
	for _, name := range []string{"elder", "newcomer"} {
		pods = append(pods, l.Pod(n, name, lab.PodOptions{Addrs: []netip.Addr{ip}}))
	}
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)

	binary, err := lab.Binary()
	l.Do(err)
	reader, writer, err := os.Pipe()
	l.Do(err)
	watch := exec.Command(binary, "bindings", "--watch", "--api-socket", a.Socket)
	watch.Stdout = writer
	l.Do(watch.Start(), writer.Close())
	_, err = reader.Read(make([]byte, 1))
	l.Do(err, reader.Close(), pods[1].Delete())
	ended := make(chan error, 1)
	go func() { ended <- watch.Wait() }()
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("a watch goes on without a reader")
		_ = watch.Process.Kill()
		<-ended
	}

	_, err = w.WaitType("resolved", ip, patience)
	l.Do(err)
	if got := dupip(t, nil, "conflicts", "--exit-code", "--api-socket", a.Socket); got.code != 0 {
		t.Errorf("a resolved conflict: %+v, want exit 0", got)
	}
	if got := dupip(t, nil, "conflicts", "--exit-code", "--all", "--api-socket", a.Socket); got.code != 0 || !strings.Contains(got.stdout, "resolved") {
		t.Errorf("a resolved conflict, --all: %+v, want exit 0", got)
	}
}
