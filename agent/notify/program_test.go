package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
)

// script writes a program of the shell. Its folder is the first argument of text.
func script(t *testing.T, text string) (path, dir string) {
	t.Helper()
	dir = t.TempDir()
	path = filepath.Join(dir, "tell")
	if err := os.WriteFile(path, fmt.Appendf(nil, "#!/bin/sh\ncd %s\n%s\n", dir, text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, dir
}

func newTestProgram(t *testing.T, path, user string, log io.Writer) *program {
	t.Helper()
	p, err := newProgram(Options{Log: slog.New(slog.NewTextHandler(log, nil)), Program: path, User: user})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var event = document.ConflictEvent{Type: "confirmed", At: time.Unix(1, 0), Conflict: conflict("10.0.0.1", "a", "b")}

func short(t *testing.T, d time.Duration) {
	was := runTime
	runTime = d
	t.Cleanup(func() { runTime = was })
}

// A program that does wrong is counted, and ends.
func TestProgramThatDoesWrong(t *testing.T) {
	testneeds.Root(t)
	for name, c := range map[string]struct{ text, want, output string }{
		"well":               {"cat > said; echo one; echo; printf '\\033[31mtwo' >&2", "", "one / "},
		"does not read":      {"exit 0", "", ""},
		"fails":              {"echo no >&2; exit 3", "exit status 3", "no"},
		"hangs":              {"trap '' TERM INT; echo begins; while :; do sleep 100; done", "killed: it took longer than", "begins"},
		"leaves a child":     {"sleep 1000 & echo $! > child", "", ""},
		"leaves a daemon":    {"setsid sh -c 'echo $$ > child; exec sleep 1000' & while [ ! -s child ]; do sleep 0.01; done", "keeps its output open", ""},
		"writes very much":   {"yes 1234567890", "it has written more than", "1234567890 / 1234567890"},
		"writes a long line": {"head -c 100000 /dev/zero | tr '\\0' x", "", strings.Repeat("x", maxLine-3)},
	} {
		t.Run(name, func(t *testing.T) {
			if c.want != "" && strings.HasPrefix(c.want, "killed") {
				short(t, time.Second)
			}
			path, dir := script(t, c.text)
			p := newTestProgram(t, path, "", io.Discard)
			var said output
			err := p.tell(t.Context(), event, &said)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if lines := said.lines(); !strings.Contains(lines, c.output) || strings.Contains(lines, "\x1b") || len(lines) > maxLines*(maxLine+3) {
				t.Errorf("output %q, want %q", lines, c.output)
			}
			if data, err := os.ReadFile(filepath.Join(dir, "child")); err == nil {
				var pid int
				fmt.Sscan(string(data), &pid)
				if name == "leaves a daemon" { // its own session is its own
					_ = syscall.Kill(pid, syscall.SIGKILL)
				}
				for deadline := time.Now().Add(10 * time.Second); isRunning(pid); time.Sleep(10 * time.Millisecond) {
					if time.Now().After(deadline) {
						t.Fatalf("process %d is left", pid)
					}
				}
			}
			if name == "well" {
				data, err := os.ReadFile(filepath.Join(dir, "said"))
				var got document.ConflictEvent
				if err != nil || json.Unmarshal(data, &got) != nil || bytes.Count(data, []byte("\n")) != 1 {
					t.Fatalf("it read %q, %v", data, err)
				}
				again, _ := json.Marshal(got)
				if want, _ := json.Marshal(event); !bytes.Equal(again, want) {
					t.Errorf("it read %s, want %s", again, want)
				}
			}
		})
	}
}

// isRunning reports whether a process is there, and no zombie.
func isRunning(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}

// The program has no capability, and can get none: as root, and as another user, who has no groups.
func TestProgramHasNoRights(t *testing.T) {
	testneeds.Root(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for _, user := range []string{"", "nobody"} {
		path, dir := script(t, "cat /proc/self/status > status; env > env; ls -l /proc/self/fd > fds")
		for _, folder := range []string{filepath.Dir(dir), dir} { // nobody writes what it finds
			if err := os.Chmod(folder, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"status", "env", "fds"} {
			file := filepath.Join(dir, name)
			if err := os.WriteFile(file, nil, 0o666); err != nil || os.Chmod(file, 0o666) != nil {
				t.Fatal(err)
			}
		}
		p := newTestProgram(t, path, user, io.Discard)
		if err := p.tell(t.Context(), event, new(output)); err != nil {
			t.Fatal(err)
		}
		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			return string(data)
		}
		got := make(map[string]string)
		for line := range strings.Lines(read("status")) {
			name, value, _ := strings.Cut(line, ":")
			got[name] = strings.Join(strings.Fields(value), " ")
		}
		want := map[string]string{"CapInh": zero, "CapPrm": zero, "CapEff": zero, "CapAmb": zero, "NoNewPrivs": "1", "Uid": "0 0 0 0", "Gid": "0 0 0 0"}
		if user != "" {
			want["Uid"], want["Gid"], want["Groups"] = "65534 65534 65534 65534", "65534 65534 65534 65534", ""
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("user %q: %s is %q, want %q", user, name, got[name], value)
			}
		}
		for line := range strings.Lines(read("env")) {
			if name, _, _ := strings.Cut(line, "="); name != "PATH" && name != "PWD" && name != "OLDPWD" && name != "_" && name != "SHLVL" {
				t.Errorf("user %q: the environment has %s", user, line)
			}
		}
		if strings.Contains(read("fds"), "socket:") {
			t.Errorf("user %q: it has a socket of the agent:\n%s", user, read("fds"))
		}
	}
	// This process has its own still.
	if has, err := capabilities(); err != nil || has&needed != needed {
		t.Errorf("the agent has capabilities %x, %v", has, err)
	}
}

const zero = "0000000000000000"

// What others could replace is refused, also later.
func TestProgramIsRefused(t *testing.T) {
	testneeds.Root(t)
	path, dir := script(t, "exit 0")
	for _, folder := range []string{filepath.Dir(dir), filepath.Dir(path)} {
		if err := os.Chmod(folder, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	p := newTestProgram(t, path, "", io.Discard)
	link := filepath.Join(dir, "link")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		path, user, want string
		change, back     func() error
	}{
		{path: filepath.Join(dir, "none"), want: "no such file"},
		{path: dir, want: "regular file"},
		{path: link, want: "is a link"},
		{path: path, user: "no-such-user", want: "no such user"},
		{path: path, user: "root", want: "ordinary user"},
		{path, "nobody", "user nobody cannot run it: everybody must be able to execute " + dir, func() error { return os.Chmod(dir, 0o750) }, func() error { return os.Chmod(dir, 0o755) }},
		{path, "", "can be executed", func() error { return os.Chmod(path, 0o644) }, func() error { return os.Chmod(path, 0o755) }},
		{path, "", "others could replace it", func() error { return os.Chmod(path, 0o775) }, func() error { return os.Chmod(path, 0o755) }},
		{path, "", "others could replace it: " + dir, func() error { return os.Chmod(dir, 0o777) }, func() error { return os.Chmod(dir, 0o755) }},
		{path, "", "owner 65534", func() error { return os.Chown(path, 65534, 0) }, func() error { return os.Chown(path, 0, 0) }},
		{path, "", "owner 65534", func() error { return os.Chown(dir, 65534, 0) }, func() error { return os.Chown(dir, 0, 0) }},
		{path, "", "no such file", func() error { return os.Rename(path, link+"2") }, func() error { return os.Rename(link+"2", path) }},
	} {
		if c.change != nil {
			if err := c.change(); err != nil {
				t.Fatal(err)
			}
			if err := p.tell(t.Context(), event, new(output)); c.user == "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("a run: %v, want %q", err, c.want)
			}
		}
		if _, err := CheckProgram(c.path, c.user); err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s as %q: %v, want %q", c.path, c.user, err, c.want)
		}
		if c.back != nil {
			if err := c.back(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := p.tell(t.Context(), event, new(output)); err != nil {
		t.Error(err)
	}
}

// It is run once at a time, and some events wait; more are dropped and counted. It ends with the agent.
func TestProgramWaits(t *testing.T) {
	testneeds.Root(t)
	path, dir := script(t, "mkdir lock || exit 1; echo x >> runs; [ -e go ] || sleep 1000; rmdir lock")
	var log bytes.Buffer
	p := newTestProgram(t, path, "", &log)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { p.run(ctx) })
	wait := func(what string, ok func() bool) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	p.offer(event)
	wait("it does not run", func() bool { _, err := os.Stat(filepath.Join(dir, "runs")); return err == nil })
	for range maxWaiting + 3 {
		p.offer(event)
	}
	if s := p.status(); s.Dropped != 3 || s.Sent != 0 || s.Failed != 0 {
		t.Errorf("%+v", s)
	}
	cancel()
	began := time.Now()
	running.Wait()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the agent waits %v for it", took)
	}

	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, "lock")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	running.Go(func() { p.run(ctx) })
	wait("it does not run again", func() bool { return p.status().Sent >= burst-5 })
	cancel()
	running.Wait()
	if s := p.status(); s.Failed != 0 {
		t.Errorf("%+v\n%s", s, log.String())
	}
}

// The program is told when a conflict of this node is confirmed, and when it has ended everywhere, once each.
func TestTellsProgram(t *testing.T) {
	path := "/bin/true"
	p := &program{path: path, waiting: make(chan document.ConflictEvent, maxWaiting)}
	s := newSource()
	n := &Notifier{opts: Options{Self: cluster.Member{Name: "a", Boot: "boot"}}, program: p, told: make(map[heldOn]document.Conflict)}
	look := func(conflicts ...document.Conflict) (got []string) {
		t.Helper()
		s.doc.Conflicts, n.due = conflicts, true
		n.look(t.Context(), s)
		for len(p.waiting) > 0 {
			e := <-p.waiting
			got = append(got, e.Type+" "+e.Conflict.IP.String())
		}
		return got
	}
	one, other, coming := conflict("10.0.0.1", "a", "b"), conflict("10.0.0.2", "b", "c"), conflict("10.0.0.3", "a", "b")
	coming.Judgement = nil
	again := one
	again.State, again.Judgement = 1, nil // suspected
	ended := resolved(one)
	for i, c := range []struct {
		conflicts []document.Conflict
		want      []string
	}{
		{nil, nil},
		{[]document.Conflict{one, other, coming}, []string{"confirmed 10.0.0.1"}},
		{[]document.Conflict{one}, nil},
		{[]document.Conflict{again}, nil},
		{[]document.Conflict{conflict("10.0.0.1", "b", "c")}, nil}, // goes on without this node
		{[]document.Conflict{ended, resolved(other)}, []string{"resolved 10.0.0.1"}},
		{[]document.Conflict{ended}, nil},
		{[]document.Conflict{ended, conflict("10.0.0.1", "a", "b")}, []string{"confirmed 10.0.0.1"}},
	} {
		if diff := cmp.Diff(c.want, look(c.conflicts...)); diff != "" {
			t.Errorf("look %d (-want +got):\n%s", i, diff)
		}
	}
	// It ended and was forgotten before it was seen.
	if got := look(); len(got) != 0 || p.status().Dropped != 1 || len(n.told) != 0 {
		t.Errorf("%v, %+v", got, p.status())
	}
	var all []document.Conflict
	for i := range maxTold + 7 {
		all = append(all, conflict(fmt.Sprintf("10.1.%d.%d", i/250, i%250), "a", "b"))
	}
	if got := look(all...); len(got) != maxWaiting || len(n.told) != maxTold {
		t.Errorf("%d wait, %d are told", len(got), len(n.told))
	}
}
