package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.yaml.in/yaml/v4"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// outcome is what a command left.
type outcome struct {
	code           int
	stdout, stderr string
}

// dupip runs the binary and waits for it; nothing here may take long.
func dupip(t testing.TB, change func(*exec.Cmd), args ...string) outcome {
	t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	cmd.WaitDelay = patience
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if change != nil {
		change(cmd)
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("dupip %s hangs; it printed: %s", strings.Join(args, " "), stderr.String())
	}
	if _, ok := errors.AsType[*exec.ExitError](err); err != nil && !ok {
		t.Fatal(err)
	}
	return outcome{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// wantOneLine checks that a command failed with one line that contains these words.
func wantOneLine(t *testing.T, got outcome, words ...string) {
	t.Helper()
	if got.code == 0 {
		t.Error("exit code 0, want a failure")
	}
	text := strings.TrimSuffix(got.stderr, "\n")
	if strings.Contains(text, "\n") || !strings.HasPrefix(text, "dupip: ") {
		t.Errorf("stderr is not one line of dupip's:\n%s", got.stderr)
	}
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("stderr %q does not mention %q", text, word)
		}
	}
}

func TestWrongUse(t *testing.T) {
	testneeds.Root(t)
	occupied := filepath.Join(t.TempDir(), "occupied.sock")
	listener, err := net.Listen("unix", occupied)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	none := filepath.Join(t.TempDir(), "none.sock")
	environment := func(pair string) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), pair) }
	}
	for _, test := range []struct {
		name   string
		change func(*exec.Cmd)
		args   []string
		words  []string
	}{
		{"unknown flag", nil, []string{"agent", "--nonsense"}, []string{"--nonsense", "--help"}},
		{"unknown command", nil, []string{"nonsense"}, []string{"nonsense"}},
		{"attach mode", nil, []string{"agent", "--attach", "afxdp"}, []string{"--attach", "tcx"}},
		{"duration", nil, []string{"agent", "--min-overlap", "soon"}, []string{"--min-overlap"}},
		{"no duration", nil, []string{"agent", "--min-overlap", "0"}, []string{"--min-overlap 0s", "10ms to 1m"}},
		{"replicas", nil, []string{"agent", "--replicas", "100"}, []string{"--replicas 100", "1 to 16"}},
		{"node name", nil, []string{"agent", "--node-name", "a b"}, []string{"a b"}},
		{"no node name", nil, []string{"agent", "--node-name", ""}, []string{"--node-name is empty"}},
		{"no replicas in the environment", environment("DUPIP_REPLICAS=0"), []string{"agent"}, []string{"--replicas 0", "1 to 16"}},
		{"the doctor's flags", nil, []string{"doctor", "--min-overlap", "0"}, []string{"--min-overlap 0s", "10ms to 1m"}},
		{"log level", nil, []string{"agent", "--log-level", "loud"}, []string{"loud", "debug"}},
		{"log format", nil, []string{"agent", "--log-format", "xml"}, []string{"xml", "json"}},
		{"environment", environment("DUPIP_MIN_OVERLAP=soon"), []string{"agent"}, []string{"DUPIP_MIN_OVERLAP"}},
		{"output format", nil, []string{"bindings", "-o", "xml"}, []string{"table"}},
		{"occupied socket", nil, []string{"agent", "--api-socket", occupied}, []string{occupied, "another agent"}},
		{"a file for a socket", nil, []string{"agent", "--api-socket", file}, []string{file}},
		{"no agent", nil, []string{"conflicts", "--api-socket", none}, []string{none, "dupip agent"}},
		{"no agent to watch", nil, []string{"conflicts", "--watch", "--api-socket", none}, []string{none}},
		{"not an address", nil, []string{"explain", "10.0.0"}, []string{"10.0.0"}},
		{"no address", nil, []string{"explain"}, []string{"explain", "address"}},
		{"not an address in a flag", nil, []string{"bindings", "--ip", "x"}, []string{"--ip"}},
		{"unprivileged", asNobody, []string{"agent", "--api-socket", none}, []string{"root"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			wantOneLine(t, dupip(t, test.change, test.args...), test.words...)
		})
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "precious" {
		t.Errorf("the file in the way is gone: %q, %v", data, err)
	}
}

// asNobody runs a copy of the binary that anybody may read.
func asNobody(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
}

// Root without the right to load programs, as in a container that was not given it.
func TestMissingCapability(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	setpriv, err := exec.LookPath("setpriv")
	l.Do(err)
	socket := filepath.Join(t.TempDir(), "a.sock")
	for _, missing := range []struct{ drop, word string }{
		{"-bpf,-sys_admin", "CAP_BPF"},
		{"-net_raw", "CAP_NET_RAW"},
	} {
		var got outcome
		l.Do(n.Exec(func() error {
			got = dupip(t, func(cmd *exec.Cmd) {
				cmd.Args = append([]string{setpriv, "--bounding-set", missing.drop, "--inh-caps", missing.drop, cmd.Path}, cmd.Args[1:]...)
				cmd.Path = setpriv
			}, "agent", "--api-socket", socket)
			return nil
		}))
		wantOneLine(t, got, missing.word)
	}
}

func TestDocumentsAndTables(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip, ip6 := n.IPv4(5), n.IPv6(5)
	o := lab.PodOptions{Addrs: lab.IPs(ip.String(), ip6.String())}
	l.Pod(n, "a-pod-with-a-rather-long-name", o)
	l.Pod(n, "another-pod-with-a-long-name", o)
	for _, addr := range o.Addrs {
		_, err := w.WaitConfirmed(addr, patience)
		l.Do(err)
	}
	for _, args := range [][]string{
		{"bindings"},
		{"bindings", "--ip", ip.String()},
		{"conflicts"},
		{"conflicts", "--all"},
		{"explain", ip6.String()},
		{"explain", "192.0.2.1"},
		{"status"},
		{"version"},
	} {
		for _, format := range []string{"table", "wide", "json", "yaml"} {
			call := append(args, "-o", format)
			if args[0] != "version" {
				call = append(call, "--api-socket", a.Socket)
			}
			got := dupip(t, func(cmd *exec.Cmd) { cmd.Env = append(os.Environ(), "COLUMNS=80") }, call...)
			name := strings.Join(args, " ") + " -o " + format
			if got.code != 0 || got.stderr != "" || got.stdout == "" {
				t.Errorf("%s: exit %d, stderr %q, stdout %q", name, got.code, got.stderr, got.stdout)
			}
			if strings.Contains(got.stdout, "\x1b") {
				t.Errorf("%s: colour without a terminal", name)
			}
			var doc map[string]any
			switch format {
			case "json":
				if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			case "yaml":
				if err := yaml.Unmarshal([]byte(got.stdout), &doc); err != nil {
					t.Errorf("%s: %v\n%s", name, err, got.stdout)
				}
			case "table":
				if line, width := longest(got.stdout); width > 80 {
					t.Errorf("%s: a line of %d columns: %s", name, width, line)
				}
			}
		}
	}
	if got := dupip(t, nil, "conflicts", "--exit-code", "--api-socket", a.Socket); got.code != 3 || got.stderr != "" {
		t.Errorf("conflicts --exit-code: exit %d, stderr %q; want 3 and nothing", got.code, got.stderr)
	}
}

// A watch runs until it is interrupted, which is no failure, or until the agent stops, which it
// reports.
func TestWatchEnds(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv4(5)
	o := lab.PodOptions{Addrs: lab.IPs(ip.String())}
	l.Pod(n, "one", o)
	l.Pod(n, "two", o)
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	for _, end := range []string{"interrupt", "agent stops"} {
		var watches []*watching
		for _, args := range [][]string{{"conflicts", "--watch"}, {"bindings", "--watch"}, {"conflicts", "-w", "-o", "json"}} {
			watch := startWatching(l, append(args, "--api-socket", a.Socket)...)
			l.Eventually(strings.Join(args, " "), func() error {
				if !strings.Contains(watch.output(l), ip.String()) {
					return errors.New("it has not printed the address")
				}
				return nil
			})
			watches = append(watches, watch)
		}
		if end == "agent stops" {
			l.Do(a.Stop())
		}
		for _, watch := range watches {
			if end == "interrupt" {
				l.Do(watch.cmd.Process.Signal(unix.SIGINT))
			}
			err := watch.cmd.Wait()
			reported := strings.Contains(watch.output(l), "dupip: the agent ended the watch")
			if (end == "agent stops") != (err != nil) || reported != (err != nil) {
				t.Errorf("%s, %s: %v, output %q", watch.cmd.Args, end, err, watch.output(l))
			}
		}
	}
	if _, err := os.Stat(a.Socket); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket of a stopped agent: %v, want it gone", err)
	}
}

// watching is a command that prints to a file until it ends.
type watching struct {
	cmd  *exec.Cmd
	path string
}

func startWatching(l *lab.T, args ...string) *watching {
	l.Helper()
	binary, err := lab.Binary()
	l.Do(err)
	file, err := os.CreateTemp("", "watching")
	l.Do(err)
	defer file.Close()
	l.Cleanup(func() { _ = os.Remove(file.Name()) })
	w := &watching{exec.Command(binary, args...), file.Name()}
	w.cmd.Stdout, w.cmd.Stderr = file, file
	l.Do(w.cmd.Start())
	l.Cleanup(func() { _ = w.cmd.Process.Kill() })
	return w
}

func (w *watching) output(l *lab.T) string {
	l.Helper()
	data, err := os.ReadFile(w.path)
	l.Do(err)
	return string(data)
}
