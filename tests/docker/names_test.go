package docker

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// engines are the versions that containers are played with.
var engines = map[string]func(t *lab.T, n *lab.Node) *engine{
	"Docker 26": func(t *lab.T, n *lab.Node) *engine { return startEngine(t, n, "trixie") },
	"Docker 28": func(t *lab.T, n *lab.Node) *engine { return startEngine(t, n, "sid") },
	"Podman 5":  func(t *lab.T, n *lab.Node) *engine { return startPodman(t, n, "trixie") },
}

// withEngines plays with an agent and each engine, which has a network.
func withEngines(t *testing.T, play func(l *lab.T, n *lab.Node, e *engine, a *lab.Agent)) {
	testneeds.Release(t)
	for name, start := range engines {
		t.Run(name, func(t *testing.T) {
			l := lab.NewT(t)
			n := l.Node("")
			e := start(l, n)
			a := l.Agent(n, "--engine-socket", e.socket)
			e.network("shop", netip.MustParsePrefix("10.78.0.0/24"))
			play(l, n, e, a)
		})
	}
}

// Conflicts name containers, say what to do about them, and end when that is done. What engines do by themselves is no conflict.
func TestContainers(t *testing.T) {
	withEngines(t, func(l *lab.T, _ *lab.Node, e *engine, a *lab.Agent) {
		e.network("back", netip.MustParsePrefix("10.79.0.0/24"))
		web, db := e.run("web", "shop"), e.run("db", "shop")
		e.run("sidecar", "container:"+web.id)
		l.Do(db.take(web.ip))
		e.decided(a, web.ip, "container db", "the engine gave it "+db.ip.String()+"), but one gave it to container web. Container web stays")
		e.carryOut(a, web.ip)

		// An address of a network that was connected later was given, too.
		l.Do(e.connect("connect", "back", web.id), e.connect("connect", "back", db.id))
		back := e.inspect("web", "back").ip
		l.Do(db.takeOn("eth1", back))
		e.decided(a, back, "container db", "but one gave it to container web. Container web stays")
		e.carryOut(a, back)
		l.Do(e.connect("disconnect", "back", web.id), e.connect("disconnect", "back", db.id))
		l.Eventually("the end of what was disconnected", func() error {
			if all, err := a.Client.Bindings(t.Context(), back); err != nil || len(all) > 0 {
				return errors.Join(err, fmt.Errorf("it still has %+v", all))
			}
			return nil
		})

		// The name of today.
		l.Do(e.call(http.MethodPost, "/containers/"+web.id+"/rename?name=shop-1", nil, nil), db.take(web.ip))
		e.decided(a, web.ip, "container db", "but one gave it to container shop-1. Container shop-1 stays")
		if out, err := a.CLI(t.Context(), "conflicts", "--pod", "shop-1"); err != nil || !strings.Contains(out, "container shop-1") {
			t.Errorf("what a selection of the container prints: %v\n%s", err, out)
		}
		e.carryOut(a, web.ip)
		e.noneBut(a, 3)
	})
}

// Sixty containers are restarted at once, and the engine under them: no conflict, and each address has the name of its container.
func TestRestarts(t *testing.T) {
	withEngines(t, func(l *lab.T, n *lab.Node, e *engine, a *lab.Agent) {
		var all []container
		for i := range 60 {
			all = append(all, e.run(fmt.Sprint("web", i), "shop"))
		}
		all = e.named(a, all)
		done := make(chan error, len(all))
		for _, c := range all {
			go func() { done <- e.act(c.id, "restart?t=0") }()
		}
		for range all {
			l.Do(<-done)
		}
		all = e.named(a, all)
		if e.restart != nil {
			e.daemon.Kill()
			l.Pod(n, "stranger", lab.PodOptions{}) // the agent looks for its name
			l.Eventually("that the engine is away", func() error {
				out, err := a.CLI(t.Context(), "status", "-o", "json")
				var doc struct {
					Runtime struct{ Engines []struct{ Error string } }
				}
				if err = errors.Join(err, json.Unmarshal([]byte(out), &doc)); err == nil && (len(doc.Runtime.Engines) != 1 || doc.Runtime.Engines[0].Error == "") {
					err = fmt.Errorf("the engines are %+v", doc.Runtime.Engines)
				}
				return err
			})
			e.named(a, all)
			e.daemon = e.restart()
			e.answers()
			e.named(a, all)
		}
		// As Compose takes a project down.
		for _, c := range all {
			l.Do(e.call(http.MethodDelete, "/containers/"+c.id+"?force=true", nil, nil))
		}
		l.Do(e.call(http.MethodDelete, "/networks/shop", nil, nil))
		l.Eventually("the end of all", func() error {
			list, err := a.Client.Bindings(t.Context(), netip.Addr{})
			for _, b := range list {
				if b.Pod != nil {
					err = errors.Join(err, fmt.Errorf("%s is still there", b.Pod.Name))
				}
			}
			return err
		})
		e.noneBut(a, 0)
	})
}

// judged is what a confirmed conflict says.
type judged struct {
	IP        netip.Addr
	State     string
	Judgement struct {
		Text  string
		Steps []struct{ Text, Command string }
	}
	Holders []lab.Binding
}

func (e *engine) conflicts(a *lab.Agent) (open []judged, err error) {
	out, err := a.CLI(e.Context(), "conflicts", "-o", "json")
	var doc struct{ Conflicts []judged }
	return doc.Conflicts, errors.Join(err, json.Unmarshal([]byte(out), &doc))
}

func (e *engine) conflict(a *lab.Agent, ip netip.Addr) (judged, error) {
	all, err := e.conflicts(a)
	for _, c := range all {
		if c.IP == ip && c.State == "confirmed" {
			return c, err
		}
	}
	return judged{}, errors.Join(err, fmt.Errorf("%s is not among the conflicts %+v", ip, all))
}

// decided waits until a conflict says this of a container that has to go.
func (e *engine) decided(a *lab.Agent, ip netip.Addr, goes, text string) {
	e.Helper()
	e.Eventually("the judgement", func() error {
		c, err := e.conflict(a, ip)
		if err != nil {
			return err
		}
		if !strings.Contains(c.Judgement.Text, "No container engine gave "+goes) || !strings.Contains(c.Judgement.Text, text) {
			return fmt.Errorf("it says %+v", c)
		}
		return nil
	})
}

// carryOut does literally what a conflict says first, and waits for its end.
func (e *engine) carryOut(a *lab.Agent, ip netip.Addr) {
	e.Helper()
	c, err := e.conflict(a, ip)
	e.Do(err)
	e.Logf("%s %s\n%+v", ip, c.Judgement.Text, c.Judgement.Steps)
	if len(c.Judgement.Steps) != 2 || !strings.Contains(c.Judgement.Steps[1].Command, " rm -f ") {
		e.Errorf("the steps are %+v, want to take the address from it, and to remove it if it comes back", c.Judgement.Steps)
	}
	if out, err := exec.CommandContext(e.Context(), "sh", "-c", c.Judgement.Steps[0].Command).CombinedOutput(); err != nil {
		e.Fatalf("%s: %v\n%s", c.Judgement.Steps[0].Command, err, out)
	}
	e.Eventually("the end", func() error {
		if c, err := e.conflict(a, ip); err == nil {
			return fmt.Errorf("it is still there: %+v", c)
		}
		return nil
	})
}

func (e *engine) connect(what, network, id string) error {
	return e.call(http.MethodPost, "/networks/"+network+"/"+what, map[string]any{"Container": id}, nil)
}

// named waits until the address of each container has its name, and returns the containers as they are now, if the engine runs.
func (e *engine) named(a *lab.Agent, all []container) []container {
	e.Helper()
	all = slices.Clone(all)
	e.Eventually("the names", func() error {
		list, err := a.Client.Bindings(e.Context(), netip.Addr{})
		names := make(map[netip.Addr]lab.PodRef)
		for _, b := range list {
			if b.Pod != nil {
				names[b.IP] = *b.Pod
			}
		}
		for i, c := range all {
			if e.daemon == nil || e.daemon.Running() {
				all[i] = e.inspect(c.id, "shop")
			}
			if p := names[all[i].ip]; p.UID != c.id || p.Name != c.name {
				err = errors.Join(err, fmt.Errorf("%s has %+v, want %+v", all[i].ip, p, all[i]))
			}
		}
		return err
	})
	return all
}

// noneBut checks that so many conflicts are over, and none is open, not even a suspicion.
func (e *engine) noneBut(a *lab.Agent, over int) {
	e.Helper()
	all, err := a.Client.Conflicts(e.Context(), true)
	e.Do(err)
	resolved := 0
	for _, c := range all {
		if c.State == "resolved" {
			resolved++
		}
	}
	if resolved != over || len(all) != over {
		e.Errorf("the conflicts are %+v, want %d that are over", all, over)
	}
	if strings.Contains(a.Log(), "a pod has renamed") {
		e.Error("the engine's own renaming is taken for a pod's")
	}
}
