package audit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
)

// lab is an Audit that runs on a store of its own, with a pod that has 10.1.2.5 and its reservation.
type lab struct {
	*Audit
	t                    *testing.T
	conf, config, folder string
	mu                   sync.Mutex // of the next two
	node                 Node
	nodeErr              error
	listed               time.Time
	relists              int
	log                  bytes.Buffer
	readings             atomic.Int32
}

// begin starts it. Call it in a bubble of synctest.
func begin(t *testing.T) *lab {
	t.Helper()
	dir := t.TempDir()
	l := &lab{t: t, conf: filepath.Join(dir, "conf"), folder: filepath.Join(dir, "data", "pods"), listed: time.Now()}
	l.config = filepath.Join(l.conf, "10-pods.conflist")
	l.must(os.MkdirAll(l.folder, 0o755))
	l.must(os.MkdirAll(l.conf, 0o755))
	l.configure()
	l.reserve()
	r := newReading(time.Now(), live("10.1.2.5", web))
	l.node = r.Node
	l.Audit = New(Options{
		Log: slog.New(slog.NewTextHandler(&l.log, nil)), Books: books.NewIPAM(func() string { return l.conf }), Grace: time.Hour,
		Sandboxes: func() pods.Sandboxes {
			return pods.Sandboxes{Ready: r.sandboxes.Ready, Listed: l.listed, Complete: true}
		},
		Relist: func() {
			l.relists++
			l.listed = time.Now()
		},
		Node: func(context.Context) (Node, error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			return l.node, l.nodeErr
		},
		Done: func(context.Context) { l.readings.Add(1) },
	})
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	l.expect("at the start", "")
	return l
}

// set changes what Node returns.
func (l *lab) set(n Node, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.node, l.nodeErr = n, err
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) configure() {
	l.must(os.WriteFile(l.config, fmt.Appendf(nil,
		`{"name":"pods","plugins":[{"type":"ptp","ipam":{"type":"host-local","subnet":"10.1.2.0/24","dataDir":%q}}]}`, filepath.Dir(l.folder)), 0o600))
}

func (l *lab) file() string { return filepath.Join(l.folder, "10.1.2.5") }

func (l *lab) reserve() { l.must(os.WriteFile(l.file(), []byte(web+"\r\neth0"), 0o600)) }

// wait waits until the books were read so many times more. The clock is that of synctest.
func (l *lab) wait(readings int) {
	for until := l.readings.Load() + int32(readings); l.readings.Load() < until; synctest.Wait() {
		time.Sleep(every / 10)
	}
}

// within returns how often they are read in some time.
func (l *lab) within(d time.Duration) int32 {
	before := l.readings.Load()
	time.Sleep(d)
	synctest.Wait()
	return l.readings.Load() - before
}

func (l *lab) expect(when, want string) {
	l.t.Helper()
	synctest.Wait()
	last := l.Last()
	if age := time.Since(last.At); age > atRest {
		l.t.Errorf("%s: the books were read %s ago", when, age)
	}
	if got := text(last.Findings); got != want {
		l.t.Errorf("%s: %q, want %q", when, got, want)
	}
}

// A reservation that is removed is found within 5 s, and logged once.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const want = "unreserved 10.1.2.5 pods a64"
		l := begin(t)
		l.wait(5)
		if n := l.within(time.Minute); n != 20 {
			t.Errorf("%d readings in a minute in which nothing changes", n)
		}
		l.wait(1) // so that the next one is in 3 s
		l.must(os.Remove(l.file()))
		removed := time.Now()
		l.wait(1)
		l.expect("read once", "")
		l.wait(1)
		l.expect("read twice", want)
		if took := time.Since(removed); took > 5*time.Second {
			t.Errorf("it took %s", took)
		}
		if n := l.within(time.Minute); n > 40 {
			t.Errorf("%d readings in a minute with one finding", n)
		}
		l.expect("later", want)
		if n := strings.Count(l.log.String(), "10.1.2.5"); n != 1 || !strings.Contains(l.log.String(), "level=WARN") || l.relists < 2 || l.relists > 14 {
			t.Errorf("%d lines, %d lists:\n%s", n, l.relists, l.log.String())
		}
		l.set(l.node, errors.New("it is stopping"))
		l.wait(1)
		l.set(l.node, nil)
		l.wait(1)
		l.expect("two readings must agree again", "")
		l.wait(1)
		l.expect("they do", want)
		l.reserve()
		l.wait(1)
		l.expect("repaired", "")
		if last := l.Last(); !strings.Contains(l.log.String(), "findings of the audit ended") || len(last.Books) != 1 || last.Err != nil || !l.Enabled() {
			t.Errorf("%+v\n%s", last, l.log.String())
		}
	})
}

// Where there are no books it is seldom looked whether there are some now.
func TestNoBooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t)
		l.must(os.Remove(l.config))
		l.wait(3)
		if n := l.within(time.Minute); n != 20 || len(l.Last().Books) != 0 {
			t.Errorf("%d readings in a minute, of %v", n, l.Last().Books)
		}
		l.configure()
		l.wait(1)
		if len(l.Last().Books) != 1 {
			t.Errorf("%+v", l.Last())
		}
	})
}

// Who waits for a reading has it within a second, and not after a rest, and once only.
func TestSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t)
		l.wait(5)
		time.Sleep(every + every/2)
		l.Soon()
		if n := l.within(0); n != 1 {
			t.Errorf("%d readings, half a second after it may be read again", n)
		}
		l.Soon()
		l.Soon()
		if n := l.within(every); n != 1 {
			t.Errorf("%d readings in the next second", n)
		}
	})
}

// Whatever is wrong with the books costs what they would say: nothing is found, and nothing hangs.
func TestRunTrouble(t *testing.T) {
	for name, test := range map[string]struct {
		trouble func(l *lab)
		want    string // what is found
		fails   bool   // the store cannot be read
	}{
		"all files are removed": {func(l *lab) { l.must(os.Remove(l.file())) }, "unreserved 10.1.2.5 pods a64", false},
		"an empty file":         {func(l *lab) { l.must(os.WriteFile(l.file(), nil, 0o600)) }, "", false},
		"a link": {func(l *lab) {
			l.must(os.Remove(l.file()))
			l.must(os.Symlink("/etc/passwd", l.file()))
		}, "", true},
		"a pipe": {func(l *lab) {
			l.must(os.Remove(l.file()))
			l.must(unix.Mkfifo(l.file(), 0o600))
		}, "", true},
		"another pipe": {func(l *lab) { l.must(unix.Mkfifo(filepath.Join(l.folder, "10.1.2.9"), 0o600)) }, "", true},
		"a folder": {func(l *lab) {
			l.must(os.Remove(l.file()))
			l.must(os.Mkdir(l.file(), 0o700))
		}, "", true},
		"the store is a file": {func(l *lab) {
			l.must(os.RemoveAll(l.folder))
			l.must(os.WriteFile(l.folder, nil, 0o600))
		}, "", true},
		"the store is a pipe": {func(l *lab) {
			l.must(os.RemoveAll(l.folder))
			l.must(unix.Mkfifo(l.folder, 0o600))
		}, "", true},
		"the store is a link": {func(l *lab) {
			l.must(os.RemoveAll(l.folder))
			l.must(os.Symlink(l.conf, l.folder))
		}, "", true},
		"100,000 files": {func(l *lab) {
			l.must(os.Remove(l.file()))
			for n := range 100_000 {
				l.must(unix.Mknod(filepath.Join(l.folder, fmt.Sprint("10.1.", n)), unix.S_IFREG|0o600, 0))
			}
		}, "", true},
		"another book is hostile": {func(l *lab) {
			l.must(os.Remove(l.file()))
			l.must(unix.Mkfifo(filepath.Join(l.conf, "00-pipe.conf"), 0o600))
			l.must(os.WriteFile(filepath.Join(l.conf, "01-broken.conf"), []byte(`{"name":`), 0o600))
		}, "unreserved 10.1.2.5 pods a64", false},
		"no configuration": {func(l *lab) {
			l.must(os.Remove(l.file()))
			l.must(os.Remove(l.config))
		}, "", false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := begin(t)
				test.trouble(l)
				for range 3 {
					l.wait(1)
					for _, b := range l.Last().Books {
						if (b.Err != nil) != test.fails {
							t.Errorf("error %v", b.Err)
						}
					}
				}
				l.expect("three readings later", test.want)
				if last := l.Last(); (last.Err != nil) != (name == "another book is hostile") || (len(last.Books) == 0) != (name == "no configuration") {
					t.Errorf("%d books, %v", len(last.Books), last.Err)
				}
			})
		})
	}
}

// The folder of a network is removed.
func TestRunWiped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := begin(t)
		l.must(os.RemoveAll(l.folder))
		l.wait(2)
		l.expect("the store was wiped", "unreserved 10.1.2.5 pods a64")
	})
}
