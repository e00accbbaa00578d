package config

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// loadInTime fails the test when Load waits for something.
func loadInTime(t *testing.T, path string) (*Config, error) {
	t.Helper()
	type result struct {
		c   *Config
		err error
	}
	done := make(chan result, 1)
	go func() {
		c, err := Load(path)
		done <- result{c, err}
	}()
	select {
	case r := <-done:
		return r.c, r.err
	case <-time.After(time.Minute):
		t.Fatalf("loading %s hangs", path)
		return nil, nil
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	write(t, in("good"), "shared: [10.0.0.1]\n")
	write(t, in("empty"), "")
	write(t, in("full"), "#"+strings.Repeat("x", MaxSize-1))
	write(t, in("bad"), "shared: [a]\nlimits: {x: 1}\n")
	write(t, in("large"), strings.Repeat("# 34567\n", 2<<20/8))
	for link, to := range map[string]string{"link": "good", "dangling": "nothing", "loop": "loop"} {
		if err := os.Symlink(to, in(link)); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(in("fifo"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		in("good"):               "<nil>",
		in("link"):               "<nil>",
		in("empty"):              "<nil>",
		in("full"):               "<nil>",
		in("bad"):                in("bad") + `: line 1: shared[0]: "a"` + notCIDR + "\n" + in("bad") + `: line 2: limits: unknown key "x"; ` + limitKeys,
		in("large"):              in("large") + ": line 1: there are more than 65536 bytes; is it the right file?",
		in("nothing"):            "stat " + in("nothing") + ": no such file or directory",
		in("dangling"):           "stat " + in("dangling") + ": no such file or directory",
		in("loop"):               "stat " + in("loop") + ": too many levels of symbolic links",
		in("good/x"):             "stat " + in("good/x") + ": not a directory",
		in("fifo"):               in("fifo") + ": is not a regular file; name one",
		dir:                      dir + ": is not a regular file; name one",
		"/dev/zero":              "/dev/zero: is not a regular file; name one",
		"/proc/self/environ\x00": "stat /proc/self/environ\x00: invalid argument",
	} {
		c, err := loadInTime(t, name)
		if diff := cmp.Diff(want, fmt.Sprint(err)); diff != "" || (err == nil) != (c != nil) {
			t.Errorf("%s: %v (-want +got):\n%s", name, c, diff)
		}
	}
	if _, err := Load(in("nothing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

// A regular file that becomes a FIFO between stat and open does not hang
// either.
func TestReadRaces(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path+".file", history(7))
	if err := unix.Mkfifo(path+".fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 0; ; n++ {
			select {
			case <-done:
				return
			default:
			}
			_ = os.Remove(path + ".new")
			_ = os.Link(path+[]string{".file", ".fifo"}[n%2], path+".new")
			_ = os.Rename(path+".new", path)
		}
	}()
	t.Cleanup(func() {
		close(done)
		<-stopped
	})
	var good, bad int
	for deadline := time.Now().Add(2 * time.Minute); (good < 2_000 || bad < 2_000) && time.Now().Before(deadline); {
		switch c, err := loadInTime(t, path); {
		case err != nil:
			bad++
		case c.Limits().History != 7:
			t.Fatalf("read %+v from what is no file", c.Limits())
		default:
			good++
		}
	}
	if good == 0 || bad == 0 {
		t.Errorf("%d times a file, %d times none: the test tests nothing", good, bad)
	}
}
