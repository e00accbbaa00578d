package books

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// byEvents has a store read what events tell of only.
func (s *store) byEvents() { s.book.whole = time.Now().Add(time.Hour) }

// Whatever changes is found by events alone.
func TestEvents(t *testing.T) {
	const none = "none"
	for name, test := range map[string]struct {
		change func(s *store)
		want   string // what is reserved then
	}{
		"a reservation is made": {func(s *store) { s.write("10.1.2.3", "bbbb") }, "2:aaaa 3:bbbb"},
		"one is removed":        {func(s *store) { s.must(os.Remove(s.at("10.1.2.2"))) }, ""},
		"one is given to another, under the same name and of the same size": {func(s *store) { s.write("10.1.2.2", "cccc") }, "2:cccc"},
		"one is written into": {func(s *store) {
			f, err := os.OpenFile(s.at("10.1.2.2"), os.O_WRONLY, 0)
			s.must(err)
			_, err = f.WriteAt([]byte("dd"), 1)
			s.must(err)
			s.must(f.Close())
		}, "2:adda"},
		"one is replaced by a rename": {func(s *store) {
			s.write("new", "cccc")
			s.must(os.Rename(s.at("new"), s.at("10.1.2.2")))
		}, "2:cccc"},
		"one comes from elsewhere": {func(s *store) {
			s.must(os.WriteFile(s.at("../new"), []byte("bbbb"), 0o600))
			s.must(os.Rename(s.at("../new"), s.at("10.1.2.3")))
		}, "2:aaaa 3:bbbb"},
		"one goes elsewhere": {func(s *store) { s.must(os.Rename(s.at("10.1.2.2"), s.at("../old"))) }, ""},
		"one is renamed":     {func(s *store) { s.must(os.Rename(s.at("10.1.2.2"), s.at("10.1.2.4"))) }, "4:aaaa"},
		"one is written through memory": {func(s *store) {
			f, err := os.OpenFile(s.at("10.1.2.2"), os.O_RDWR, 0)
			s.must(err)
			data, err := unix.Mmap(int(f.Fd()), 0, 4, unix.PROT_WRITE|unix.PROT_READ, unix.MAP_SHARED)
			s.must(err)
			copy(data, "eeee")
			s.must(unix.Munmap(data))
			s.must(f.Close())
		}, "2:eeee"},
		"one becomes a link": {func(s *store) {
			s.must(os.Remove(s.at("10.1.2.2")))
			s.must(os.Symlink("/etc/passwd", s.at("10.1.2.2")))
		}, "error"},
		"the store is removed": {func(s *store) { s.must(os.RemoveAll(s.dir)) }, ""},
		"the store is wiped, and made again": {func(s *store) {
			s.must(os.RemoveAll(s.dir))
			s.must(os.MkdirAll(s.dir, 0o755))
			s.write("10.1.2.3", "bbbb")
		}, "3:bbbb"},
		"the store is replaced by a rename": {func(s *store) {
			s.must(os.Mkdir(s.at("../other"), 0o755))
			s.must(os.WriteFile(s.at("../other/10.1.2.3"), []byte("bbbb"), 0o600))
			s.must(os.Rename(s.dir, s.at("../old")))
			s.must(os.Rename(s.at("../other"), s.dir))
		}, "3:bbbb"},
		"the folder above the store is replaced": {func(s *store) {
			s.must(os.Rename(s.at(".."), s.at("../../old")))
			s.must(os.MkdirAll(s.dir, 0o755))
			s.write("10.1.2.3", "bbbb")
		}, "3:bbbb"},
		"the store becomes a link": {func(s *store) {
			s.must(os.Rename(s.dir, s.at("../old")))
			s.must(os.Symlink("old", s.dir))
		}, "error"},
		"the configuration gets another store": {func(s *store) { s.configure("other") }, ""},
		"the configuration is replaced by a rename": {func(s *store) {
			s.must(os.Rename(s.config(), s.config()+".old"))
			s.configure("other")
			s.must(os.Rename(s.config()+".old", s.config()))
		}, "2:aaaa"},
		"the configuration is removed": {func(s *store) { s.must(os.Remove(s.config())) }, none},
		"the folder of the configuration is replaced": {func(s *store) {
			folder := filepath.Dir(s.config())
			s.must(os.Rename(folder, folder+".old"))
			s.must(os.Mkdir(folder, 0o755))
		}, none},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.write("10.1.2.2", "aaaa")
			expect := func(when, want string) {
				t.Helper()
				all, err := s.book.Read()
				s.must(err)
				got := none
				if len(all) > 0 {
					got = text(all[0])
				}
				if got != want {
					t.Errorf("%s: %q, want %q", when, got, want)
				}
			}
			expect("at first", "2:aaaa")
			s.byEvents()
			test.change(s)
			expect("after the change", test.want)
			if test.want == none {
				return
			}
			// What is there now is followed, too.
			s.must(os.RemoveAll(s.dir))
			s.must(os.MkdirAll(s.dir, 0o755))
			s.configure("data")
			s.write("10.1.2.4", "dddd")
			expect("later", "4:dddd")
		})
	}
}

func (s *store) at(name string) string { return filepath.Join(s.dir, name) }

func (s *store) config() string { return filepath.Join(s.book.folder(), "10-pods.conflist") }

// A file system is mounted where a store is, and removed again, of which inotify does not tell.
func TestMountedStore(t *testing.T) {
	testneeds.Root(t)
	s := newStore(t)
	s.write("10.1.2.2", "aaaa")
	other := t.TempDir()
	s.must(os.WriteFile(filepath.Join(other, "10.1.2.3"), []byte("bbbb"), 0o600))
	expect := func(when, want string) {
		t.Helper()
		if got := text(s.read()); got != want {
			t.Errorf("%s: %q, want %q", when, got, want)
		}
	}
	expect("at first", "2:aaaa")
	s.byEvents()
	s.must(unix.Mount(other, s.dir, "", unix.MS_BIND, ""))
	mounted := true
	t.Cleanup(func() {
		if mounted {
			s.must(unix.Unmount(s.dir, 0))
		}
	})
	expect("mounted", "3:bbbb")
	s.must(os.WriteFile(filepath.Join(other, "10.1.2.4"), []byte("dddd"), 0o600)) // by the other path
	expect("changed", "3:bbbb 4:dddd")
	s.must(unix.Unmount(s.dir, 0))
	mounted = false
	expect("no longer mounted", "2:aaaa")
}

// A reading without changes reads nothing, and returns what the last one has. Changes of files that are no reservations are none.
func TestNothingChanged(t *testing.T) {
	s := newStore(t)
	s.write("10.1.2.2", "aaaa")
	first := s.read()
	s.byEvents()
	s.write("last_reserved_ip.0", "10.1.2.2")
	s.write("10.1.2.2", "aaaa")
	s.must(os.Chtimes(s.at("10.1.2.2"), first.Reservations[netip.MustParseAddr("10.1.2.2")].Since, time.Now()))
	second := s.read() // its time is another one
	if third := s.read(); third != second {
		t.Error("nothing has changed, and it is another book")
	}
	s.book.whole = time.Time{}
	if s.read() != second {
		t.Error("everything was read again, and it is another book")
	}
	// A file whose changes are hidden from events is found by that.
	s.byEvents()
	s.must(os.Link(s.at("10.1.2.2"), filepath.Join(s.dir, "..", "linked")))
	s.read()
	s.must(os.WriteFile(filepath.Join(s.dir, "..", "linked"), []byte("bbbb"), 0o600))
	if got := text(s.read()); got != "2:aaaa" {
		t.Errorf("an event told of %q", got)
	}
	s.book.whole = time.Time{}
	if got := text(s.read()); got != "2:bbbb" {
		t.Errorf("everything was read again: %q", got)
	}
	if wait := time.Until(s.book.whole); wait < wholeEvery/2 || wait > time.Hour {
		t.Errorf("everything is read again in %s", wait)
	}
}

// More changes than are kept, by the kernel or by the watch, cost a reading of everything.
func TestManyChanges(t *testing.T) {
	for name, many := range map[string]func(s *store){
		"names": func(s *store) {
			for n := range maxChanged + 1 {
				s.write(fmt.Sprint("file", n), "")
			}
		},
		"events": func(s *store) {
			limit, err := os.ReadFile("/proc/sys/fs/inotify/max_queued_events")
			s.must(err)
			n, err := strconv.Atoi(strings.TrimSpace(string(limit)))
			s.must(err)
			s.write("a", "")
			s.write("b", "")
			for i := range n + 2 { // the kernel joins equal ones that follow each other
				s.must(os.Chmod(s.at(string("ab"[i%2])), 0o600))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t)
			s.write("10.1.2.2", "aaaa")
			s.read()
			s.byEvents()
			many(s)
			s.write("10.1.2.3", "bbbb")
			s.book.watch.collect()
			if f := s.book.watch.folders[s.dir]; f != nil && len(f.names) > maxChanged {
				t.Errorf("%d names are kept", len(f.names))
			}
			for range 2 {
				if got := text(s.read()); got != "2:aaaa 3:bbbb" {
					t.Errorf("%q", got)
				}
			}
			s.write("10.1.2.4", "cccc")
			if got := text(s.read()); got != "2:aaaa 3:bbbb 4:cccc" {
				t.Errorf("later: %q", got)
			}
		})
	}
}

// A store that grows bit by bit is bounded, too: with too many reservations it is read as a whole, which tells what the matter is.
func TestGrowingStore(t *testing.T) {
	s := newStore(t)
	s.write("10.1.2.2", "aaaa")
	known, ip := make(map[netip.Addr]Reservation), netip.MustParseAddr("10.2.0.0")
	for range maxReservations {
		known[ip] = Reservation{Sandbox: "bbbb"}
		ip = ip.Next()
	}
	root, err := openRoot(s.dir)
	s.must(err)
	defer root.close()
	all, same, err := readChanges(root, s.dir, map[string]bool{"10.1.2.2": true}, known)
	if err != nil || same || len(all) != 1 || len(known) != maxReservations {
		t.Errorf("%d reservations, the same: %t, error %v", len(all), same, err)
	}
}

// Stores that are no longer configured are not watched.
func TestForgottenStores(t *testing.T) {
	s := newStore(t)
	for n := range 10 {
		s.configure(fmt.Sprint("data", n))
		s.must(os.MkdirAll(filepath.Join(filepath.Dir(s.book.folder()), fmt.Sprint("data", n), "pods"), 0o755))
		s.read()
	}
	if n := len(s.book.watch.folders); n != 2 {
		t.Errorf("%d folders are watched", n)
	}
	info, err := os.ReadFile(fmt.Sprint("/proc/self/fdinfo/", s.book.watch.queue))
	s.must(err)
	if n := strings.Count(string(info), "inotify wd:"); n != 2 {
		t.Errorf("the kernel watches %d folders:\n%s", n, info)
	}
}

// Where no more can be watched, everything is read each time. A process in a user namespace of its own has limits of its own.
func TestUnwatched(t *testing.T) {
	const variable = "DUPIP_BOOKS_LIMIT"
	limit := os.Getenv(variable)
	if limit == "" {
		for _, limit := range []string{"max_inotify_instances", "max_inotify_watches"} {
			c := exec.Command(os.Args[0], "-test.run=^TestUnwatched$", "-test.v")
			c.Env = append(os.Environ(), variable+"="+limit)
			c.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags:  syscall.CLONE_NEWUSER,
				UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
			}
			out, err := c.CombinedOutput()
			if len(out) == 0 && err != nil {
				t.Skipf("no user namespace can be made: %v", err)
			}
			if err != nil || !strings.Contains(string(out), "--- PASS") {
				t.Errorf("%s: %v\n%s", limit, err, out)
			}
		}
		return
	}
	s := newStore(t)
	s.must(os.WriteFile("/proc/sys/user/"+limit, []byte("0"), 0))
	if err := CheckWatch(s.dir); err == nil {
		t.Error("a folder can be watched")
	}
	s.write("10.1.2.2", "aaaa")
	for _, want := range []string{"aaaa", "bbbb", "cccc"} {
		s.write("10.1.2.2", want)
		if got := text(s.read()); got != "2:"+want {
			t.Errorf("%q, want %q", got, want)
		}
		s.byEvents()
		if s.book.Unwatched() == nil {
			t.Error("the folders are watched")
		}
	}
	s.must(os.WriteFile("/proc/sys/user/"+limit, []byte("10"), 0))
	first := s.read()
	if err := s.book.Unwatched(); err != nil {
		t.Errorf("they are not watched: %v", err)
	}
	if err := CheckWatch(s.dir); err != nil {
		t.Error(err)
	}
	if s.read() != first {
		t.Error("everything was read again")
	}
}
