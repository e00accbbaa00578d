package pods_test

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// A runtime accepts connections and never answers, stops answering, or speaks another protocol. Names
// come when it works again.
func TestRuntimeHangs(t *testing.T) {
	t.Parallel()
	ns := sandboxes(t, 2)
	a := &fakeSandbox{id: "a", namespace: "shop", name: "a", path: ns[0]}
	b := &fakeSandbox{id: "b", namespace: "shop", name: "b", path: ns[1]}
	f := newFake(t, a)
	f.set("Version")
	r := start(t, pods.Options{Socket: f.socket, Resync: 50 * time.Millisecond})
	r.eventually("error", func() error {
		if s := r.Status(); s.Connected || !strings.Contains(s.Error, "DeadlineExceeded") {
			return fmt.Errorf("status %+v, want not connected for want of an answer", s)
		}
		return nil
	})
	f.set()
	r.named(cookie(t, ns[0]), detector.Pod{Namespace: "shop", Name: "a"})
	f.mu.Lock()
	f.sandboxes = append(f.sandboxes, b)
	f.mu.Unlock()
	f.set("List")
	r.connected(false)
	f.set()
	r.connected(true)
	r.named(cookie(t, ns[1]), detector.Pod{Namespace: "shop", Name: "b"})
	r.named(cookie(t, ns[0]), detector.Pod{Namespace: "shop", Name: "a"})
	if s := r.Status(); s.Name != "fake?[31m" || len(s.Version) > 64 {
		t.Errorf("the runtime's texts are shown as %q, %q", s.Name, s.Version)
	}
}

// Sandboxes for which the runtime hangs delay neither others nor the list.
func TestSandboxHangs(t *testing.T) {
	t.Parallel()
	ns := sandboxes(t, 2)
	f := newFake(t, &fakeSandbox{id: "a", name: "a", path: ns[0]})
	var stuck []string
	for i := range 20 {
		id := fmt.Sprint("stuck", i)
		stuck = append(stuck, id)
		// They are younger, and so read first.
		f.sandboxes = append(f.sandboxes, &fakeSandbox{id: id, name: id, created: 1})
	}
	f.set(stuck...)
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.eventually("error", func() error {
		if s := r.Status(); !s.Connected || !strings.Contains(s.Error, "DeadlineExceeded") {
			return fmt.Errorf("status %+v, want connected and a status that did not come", s)
		}
		return nil
	})
	f.mu.Lock()
	f.sandboxes = append(f.sandboxes, &fakeSandbox{id: "late", name: "late", created: 2, path: ns[1]})
	f.mu.Unlock()
	at, asked := cookie(t, ns[1]), f.asked.Load()
	r.Request(at)
	took := r.named(at, detector.Pod{Name: "late"})
	n := f.asked.Load() - asked
	t.Logf("named %v after it was wanted, when %d statuses had been asked for, with %d sandboxes stuck", took, n, len(stuck))
	// One at a time is waited for, a second; not all that are due.
	if n > 8 {
		t.Errorf("%d statuses were asked for before, want some", n)
	}
	if !r.Status().Connected {
		t.Error("stuck sandboxes have ended the connection")
	}
}

// Invalid data of a runtime.
func TestHostileRuntime(t *testing.T) {
	t.Parallel()
	path := make(map[string]string)
	at := make(map[string]uint64)
	for _, name := range []string{"good", "escape", "long", "anonymous", "uid", "twice"} {
		path[name] = sandboxes(t, 1)[0]
		at[name] = cookie(t, path[name])
	}
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	// A process in our netns; our own threads may be elsewhere at the moment.
	sleep := exec.Command("sleep", "60")
	if err := sleep.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
	})
	own := sleep.Process.Pid
	f := newFake(t,
		&fakeSandbox{id: "good", namespace: "shop", name: "good", uid: "u", path: path["good"], ips: append([]string{
			"10.0.0.1", "::ffff:10.0.0.2", "fd00::1", "fe80::1%eth0", "nonsense", "",
		}, strings.Split(strings.Repeat("fd00::2 ", 1000), " ")...)},
		&fakeSandbox{id: "escape", namespace: "shop", name: "\x1b]0;owned\a", path: path["escape"]},
		&fakeSandbox{id: "long", namespace: "shop", name: strings.Repeat("x", 254), path: path["long"]},
		&fakeSandbox{id: "anonymous", namespace: "shop", path: path["anonymous"]},
		&fakeSandbox{id: "uid", namespace: "shop", name: "uid", uid: "a\nb", path: path["uid"]},
		// The younger one has it.
		&fakeSandbox{id: "twice", namespace: "shop", name: "elder", path: path["twice"], created: 1},
		&fakeSandbox{id: "twice2", namespace: "shop", name: "younger", path: path["twice"], created: 2},
		&fakeSandbox{id: "twice3", namespace: "shop", name: "stopped", path: path["twice"], created: 3, stopped: true},
		&fakeSandbox{id: "fifo", namespace: "shop", name: "fifo", path: fifo},
		&fakeSandbox{id: "file", namespace: "shop", name: "file", path: "/etc/passwd"},
		&fakeSandbox{id: "relative", namespace: "shop", name: "relative", path: "run/netns/x"},
		&fakeSandbox{id: "mount", namespace: "shop", name: "mount", path: fmt.Sprintf("/proc/%d/ns/mnt", own)},
		&fakeSandbox{id: "own", namespace: "shop", name: "own", path: fmt.Sprintf("/proc/%d/ns/net", own)},
		&fakeSandbox{id: "ownpid", namespace: "shop", name: "ownpid", pid: own},
		&fakeSandbox{id: "stopped", namespace: "shop", name: "stale", pid: own, stopped: true},
		&fakeSandbox{id: "json", namespace: "shop", name: "json", info: strings.Repeat("[", 20_000)},
		&fakeSandbox{id: "large", namespace: "shop", name: "large", info: strings.Repeat("x", 5<<20)},
		&fakeSandbox{id: strings.Repeat("i", 10_000), namespace: "shop", name: "id"},
		&fakeSandbox{id: "", namespace: "shop", name: "empty"},
		&fakeSandbox{id: "good", namespace: "shop", name: "double", path: path["good"]},
	)
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.named(at["good"], detector.Pod{Namespace: "shop", Name: "good", UID: "u"})
	r.named(at["uid"], detector.Pod{Namespace: "shop", Name: "uid"})
	r.named(at["twice"], detector.Pod{Namespace: "shop", Name: "younger"})
	r.eventually("questions", func() error {
		// Everything but those with an impossible id, and the doubled one once.
		if n := f.asked.Load(); n < 17 {
			return fmt.Errorf("%d sandboxes were asked for, want 17", n)
		}
		return nil
	})
	good, _ := r.Pod(at["good"])
	ips := good.IPs
	if len(ips) < 3 || len(ips) > 16 || ips[1] != netip.MustParseAddr("10.0.0.2") || ips[2] != netip.MustParseAddr("fd00::1") {
		t.Errorf("addresses %v, want those that are some, at most 16", ips)
	}
	ownCookie, err := netns.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	for what, c := range map[string]uint64{
		"escape": at["escape"], "long": at["long"], "anonymous": at["anonymous"], "own netns": ownCookie,
	} {
		if got, ok := r.Pod(c); ok {
			t.Errorf("%s has the name %q, want none", what, got.Pod)
		}
	}
	if s := r.Status(); s.Named != 3 || !s.Connected {
		t.Errorf("status %+v, want connected and 3 names", s)
	}
}

// A pod whose path leads nowhere from here, as where the runtime's mounts are not ours, is
// found by its process; one that has stopped is not, because the process may be another's.
func TestProcessInsteadOfPath(t *testing.T) {
	t.Parallel()
	runs, stopped := ownnetns.NewPod(t), ownnetns.NewPod(t)
	f := newFake(t,
		&fakeSandbox{id: "stopped", name: "stopped", path: "/nowhere/netns", pid: stopped.Pid, stopped: true, created: 1},
		&fakeSandbox{id: "runs", name: "runs", path: "/nowhere/netns", pid: runs.Pid},
	)
	r := start(t, pods.Options{Socket: f.socket})
	r.named(cookie(t, runs.Path()), detector.Pod{Name: "runs"})
	r.eventually("question", func() error {
		if n := f.asked.Load(); n < 2 {
			return fmt.Errorf("%d sandboxes were asked for, want 2", n)
		}
		return nil
	})
	if s := r.Status(); s.Error != "" {
		t.Errorf("status %+v, want no error: the one has stopped", s)
	}
	if got, ok := r.Pod(cookie(t, stopped.Path())); ok {
		t.Errorf("an unknown process is named %v", got.Pod)
	}
}

// Ten thousand sandboxes, most of them remains of a pod in a crash loop: what runs has its
// name first, and no more is remembered or asked than the limits allow.
func TestManySandboxes(t *testing.T) {
	t.Parallel()
	ns := sandboxes(t, 2)
	f := newFake(t)
	for i := range 10_000 {
		f.sandboxes = append(f.sandboxes, &fakeSandbox{id: fmt.Sprint(i), name: "crash", created: int64(i), stopped: true, path: "/nowhere/netns"})
	}
	f.sandboxes = append(f.sandboxes, &fakeSandbox{id: "runs", name: "runs", path: ns[0]})
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.named(cookie(t, ns[0]), detector.Pod{Name: "runs"})
	f.mu.Lock()
	f.sandboxes = append(f.sandboxes, &fakeSandbox{id: "late", name: "late", path: ns[1]})
	f.mu.Unlock()
	r.Request(cookie(t, ns[1]))
	t.Logf("named %v after it was wanted", r.named(cookie(t, ns[1]), detector.Pod{Name: "late"}))
	if asked := f.asked.Load(); asked > 2000 {
		t.Errorf("%d statuses were asked for in a few seconds, want a limit", asked)
	}
	if s := r.Status(); s.Sandboxes < 10_000 || s.Named != 2 {
		t.Errorf("status %+v, want all sandboxes and 2 names", s)
	}
}

// A netns of no pod, such as a container's of another engine, leads to a few lists.
func TestForeignNetns(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.connected(true)
	r.Request(1 << 40)
	// One for the connection, and one after each pause.
	const all = 1 + 7
	r.eventually("lists", func() error {
		if n := f.lists.Load(); n < all {
			return fmt.Errorf("%d lists, want %d", n, all)
		}
		return nil
	})
	r.Request(1 << 40)
	if s := r.Status(); s.Pending != 1 {
		t.Errorf("%d netns are wanted, want 1", s.Pending)
	}
	// Each new connection begins with a list.
	if n, lost := f.lists.Load(), int64(r.log.count(lostRuntime)); n > all+lost {
		t.Errorf("%d lists, %d connections lost, want %d: it was asked for already", n, lost, all)
	}
}

// Many new namespaces lead to a limited number of calls, and known sandboxes to none.
func TestCalls(t *testing.T) {
	t.Parallel()
	ns := sandboxes(t, 1)
	f := newFake(t, &fakeSandbox{id: "a", name: "a", path: ns[0]})
	r := start(t, pods.Options{Socket: f.socket, Resync: time.Hour})
	r.named(cookie(t, ns[0]), detector.Pod{Name: "a"})
	asked := f.asked.Load() // once, where the answer came in time
	began, wished := time.Now(), uint64(0)
	for tick := time.NewTicker(100 * time.Microsecond); time.Since(began) < 3*time.Second; wished++ {
		<-tick.C
		r.Request(1<<40 + wished)
	}
	// 10 at once and 2 a second; without the limit it would be 20 a second.
	most := 12 + 2*int64(time.Since(began).Seconds())
	if n := f.lists.Load(); n < 10 || n > most {
		t.Errorf("%d lists for %d netns in %v, want 10 to %d", n, wished, time.Since(began), most)
	}
	if n := f.asked.Load(); n != asked {
		t.Errorf("the one sandbox was asked for %d times, %d of them before it was known", n, asked)
	}
	if n := r.Status().Pending; n > 4096 {
		t.Errorf("%d wishes are remembered, want at most 4096", n)
	}
}

// Another program listens at the socket.
func TestGarbage(t *testing.T) {
	t.Parallel()
	ns := sandboxes(t, 1)
	f := &fake{socket: t.TempDir() + "/cri.sock", sandboxes: []*fakeSandbox{{id: "a", name: "a", path: ns[0]}}}
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = io.CopyN(conn, zeros{}, 1<<20)
			conn.Close()
		}
	}()
	r := start(t, pods.Options{Socket: f.socket, MaxBackoff: 200 * time.Millisecond})
	r.eventually("error", func() error {
		if s := r.Status(); s.Connected || s.Error == "" {
			return fmt.Errorf("status %+v, want an error", s)
		}
		return nil
	})
	listener.Close()
	f.serve(t)
	r.named(cookie(t, ns[0]), detector.Pod{Name: "a"})
	if n := r.log.count("level="); n != 2 {
		t.Errorf("%d log lines, want 2: that it does not answer, and that it does", n)
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
