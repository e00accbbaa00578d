package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// watched is a Watcher that runs on a real file, in a bubble of fake time.
type watched struct {
	*Watcher
	t      *testing.T
	path   string
	reload chan os.Signal

	mu      sync.Mutex
	log     bytes.Buffer
	applied []int // the history limit of each configuration
	refuse  error
}

func watch(t *testing.T, path string) *watched {
	t.Helper()
	w := &watched{t: t, path: path, reload: make(chan os.Signal, 1)}
	handler := slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey || a.Key == "file" {
			return slog.Attr{}
		}
		return a
	}})
	var c *Config
	var err error
	w.Watcher, c, err = Open(Options{Path: path, Reload: w.reload, Log: slog.New(handler)})
	if err != nil {
		t.Fatal(err)
	}
	w.applied = []int{c.Limits().History}
	done := make(chan error, 1)
	go func() { done <- w.Run(t.Context(), w.apply) }()
	t.Cleanup(func() { // after the context of the test has ended
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return w
}

// Write implements io.Writer for the log.
func (w *watched) Write(line []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.path != "" {
		line = bytes.ReplaceAll(line, []byte(w.path), []byte("FILE"))
	}
	w.log.Write(line)
	return len(line), nil
}

func (w *watched) apply(c *Config) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.refuse != nil {
		return w.refuse
	}
	w.applied = append(w.applied, c.Limits().History)
	return nil
}

// after lets time pass and checks what was applied since the start, and the log lines
// since the last check.
func (w *watched) after(d time.Duration, applied string, lines ...string) {
	w.t.Helper()
	time.Sleep(d)
	synctest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	if got := fmt.Sprint(w.applied); got != applied {
		w.t.Errorf("applied %s, want %s", got, applied)
	}
	if got, want := w.log.String(), strings.Join(append(lines, ""), "\n"); got != want {
		w.t.Errorf("log\n%swant\n%s", got, want)
	}
	w.log.Reset()
}

// status checks the Status: how long ago it was loaded, and the error.
func (w *watched) status(ago time.Duration, problem string) {
	w.t.Helper()
	loadedAt, err := w.Status()
	if got := time.Since(loadedAt); got != ago {
		w.t.Errorf("loaded %s ago, want %s", got, ago)
	}
	if problem == "" && err != nil || problem != "" && (err == nil || err.Error() != strings.ReplaceAll(problem, "FILE", w.path)) {
		w.t.Errorf("error %v, want %q", err, problem)
	}
}

func (w *watched) write(text string) {
	w.t.Helper()
	write(w.t, w.path, text)
}

func (w *watched) hangUp() { w.reload <- syscall.SIGHUP }

func history(n int) string { return fmt.Sprintf("limits: {history: %d}\n", n) }

const (
	loaded   = `level=INFO msg="configuration loaded" networks=0 shared=0`
	rejected = `level=WARN msg="configuration rejected; the previous one stays active" error=`
	tooLow   = `FILE: line 1: limits.history: "0" cannot be used; write a whole number from 1 to 10000, without quotes`
)

// refused is the log line about [tooLow].
var refused = rejected + strconv.Quote(tooLow)

// inBubble runs a test on a file with history 1 in fake time.
func inBubble(t *testing.T, test func(w *watched)) {
	path := filepath.Join(t.TempDir(), "dupip.yaml")
	write(t, path, history(1))
	synctest.Test(t, func(t *testing.T) { test(watch(t, path)) })
}

func TestWatchChange(t *testing.T) {
	inBubble(t, func(w *watched) {
		w.after(20*time.Second, "[1]")
		w.status(20*time.Second, "")
		w.write(history(2)) // in place
		w.after(5*time.Second, "[1]")
		w.after(time.Second, "[1 2]", loaded)
		w.status(0, "")
		now := time.Now()
		if err := os.Chtimes(w.path, now, now); err != nil { // touched
			t.Fatal(err)
		}
		w.write(history(2))
		w.after(time.Minute, "[1 2]")
		// The same size and times: the content alone is different.
		info, err := os.Stat(w.path)
		if err != nil {
			t.Fatal(err)
		}
		w.write(history(3))
		if err := os.Chtimes(w.path, info.ModTime(), info.ModTime()); err != nil {
			t.Fatal(err)
		}
		w.after(6*time.Second, "[1 2 3]", loaded)
		// Moved over, as editors do.
		write(t, w.path+"~", history(4))
		if err := os.Rename(w.path+"~", w.path); err != nil {
			t.Fatal(err)
		}
		w.after(6*time.Second, "[1 2 3 4]", loaded)
	})
}

// The kubelet changes a ConfigMap by moving a symlink above the file.
func TestWatchConfigMap(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	link := func(to, name string) {
		t.Helper()
		if err := os.Symlink(to, in(name)); err != nil {
			t.Fatal(err)
		}
	}
	version := func(n int) {
		t.Helper()
		name := fmt.Sprintf("..2026_11_21_%d", n)
		if err := os.Mkdir(in(name), 0o700); err != nil {
			t.Fatal(err)
		}
		write(t, in(name+"/dupip.yaml"), history(n))
		link(name, "..data_tmp")
		if err := os.Rename(in("..data_tmp"), in("..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(in(fmt.Sprintf("..2026_11_21_%d", n-1))); err != nil {
			t.Fatal(err)
		}
	}
	version(1)
	link("..data/dupip.yaml", "dupip.yaml")
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, in("dupip.yaml"))
		for n, applied := range []string{"[1 2]", "[1 2 3]", "[1 2 3 4]"} {
			version(n + 2)
			w.after(6*time.Second, applied, loaded)
		}
	})
}

// A file that is written in place is empty for a moment, and half of it is valid, too.
func TestWatchHalfWritten(t *testing.T) {
	inBubble(t, func(w *watched) {
		w.after(4900*time.Millisecond, "[1]")
		w.write("") // empty at 5 s
		w.after(500*time.Millisecond, "[1]")
		w.write(history(2) + "shared: [10.0.") // half at 6 s
		w.after(time.Second, "[1]")
		w.write(history(2) + "shared: [10.0.0.1]\n") // all at 7 s
		w.after(time.Second, "[1]")
		w.after(time.Second, "[1 2]", strings.Replace(loaded, "shared=0", "shared=1", 1)) // the same at 8 s
		// Empty at two polls, complete in between.
		w.after(4500*time.Millisecond, "[1 2]")
		for range 2 {
			w.write("")
			w.after(500*time.Millisecond, "[1 2]")
			w.write(history(2) + "shared: [10.0.0.1]\n")
			w.after(5500*time.Millisecond, "[1 2]")
		}
		w.write("") // empty for good
		w.after(6*time.Second, "[1 2 1000]", loaded)
	})
}

func TestWatchBadFile(t *testing.T) {
	inBubble(t, func(w *watched) {
		w.after(time.Second, "[1]")
		w.write(history(0))
		w.after(time.Minute, "[1]", refused) // once
		w.status(61*time.Second, tooLow)
		w.write("a: 1\nb: 2\n") // another error, of two problems
		w.after(time.Minute, "[1]",
			rejected+strconv.Quote(`FILE: line 1: unknown key "a"; `+fileKeys),
			rejected+strconv.Quote(`FILE: line 2: unknown key "b"; `+fileKeys))
		w.write(history(1))
		w.after(time.Minute, "[1]", loaded)
		w.status(181*time.Second, "")
		for range 2 { // reported again: it was valid in between
			w.write(history(0))
			w.after(time.Minute, "[1]", refused)
			w.write(history(1))
			w.after(time.Minute, "[1]", loaded)
		}
		w.write(history(0))
		w.after(time.Minute, "[1]", refused)
		w.write(history(2))
		w.after(6*time.Second, "[1 2]", loaded)
		if loadedAt, err := w.Status(); time.Since(loadedAt) > 6*time.Second || err != nil {
			t.Errorf("loaded %s, %v", loadedAt, err)
		}
	})
}

func TestWatchMissingFile(t *testing.T) {
	inBubble(t, func(w *watched) {
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute, "[1]", rejected+`"stat FILE: no such file or directory"`)
		w.status(time.Minute, "stat FILE: no such file or directory")
		if err := os.Mkdir(w.path, 0o700); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute, "[1]", rejected+`"FILE: is not a regular file; name one"`)
		if err := errors.Join(syscall.Rmdir(w.path), syscall.Mkfifo(w.path, 0o600)); err != nil {
			t.Fatal(err)
		}
		w.after(time.Minute, "[1]") // the same error
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.write(strings.Repeat("#", 2<<20))
		w.after(time.Minute, "[1]", rejected+`"FILE: line 1: there are more than 65536 bytes; is it the right file?"`)
		w.write(history(1))
		w.after(time.Minute, "[1]", loaded)
		// Missing at one poll, half a second from now, and back at the next one.
		time.Sleep(3500 * time.Millisecond)
		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.after(time.Second, "[1]")
		w.write(history(1))
		w.after(time.Minute, "[1]")
	})
}

func TestWatchReload(t *testing.T) {
	inBubble(t, func(w *watched) {
		w.after(time.Second, "[1]")
		w.hangUp()
		w.after(0, "[1 1]", loaded)
		w.status(0, "")
		w.write(history(2))
		w.hangUp()
		w.after(0, "[1 1 2]", loaded) // at once
		w.write(history(0))
		for range 2 { // a request is answered each time
			w.hangUp()
			w.after(0, "[1 1 2]", refused)
		}
		w.after(time.Minute, "[1 1 2]") // polls do not report it again
		w.write(history(2))
		w.hangUp()
		w.after(0, "[1 1 2 2]", loaded)
		w.status(0, "")
		close(w.reload) // no more signals, but the file is still followed
		w.write(history(3))
		w.after(6*time.Second, "[1 1 2 2 3]", loaded)
	})
}

// A configuration that cannot be applied is tried again.
func TestWatchRefused(t *testing.T) {
	inBubble(t, func(w *watched) {
		w.mu.Lock()
		w.refuse = errors.New("no room")
		w.mu.Unlock()
		w.write(history(2))
		w.after(time.Minute, "[1]", rejected+`"FILE: no room"`)
		w.status(time.Minute, "FILE: no room")
		w.mu.Lock()
		w.refuse = nil
		w.mu.Unlock()
		w.after(5*time.Second, "[1 2]", loaded)
		w.after(time.Minute, "[1 2]")
	})
}

func TestWatchWithoutFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := watch(t, "")
		w.after(time.Hour, "[1000]")
		for range 2 {
			w.hangUp()
			w.after(time.Second, "[1000]",
				`level=INFO msg="no configuration file to reload; start the agent with --config FILE"`)
		}
		if loadedAt, err := w.Status(); !loadedAt.IsZero() || err != nil {
			t.Errorf("%s, %v", loadedAt, err)
		}
	})
}

// The first read has no previous configuration to keep.
func TestOpenBadFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dupip.yaml")
	refused := func(want string) {
		t.Helper()
		if w, c, err := Open(Options{Path: path}); err == nil || err.Error() != want || w != nil || c != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}
	refused("stat " + path + ": no such file or directory")
	write(t, path, history(0))
	refused(strings.ReplaceAll(tooLow, "FILE", path))
}

// The same in real time, with concurrent calls of Status.
func TestWatchForReal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "dupip.yaml")
	write(t, path, history(1))
	w, _, err := Open(Options{Path: path, Every: 5 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	applied := make(chan int, 100)
	var group sync.WaitGroup
	group.Go(func() {
		_ = w.Run(t.Context(), func(c *Config) error {
			applied <- c.Limits().History
			return nil
		})
	})
	group.Go(func() {
		for t.Context().Err() == nil {
			if loadedAt, _ := w.Status(); loadedAt.IsZero() {
				t.Error("never loaded")
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	t.Cleanup(group.Wait)
	for n := 2; n <= 20; n++ {
		write(t, path+"~", history(n))
		if err := os.Rename(path+"~", path); err != nil {
			t.Fatal(err)
		}
		select {
		case got := <-applied:
			if got != n {
				t.Fatalf("applied %d, want %d", got, n)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%d was not applied", n)
		}
	}
}
