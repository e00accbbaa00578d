// Package pods tests agent/pods with a real containerd and real CNI plugins.
package pods

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// resolver is a running Resolver.
type resolver struct {
	*pods.Resolver
	t   *lab.T
	log *lab.Buffer
}

func start(t *lab.T, opts pods.Options) *resolver {
	t.Helper()
	log := new(lab.Buffer)
	if opts.Cache == "" {
		opts.Cache = t.TempDir() // that of the machine has the pods of other tests, too
	}
	opts.EngineSocket = "none" // nor that of its engines
	opts.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelInfo}))
	p, err := pods.New(opts)
	t.Do(err)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run returned %v, want nil", err)
		}
		if t.Failed() {
			t.Logf("status: %+v\nlog:\n%s", p.Status(), log)
		}
	})
	return &resolver{p, t, log}
}

// count is how often the log has this text.
func (r *resolver) count(text string) int { return strings.Count(r.log.String(), text) }

// named waits until the netns has this name, and returns how long that took.
func (r *resolver) named(cookie uint64, want detector.Pod) time.Duration {
	r.t.Helper()
	began := time.Now()
	r.t.Eventually("name", func() error {
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
	r.t.Eventually("connection", func() error {
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

func newContainerd(l *lab.T, o cri.Options) *containerd {
	l.Helper()
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

// cookie is that of the netns at a path.
func cookie(t *lab.T, path string) (cookie uint64) {
	t.Helper()
	file, err := os.Open(path)
	t.Do(err)
	defer file.Close()
	t.Do(netns.Do(file, func() (err error) {
		cookie, err = netns.Cookie()
		return err
	}))
	return cookie
}

// Running pods and later ones get names; pods in the node's own netns give no other pod a name.
func TestNames(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	c := newContainerd(l, cri.Options{})
	l.Do(c.Start(t.Context()))
	began := time.Now()
	older := c.run("older")
	host, err := c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "proxy", UID: "uid-proxy", HostNetwork: true})
	l.Do(err)
	r := start(l, pods.Options{Socket: "unix://" + c.Socket, Resync: time.Hour})
	r.named(cookie(l, older.Netns), name(older))
	if got := r.ConfDir(); got != c.ConfDir() {
		t.Errorf("the folder with CNI's networks is %s, want %s, as the runtime says", got, c.ConfDir())
	}

	late := c.run("late")
	lateCookie := cookie(l, late.Netns)
	if got, ok := r.Pod(lateCookie); ok {
		t.Fatalf("the name %v came before it was wanted and with lists an hour apart", got.Pod)
	}
	r.Request(lateCookie)
	took := r.named(lateCookie, name(late))
	t.Logf("named %v after it was wanted", took)
	if got, _ := r.Pod(lateCookie); !slices.Equal(got.IPs, late.IPs) || len(got.IPs) != 2 {
		t.Errorf("addresses %v, want %v", got.IPs, late.IPs)
	}
	first, _ := r.Pod(cookie(l, older.Netns))
	second, _ := r.Pod(lateCookie)
	if want := (detector.Sandbox{ID: late.ID[:13]}); second.Sandbox != want {
		t.Errorf("sandbox %+v, want %+v", second.Sandbox, want)
	}
	if !first.CreatedAt.After(began) || !second.CreatedAt.After(first.CreatedAt) || second.CreatedAt.After(time.Now()) {
		t.Errorf("made at %v and %v, want after %v in that order", first.CreatedAt, second.CreatedAt, began)
	}

	got := make(map[uint64]detector.Pod)
	for len(got) < 2 {
		select {
		case <-r.Changed():
			for cookie, change := range r.Changes(1) {
				got[cookie] = change.Pod
			}
		case <-time.After(lab.Patience(20 * time.Second)):
			t.Fatalf("changes: only %v", got)
		}
	}
	if got[lateCookie] != name(late) || got[cookie(l, older.Netns)] != name(older) {
		t.Errorf("changes %v, want %v and %v", got, name(older), name(late))
	}
	own, err := netns.Cookie()
	l.Do(err)
	nodes, err := c.Node.Cookie()
	l.Do(err)
	for _, at := range []uint64{own, nodes} {
		if got, ok := r.Pod(at); ok {
			t.Errorf("the node's netns is pod %v, want none: %v has no netns of its own", got.Pod, host.Name)
		}
	}
	want := pods.Status{Named: 2, RuntimeStatus: document.RuntimeStatus{
		Socket: c.Socket, Name: "containerd", Version: r.Status().Version, Connected: true, Sandboxes: 3,
	}}
	if got := r.Status(); !reflect.DeepEqual(got, want) || got.Version == "" {
		t.Errorf("status %+v, want %+v", got, want)
	}
	if n := r.count("connected to the container runtime"); n != 1 {
		t.Errorf("%d log lines about the connection, want 1", n)
	}
}

// The agent sees a netns as soon as its veth is up; the runtime speaks of the pod when the
// whole chain is done. The name comes all the same, without waiting for the next list.
func TestNameRequestedDuringADD(t *testing.T) {
	t.Parallel()
	began := t.TempDir() + "/began"
	l := lab.NewT(t)
	c := newContainerd(l, cri.Options{
		Plugins: []map[string]any{{"type": "slow"}},
		// It passes on the previous plugin's result after a pause.
		Scripts: map[string]string{"slow": fmt.Sprintf(`
[ "$CNI_COMMAND" = ADD ] || exit 0
echo "$CNI_NETNS" >%[1]s.new && mv %[1]s.new %[1]s
sleep 0.5
sed 's/.*"prevResult"://; s/,"type":"slow".*//'
`, began)},
	})
	l.Do(c.Start(t.Context()))
	r := start(l, pods.Options{Socket: c.Socket, Resync: time.Hour})
	r.connected(true)

	var p *cri.Pod
	var err error
	done := make(chan struct{})
	go func() {
		defer close(done)
		p, err = c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "slow", UID: "uid-slow"})
	}()
	var path []byte
	l.Eventually("the chain", func() error {
		select {
		case <-done:
			return errors.Join(errors.New("RunPod has ended"), err)
		default:
		}
		var err error
		path, err = os.ReadFile(began)
		return err
	})
	wanted := cookie(l, strings.TrimSpace(string(path)))
	r.Request(wanted)
	<-done
	ended := time.Now()
	l.Do(err)
	r.named(wanted, name(p))
	t.Logf("named %v after RunPodSandbox has returned", time.Since(ended))
}

// A sandbox that has stopped keeps its name, because its netns may live on; one that was
// removed is forgotten. A sandbox that is made again under the same name has a netns, and
// so a name, of its own.
func TestForgets(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	c := newContainerd(l, cri.Options{})
	l.Do(c.Start(t.Context()))
	first := c.run("web-0")
	at := cookie(l, first.Netns)
	r := start(l, pods.Options{Socket: c.Socket, Resync: 50 * time.Millisecond})
	r.named(at, name(first))
	l.Do(c.StopPod(t.Context(), first))

	second, err := c.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "web-0", UID: first.UID, Attempt: 1})
	l.Do(err)
	r.named(cookie(l, second.Netns), name(second))
	if got, ok := r.Pod(at); !ok || got.Sandbox != (detector.Sandbox{ID: first.ID[:13], Stopped: true}) {
		t.Errorf("a sandbox that has stopped: %+v, %v, want it with its name", got, ok)
	}
	l.Do(c.RemovePod(t.Context(), first))
	l.Eventually("forget", func() error {
		if got, ok := r.Pod(at); ok {
			return fmt.Errorf("%v was removed and is still known", got.Pod)
		}
		return nil
	})
	r.named(cookie(l, second.Netns), name(second))
}

// The runtime starts late, is killed, and is restarted: names stay, new ones come when it is back,
// and each step is logged once.
func TestRuntimeComesAndGoes(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	c := newContainerd(l, cri.Options{})
	r := start(l, pods.Options{Socket: c.Socket, Resync: time.Hour})
	l.Eventually("log line", func() error {
		if n := r.count("no container runtime"); n != 1 {
			return fmt.Errorf("%d lines report that there is no runtime, want 1", n)
		}
		return nil
	})
	l.Do(c.Start(t.Context()))
	first := c.run("first")
	// Whoever has made this netns is a runtime: no need to wait for the next attempt.
	r.Request(cookie(l, first.Netns))
	t.Logf("named %v after the runtime has appeared", r.named(cookie(l, first.Netns), name(first)))

	for i, end := range []func() error{c.Kill9, c.Stop} {
		l.Do(end())
		r.connected(false)
		r.named(cookie(l, first.Netns), name(first))
		l.Do(c.Start(t.Context()))
		p := c.run(fmt.Sprintf("later%d", i))
		at := cookie(l, p.Netns)
		r.Request(at)
		t.Logf("named %v after the runtime is back", r.named(at, name(p)))
		r.named(cookie(l, first.Netns), name(first))
	}
	// On a busy machine a connection may be lost once more.
	lost := 0
	l.Eventually("what was lost is back", func() error {
		lost = r.count("lost the container runtime")
		if back := r.count("runtime is back"); lost < 2 || back != lost {
			return fmt.Errorf("lost %d times and back %d times, want 2", lost, back)
		}
		return nil
	})
	for text, want := range map[string]int{"no container runtime,": 1, "connected to": 1, "level=": 2 + 2*lost} {
		if n := r.count(text); n != want {
			t.Errorf("%d log lines with %q, want %d", n, text, want)
		}
	}
}

// Another runtime takes the place of the first: its pods have names, and those of the
// first are forgotten.
func TestRuntimeReplaced(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	a, b := newContainerd(l, cri.Options{}), newContainerd(l, cri.Options{})
	l.Do(a.Start(t.Context()), b.Start(t.Context()))
	before, after := a.run("before"), b.run("after")
	socket := t.TempDir() + "/cri.sock"
	l.Do(os.Symlink(a.Socket, socket))
	r := start(l, pods.Options{Socket: socket, Resync: time.Hour})
	r.named(cookie(l, before.Netns), name(before))

	l.Do(os.Symlink(b.Socket, socket+".new"), os.Rename(socket+".new", socket), a.Kill9())
	r.named(cookie(l, after.Netns), name(after))
	if got, ok := r.Pod(cookie(l, before.Netns)); ok {
		t.Errorf("%v is not known to the new runtime and still has a name", got.Pod)
	}
}
