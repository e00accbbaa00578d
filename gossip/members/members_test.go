package members

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// node is one agent's membership under test, and what its handler heard.
type node struct {
	*Members
	t    *testing.T
	log  *output
	stop func() // and waits

	mu      sync.Mutex
	packets []string
	news    []string // "+n1", "-n1" died, "=n1" left
}

func (n *node) Packet(payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.packets = append(n.packets, string(payload))
}
func (n *node) Joined(m Member)  { n.hear("+" + m.Name) }
func (n *node) Updated(m Member) { n.hear("~" + m.Name) }
func (n *node) Left(m Member, gracefully bool) {
	if gracefully {
		n.hear("=" + m.Name)
	} else {
		n.hear("-" + m.Name)
	}
}

func (n *node) hear(news string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.news = append(n.news, news)
}

func (n *node) heard(news string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.news, news)
}

func (n *node) got(packet string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.packets, packet)
}

// output is a log that tests read.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func logTo(o *output) *slog.Logger { return slog.New(slog.NewTextHandler(o, nil)) }

// open starts a node on 127.0.0.number, at any port, unless change says something else.
func open(t *testing.T, number int, change ...func(*Options)) *node {
	t.Helper()
	n := prepare(t, number, change...)
	n.run()
	return n
}

// prepare opens it, and does not run it yet.
func prepare(t *testing.T, number int, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, log: &output{}}
	opts := Options{
		Log:  logTo(n.log),
		Node: fmt.Sprintf("n%d", number), Boot: fmt.Sprintf("boot%d", number), Epoch: 1, Version: "v1",
		Bind: fmt.Sprintf("127.0.0.%d", number), Handler: n, Label: "test",
	}
	for _, c := range change {
		c(&opts)
	}
	m, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	n.Members = m
	return n
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(n.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Run(ctx); err != nil {
			n.t.Error(err)
		}
	}()
	n.stop = func() { cancel(); <-done }
	n.t.Cleanup(n.stop)
}

func joining(others ...*node) func(*Options) {
	return func(o *Options) {
		for _, n := range others {
			o.Join = append(o.Join, n.Self().Address)
		}
	}
}

// kill takes the network away, as if the process were killed.
func (n *node) kill() { n.transport.NodeAwareTransport.(*network).Shutdown() }

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !condition() {
		if time.Now().After(deadline) {
			t.Fatalf("not in time: %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// states are the states of all members, "n1:alive n2:left".
func (n *node) states() string {
	var all []string
	for _, m := range n.List() {
		all = append(all, m.Name+":"+string(m.State))
	}
	return strings.Join(all, " ")
}

func TestClusterOfFive(t *testing.T) {
	first := open(t, 1)
	nodes := []*node{first}
	for i := 2; i <= 5; i++ {
		nodes = append(nodes, open(t, i, joining(first)))
	}
	const all = "n1:alive n2:alive n3:alive n4:alive n5:alive"
	for _, n := range nodes {
		eventually(t, "all know all", func() bool { return n.states() == all })
	}
	for _, n := range nodes {
		for i := 1; i <= 5; i++ {
			name := fmt.Sprintf("n%d", i)
			if self := name == n.Self().Name; !self {
				eventually(t, "the handler hears of "+name, func() bool { return n.heard("+" + name) })
			} else if n.heard("+" + name) {
				t.Errorf("the handler of %s was told of itself", name)
			}
		}
	}

	t.Run("packets", func(t *testing.T) {
		packet := strings.Repeat("p", wire.MaxPacket)
		if err := nodes[1].Send(nodes[4].Self().ID, []byte(packet)); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the packet", func() bool { return nodes[4].got(packet) })
		if nodes[3].got(packet) {
			t.Error("another member has the packet")
		}
		if err := nodes[1].Send(12345, []byte("x")); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("to nobody: %v", err)
		}
		if err := nodes[1].Send(nodes[1].Self().ID, []byte("x")); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("to itself: %v", err)
		}
		if err := nodes[1].Send(nodes[4].Self().ID, make([]byte, wire.MaxPacket+1)); err == nil {
			t.Error("a packet that is too large was sent")
		}
	})
	t.Run("broadcast", func(t *testing.T) {
		payload := strings.Repeat("b", wire.MaxPacket)
		nodes[1].Broadcast("key", []byte(payload))
		// It goes to three at a time, at random, and is not passed on.
		eventually(t, "somebody hears the broadcast", func() bool {
			return slices.ContainsFunc(nodes, func(n *node) bool { return n.got(payload) })
		})
	})
	t.Run("leave", func(t *testing.T) {
		nodes[4].stop()
		for _, n := range nodes[:4] {
			eventually(t, "n5 left", func() bool { return n.heard("=n5") })
			// Who was busy for too long is suspected by others for a moment.
			eventually(t, "nobody else left", func() bool { return n.states() == strings.Replace(all, "n5:alive", "n5:left", 1) })
			if err := n.Send(nodes[4].Self().ID, []byte("x")); !errors.Is(err, ErrUnknownMember) {
				t.Errorf("to one who left: %v", err)
			}
		}
	})
	t.Run("kill", func(t *testing.T) {
		nodes[3].kill()
		for _, n := range nodes[:3] {
			eventually(t, "n4 is suspect", func() bool { return strings.Contains(n.states(), "n4:suspect") })
		}
		for _, n := range nodes[:3] {
			eventually(t, "n4 died", func() bool { return n.heard("-n4") })
			eventually(t, "nobody else died", func() bool { return n.states() == "n1:alive n2:alive n3:alive n4:dead n5:left" })
		}
	})
	eventually(t, "three alive, one dead and one left", func() bool {
		members := nodes[0].Status().Members
		return members[cluster.Alive] == 3 && members[cluster.Dead] == 1 && members[cluster.Left] == 1
	})
	if problems := nodes[0].Status().Problems; len(problems) > 0 {
		t.Errorf("problems: %q", problems)
	}
	if log := nodes[0].log.String(); strings.Contains(log, "WARN") || strings.Contains(log, "ERR") {
		t.Errorf("the log is not quiet:\n%s", log)
	}
}

func mustAddrPort(n *node) netip.AddrPort { return netip.MustParseAddrPort(n.Self().Address) }
