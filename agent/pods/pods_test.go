package pods_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
const patience = 20 * time.Second

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// journal is a log that is written and read at the same time.
type journal struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.b.Write(p)
}

func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.b.String(), text)
}

// lostRuntime is what the log says of each connection that was lost.
const lostRuntime = "lost the container runtime"

// resolver is a running Resolver.
type resolver struct {
	*pods.Resolver
	t   testing.TB
	log *journal
}

func start(t testing.TB, opts pods.Options) *resolver {
	t.Helper()
	log := new(journal)
	opts.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p, err := pods.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run returned %v, want nil", err)
			}
		case <-time.After(patience):
			t.Error("Run goes on after its context has ended")
		}
		if t.Failed() {
			t.Logf("status: %+v\nlog:\n%s", p.Status(), log.b.String())
		}
	})
	return &resolver{p, t, log}
}

// eventually polls until ok returns nil.
func (r *resolver) eventually(what string, ok func() error) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := ok()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			r.t.Fatal(fmt.Errorf("%s: %w", what, err))
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// named waits until the netns has this name, and returns how long that took.
func (r *resolver) named(cookie uint64, want detector.Pod) time.Duration {
	r.t.Helper()
	began := time.Now()
	r.eventually("name", func() error {
		got, ok := r.Pod(cookie)
		if !ok || got.Pod != want {
			return fmt.Errorf("netns %d is %+v (%v), want %+v", cookie, got.Pod, ok, want)
		}
		return nil
	})
	return time.Since(began)
}

func (r *resolver) connected(want bool) {
	r.t.Helper()
	r.eventually("connection", func() error {
		if status := r.Status(); status.Connected != want {
			return fmt.Errorf("status %+v, want connected %v", status, want)
		}
		return nil
	})
}

// containerd is a runtime on a node, with the real ptp plugin.
type containerd struct {
	*cri.Runtime
	t *lab.T
}

func newContainerd(t testing.TB, o cri.Options) *containerd {
	t.Helper()
	l := lab.NewT(t)
	o.Plugins = append([]map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24", "fd00:99::/64")}}, o.Plugins...)
	r, err := cri.New(l.Lab, l.Node(""), o)
	l.Do(err)
	return &containerd{r, l}
}

func (c *containerd) run(name string) *cri.Pod {
	c.t.Helper()
	p, err := c.RunPod(c.t.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: "uid-" + name})
	c.t.Do(err)
	return p
}

func name(p *cri.Pod) detector.Pod {
	return detector.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

func cookie(t testing.TB, path string) uint64 {
	t.Helper()
	c, err := cookieAt(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func cookieAt(path string) (cookie uint64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	err = netns.Do(file, func() (err error) {
		cookie, err = netns.Cookie()
		return err
	})
	return cookie, err
}

// Names come for pods that run already and for those that are made later; pods of the
// node's own netns give nobody a name.
func TestNames(t *testing.T) {
	t.Parallel()
	c := newContainerd(t, cri.Options{})
	c.t.Do(c.Start(t.Context()))
	began := time.Now()
	elder := c.run("elder")
	host, err := c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "proxy", UID: "uid-proxy", HostNetwork: true})
	c.t.Do(err)
	r := start(t, pods.Options{Socket: "unix://" + c.Socket, Resync: time.Hour})
	r.named(cookie(t, elder.Netns), name(elder))

	late := c.run("late")
	lateCookie := cookie(t, late.Netns)
	if got, ok := r.Pod(lateCookie); ok {
		t.Fatalf("the name %v came before it was wanted and with lists an hour apart", got.Pod)
	}
	r.Want(lateCookie)
	took := r.named(lateCookie, name(late))
	t.Logf("named %v after it was wanted", took)
	if got, _ := r.Pod(lateCookie); !slices.Equal(got.IPs, late.IPs) || len(got.IPs) != 2 {
		t.Errorf("addresses %v, want %v", got.IPs, late.IPs)
	}
	first, _ := r.Pod(cookie(t, elder.Netns))
	second, _ := r.Pod(lateCookie)
	if want := (detector.Sandbox{ID: late.ID[:13]}); second.Sandbox != want {
		t.Errorf("sandbox %+v, want %+v", second.Sandbox, want)
	}
	if !first.CreatedAt.After(began) || !second.CreatedAt.After(first.CreatedAt) || second.CreatedAt.After(time.Now()) {
		t.Errorf("made at %v and %v, want after %v in that order", first.CreatedAt, second.CreatedAt, began)
	}

	got := make(map[uint64]detector.Pod)
	for range 2 {
		select {
		case change := <-r.Changes():
			got[change.Cookie] = change.Pod
		case <-time.After(patience):
			t.Fatalf("changes: only %v", got)
		}
	}
	if got[lateCookie] != name(late) || got[cookie(t, elder.Netns)] != name(elder) {
		t.Errorf("changes %v, want %v and %v", got, name(elder), name(late))
	}
	own, err := netns.Cookie()
	c.t.Do(err)
	for _, at := range []uint64{own, cookieOf(t, c.Node)} {
		if got, ok := r.Pod(at); ok {
			t.Errorf("the node's netns is pod %v, want none: %v has no netns of its own", got.Pod, host.Name)
		}
	}
	want := pods.Status{
		Socket: c.Socket, Runtime: "containerd", Version: r.Status().Version, Connected: true,
		Sandboxes: 3, Named: 2,
	}
	if got := r.Status(); got != want || got.Version == "" {
		t.Errorf("status %+v, want %+v", got, want)
	}
	if n := r.log.count("connected to the container runtime"); n != 1 {
		t.Errorf("%d log lines about the connection, want 1", n)
	}
}

func cookieOf(t testing.TB, n *lab.Node) uint64 {
	t.Helper()
	c, err := n.Cookie()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The agent sees a netns as soon as its veth is up; the runtime speaks of the pod when the
// whole chain is done. The name comes all the same, without waiting for the next list.
func TestNameWantedDuringADD(t *testing.T) {
	t.Parallel()
	began := t.TempDir() + "/began"
	c := newContainerd(t, cri.Options{
		Plugins: []map[string]any{{"type": "slow"}},
		// It hands on what the plugin before it has answered, and takes its time.
		Scripts: map[string]string{"slow": fmt.Sprintf(`
[ "$CNI_COMMAND" = ADD ] || exit 0
echo "$CNI_NETNS" >%[1]s.new && mv %[1]s.new %[1]s
sleep 0.5
sed 's/.*"prevResult"://; s/,"type":"slow".*//'
`, began)},
	})
	c.t.Do(c.Start(t.Context()))
	r := start(t, pods.Options{Socket: c.Socket, Resync: time.Hour})
	r.connected(true)

	var p *cri.Pod
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, err = c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "slow", UID: "uid-slow"})
	}()
	var path []byte
	r.eventually("the chain", func() error {
		select {
		case <-done:
			return errors.Join(errors.New("RunPod has ended"), err)
		default:
		}
		var err error
		path, err = os.ReadFile(began)
		return err
	})
	wanted := cookie(t, strings.TrimSpace(string(path)))
	r.Want(wanted)
	<-done
	ended := time.Now()
	c.t.Do(err)
	r.named(wanted, name(p))
	t.Logf("named %v after RunPodSandbox has returned", time.Since(ended))
}

// A sandbox that has stopped keeps its name, because its netns may live on; one that was
// removed is forgotten. A sandbox that is made again under the same name has a netns, and
// so a name, of its own.
func TestForgets(t *testing.T) {
	t.Parallel()
	c := newContainerd(t, cri.Options{})
	c.t.Do(c.Start(t.Context()))
	first := c.run("web-0")
	at := cookie(t, first.Netns)
	r := start(t, pods.Options{Socket: c.Socket, Resync: 50 * time.Millisecond})
	r.named(at, name(first))
	c.t.Do(c.StopPod(t.Context(), first))

	second, err := c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "web-0", UID: first.UID, Attempt: 1})
	c.t.Do(err)
	r.named(cookie(t, second.Netns), name(second))
	if got, ok := r.Pod(at); !ok || got.Sandbox != (detector.Sandbox{ID: first.ID[:13], Stopped: true}) {
		t.Errorf("a sandbox that has stopped: %+v, %v, want it with its name", got, ok)
	}
	c.t.Do(c.RemovePod(t.Context(), first))
	r.eventually("forget", func() error {
		if got, ok := r.Pod(at); ok {
			return fmt.Errorf("%v was removed and is still known", got.Pod)
		}
		return nil
	})
	r.named(cookie(t, second.Netns), name(second))
}

// The runtime comes late, is killed, and is restarted: names stay, new ones come when it is
// back, and each step is said once.
func TestRuntimeComesAndGoes(t *testing.T) {
	t.Parallel()
	c := newContainerd(t, cri.Options{})
	r := start(t, pods.Options{Socket: c.Socket, Resync: time.Hour})
	r.eventually("log line", func() error {
		if n := r.log.count("no container runtime"); n != 1 {
			return fmt.Errorf("%d lines say that there is no runtime, want 1", n)
		}
		return nil
	})
	c.t.Do(c.Start(t.Context()))
	first := c.run("first")
	// Whoever has made this netns is a runtime: no need to wait for the next attempt.
	r.Want(cookie(t, first.Netns))
	t.Logf("named %v after the runtime has appeared", r.named(cookie(t, first.Netns), name(first)))

	for i, end := range []func() error{c.Kill9, c.Stop} {
		c.t.Do(end())
		r.connected(false)
		r.named(cookie(t, first.Netns), name(first))
		c.t.Do(c.Start(t.Context()))
		p := c.run(fmt.Sprintf("later%d", i))
		at := cookie(t, p.Netns)
		r.Want(at)
		t.Logf("named %v after the runtime is back", r.named(at, name(p)))
		r.named(cookie(t, first.Netns), name(first))
	}
	// On a busy machine a connection may be lost once more.
	lost := 0
	r.eventually("what was lost is back", func() error {
		lost = r.log.count(lostRuntime)
		if back := r.log.count("runtime is back"); lost < 2 || back != lost {
			return fmt.Errorf("lost %d times and back %d times, want 2", lost, back)
		}
		return nil
	})
	for text, want := range map[string]int{"no container runtime,": 1, "connected to": 1, "level=": 2 + 2*lost} {
		if n := r.log.count(text); n != want {
			t.Errorf("%d log lines with %q, want %d", n, text, want)
		}
	}
}

// Another runtime takes the place of the first: its pods have names, and those of the
// first are forgotten.
func TestRuntimeReplaced(t *testing.T) {
	t.Parallel()
	a, b := newContainerd(t, cri.Options{}), newContainerd(t, cri.Options{})
	a.t.Do(a.Start(t.Context()), b.Start(t.Context()))
	before, after := a.run("before"), b.run("after")
	socket := t.TempDir() + "/cri.sock"
	a.t.Do(os.Symlink(a.Socket, socket))
	r := start(t, pods.Options{Socket: socket, Resync: time.Hour})
	r.named(cookie(t, before.Netns), name(before))

	a.t.Do(os.Symlink(b.Socket, socket+".new"), os.Rename(socket+".new", socket), a.Kill9())
	r.named(cookie(t, after.Netns), name(after))
	if got, ok := r.Pod(cookie(t, before.Netns)); ok {
		t.Errorf("%v is not known to the new runtime and still has a name", got.Pod)
	}
}
