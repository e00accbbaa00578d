package netns

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// The watch tells of names in directories that did not exist before, or not for a while, and of the directories above these.
func TestWatchMissingDirectories(t *testing.T) {
	before := namedDirs
	defer func() { namedDirs = before }()
	root := t.TempDir()
	dir := filepath.Join(root, "docker", "netns")
	namedDirs = []string{dir}
	w, err := WatchNames()
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan bool)
	go func() {
		defer close(woken)
		for w.Wait() == nil {
			woken <- true
		}
	}()
	defer func() {
		w.Close()
		for range woken {
		}
	}()
	after := func(what string, do func() error) {
		t.Helper()
		if err := do(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-woken:
		case <-time.After(time.Minute):
			t.Fatalf("nothing tells after %s", what)
		}
		for quiet := false; !quiet; { // a watch that ends tells, too
			if err := w.AddDirectories(); err != nil {
				t.Fatal(err)
			}
			select {
			case <-woken:
			case <-time.After(50 * time.Millisecond):
				quiet = true
			}
		}
	}
	for range 2 {
		after("a directory above is made", func() error { return os.Mkdir(filepath.Dir(dir), 0o755) })
		after("the directory is made", func() error { return os.Mkdir(dir, 0o755) })
		for _, name := range []string{"first", "second"} {
			after("a name is made", func() error { return os.WriteFile(filepath.Join(dir, name), nil, 0o600) })
		}
		after("all is removed", func() error { return os.RemoveAll(filepath.Dir(dir)) })
	}
}
