package members

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/testneeds"
)

// node is one agent's membership under test, and what its handler was called for.
type node struct {
	*Members
	t    *testing.T
	log  *output
	port *port  // nil with the machine's sockets
	stop func() // and waits

	mu       sync.Mutex
	received []string
	changes  []string // "+n1" joined, "=n1" left, "-n1" died
}

func (n *node) Receive(_ wire.MemberID, _ netip.AddrPort, payload []byte) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.received = append(n.received, string(payload))
}

func (n *node) Serve(_ context.Context, request []byte) []byte {
	return append([]byte("re: "), request...)
}

func (n *node) Joined(m Member) { n.change("+" + m.Name) }

func (n *node) Left(m Member, gracefully bool) {
	if gracefully {
		n.change("=" + m.Name)
	} else {
		n.change("-" + m.Name)
	}
}

func (n *node) change(c string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, c)
}

// saw reports whether its handler was called for a change.
func (n *node) saw(c string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.changes, c)
}

func (n *node) got(message string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Contains(n.received, message)
}

// others are the names of the members it knows: "n1 n3".
func (n *node) others() string {
	n.Members.mu.Lock()
	defer n.Members.mu.Unlock()
	var names []string
	for _, p := range n.present {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (n *node) problems() string { return strings.Join(n.Status().Problems, "\n") }

// address is where it is.
func (n *node) address() netip.AddrPort { return netip.MustParseAddrPort(n.self.Address) }

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

var testKey = sync.OnceValue(func() string {
	dir, err := os.MkdirTemp("", "members")
	if err != nil {
		panic(err)
	}
	path := filepath.Join(dir, "key")
	if err := os.WriteFile(path, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
		panic(err)
	}
	return path
})

func TestMain(m *testing.M) {
	code := m.Run()
	os.RemoveAll(filepath.Dir(testKey()))
	os.Exit(code)
}

// airAddress is where the node with a number is.
func airAddress(number int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(number >> 8), byte(number)}), DefaultPort)
}

// open starts a node in the air, or without one on 127.0.0.number, unless change says something else.
func open(t *testing.T, a *air, number int, change ...func(*Options)) *node {
	t.Helper()
	n := prepare(t, a, number, change...)
	n.run()
	return n
}

// prepare opens it, and does not run it yet.
func prepare(t *testing.T, a *air, number int, change ...func(*Options)) *node {
	t.Helper()
	n := &node{t: t, log: &output{}}
	opts := Options{
		Log:  slog.New(slog.NewTextHandler(n.log, nil)),
		Node: fmt.Sprintf("n%d", number), Boot: fmt.Sprintf("boot%d", number), Epoch: 1, Version: "v1",
		Bind: fmt.Sprintf("127.0.0.%d", number), KeyFile: testKey(), Handler: n, Label: "test",
	}
	if a != nil {
		opts.Bind, opts.Advertise = "", airAddress(number).String()
	}
	for _, c := range change {
		c(&opts)
	}
	if a != nil && opts.Sockets == nil {
		n.port = a.listen(netip.MustParseAddrPort(opts.Advertise))
		opts.Sockets = n.port
	}
	var err error
	if n.Members, err = Open(opts); err != nil {
		t.Fatal(err)
	}
	return n
}

func (n *node) run() {
	ctx, cancel := context.WithCancel(context.Background())
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

// kill takes the network away, as if the process were killed.
func (n *node) kill() { n.port.Close() }

func joining(others ...*node) func(*Options) {
	return func(o *Options) {
		for _, n := range others {
			o.Join = append(o.Join, n.self.Address)
		}
	}
}

// inAir runs f in virtual time.
func inAir(t *testing.T, f func(t *testing.T, a *air)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		// A bubble must end with no goroutine in it, and its clock does not wait for those of memberlist that
		// wait for an answer. This is the last cleanup.
		t.Cleanup(func() { time.Sleep(time.Minute) })
		f(t, newAir())
	})
}

// within waits until a condition holds, and returns how long that took.
func within(t *testing.T, what string, limit time.Duration, condition func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	for !condition() {
		if time.Since(began) > limit {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	return time.Since(began)
}

// complete waits until all nodes know all others.
func complete(t *testing.T, limit time.Duration, nodes ...*node) time.Duration {
	t.Helper()
	return within(t, "all know all", limit, func() bool {
		return !slices.ContainsFunc(nodes, func(n *node) bool { return n.count() != len(nodes) })
	})
}

// openCluster opens nodes that join the first, and waits until all know all.
func openCluster(t *testing.T, a *air, size int) (nodes []*node) {
	t.Helper()
	for i := range size {
		nodes = append(nodes, open(t, a, i+1, func(o *Options) { o.Join = []string{airAddress(1).String()} }))
	}
	complete(t, 2*time.Minute, nodes...)
	return nodes
}

// Five members on real sockets find each other, send messages, answer requests, leave and die.
func TestClusterOfFive(t *testing.T) {
	first := open(t, nil, 1)
	nodes := []*node{first}
	for i := 2; i <= 4; i++ {
		nodes = append(nodes, open(t, nil, i, joining(first)))
	}
	sockets, err := transport.Listen("127.0.0.5", 0)
	if err != nil {
		t.Fatal(err)
	}
	nodes = append(nodes, open(t, nil, 5, joining(first), func(o *Options) {
		o.Sockets, o.Advertise = sockets, fmt.Sprintf("127.0.0.5:%d", sockets.Port())
	}))
	const limit = 30 * time.Second
	complete(t, limit, nodes...)
	for _, n := range nodes { // a member counts before it is proved
		within(t, n.self.Name+" is notified of the others, and not of itself", limit, func() bool {
			for i := 1; i <= 5; i++ {
				if name := fmt.Sprintf("n%d", i); n.saw("+"+name) == (name == n.self.Name) {
					return false
				}
			}
			return true
		})
	}

	message, to := strings.Repeat("m", transport.MaxPayload), nodes[3].self.ID
	within(t, "the message is there", limit, func() bool { // one that comes before the proof is dropped
		if err := nodes[1].Send(to, []byte(message)); err != nil {
			t.Error(err)
			return true
		}
		return nodes[3].got(message)
	})
	for name, err := range map[string]error{
		"nobody": nodes[1].Send(12345, nil), "itself": nodes[1].Send(nodes[1].self.ID, nil),
	} {
		if !errors.Is(err, ErrUnknownMember) {
			t.Errorf("sending to %s: %v", name, err)
		}
	}
	if err := nodes[1].Send(to, make([]byte, transport.MaxPayload+1)); err == nil {
		t.Error("a message that is too large was sent")
	}
	reading := make(chan struct{}, 1)
	var reply string
	use := func(b []byte) error {
		reply += string(b)
		return nil
	}
	if err := nodes[1].Request(t.Context(), to, []byte("x"), reading, use); err != nil || reply != "re: x" {
		t.Errorf("the reply is %q, %v", reply, err)
	}
	if err := nodes[1].Request(t.Context(), 12345, []byte("x"), reading, use); !errors.Is(err, ErrUnknownMember) {
		t.Errorf("requesting from nobody: %v", err)
	}

	nodes[3].stop()
	sockets.Close()
	for _, n := range nodes[:3] {
		within(t, "n4 has left and n5 is dead", 2*limit, func() bool { return n.saw("=n4") && n.saw("-n5") && n.count() == 3 })
		if err := n.Send(to, nil); !errors.Is(err, ErrUnknownMember) {
			t.Errorf("sending to one that left: %v", err)
		}
		within(t, "the others answer", limit, func() bool { return len(n.Status().Problems) == 0 })
		if status := n.Status(); status.Address != n.self.Address || !status.Encrypted || status.Label != "test" {
			t.Errorf("status %+v", status)
		}
	}
	if log := first.log.String(); strings.Contains(log, "WARN") || strings.Contains(log, "ERR") {
		t.Errorf("the log is not quiet:\n%s", log)
	}
}

// No news is lost because a datagram is too full.
func TestFullDatagrams(t *testing.T) {
	if testneeds.Raced {
		t.Skip("60 members take a minute with the race detector")
	}
	inAir(t, func(t *testing.T, a *air) {
		var nodes []*node
		for i := range 60 {
			nodes = append(nodes, open(t, a, i+1, func(o *Options) {
				o.Join, o.Version = []string{airAddress(1).String()}, strings.Repeat("v", i)
			}))
		}
		complete(t, 10*time.Minute, nodes...) // nobody sends anything, so that the last news takes its time
		for _, n := range nodes {
			if got := n.Status().Dropped["oversize"]; got > 0 {
				t.Errorf("%s: %d datagrams were too large", n.self.Name, got)
			}
		}
	})
}

// A member that leaves is not taken for a dead one, and a dead one not for one that left, also if one of 20 datagrams is lost.
func TestLeavingIsNotDying(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 20)
		a.lose(randomLoss(0.05))
		time.Sleep(time.Minute)
		for i, n := range nodes[10:] {
			name := n.self.Name
			if i%2 == 0 {
				n.kill()
			} else {
				most := 2 * leaveTimeout
				if i%4 == 1 { // it says so before
					n.LeaveSoon()
					time.Sleep(time.Minute)
					for _, other := range nodes[:10] {
						if other.saw("="+name) || other.saw("-"+name) {
							t.Errorf("%s: %v before %s leaves", other.self.Name, other.changes, name)
						}
					}
					most = leaveTimeout * 3 / 5
				}
				began := time.Now()
				if n.stop(); time.Since(began) > most {
					t.Errorf("leaving took %s", time.Since(began))
				}
			}
			for _, other := range nodes[:10] {
				within(t, name+" is gone", time.Minute, func() bool { return other.saw("="+name) || other.saw("-"+name) })
				if other.saw("="+name) == (i%2 == 0) {
					t.Errorf("%s: %v", other.self.Name, other.changes)
				}
			}
		}
	})
}

// A member that leaves soon is one until it leaves: also if it does not answer for a moment then, and for one that comes meanwhile.
func TestLeavesSoon(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		nodes := openCluster(t, a, 3)
		leaves := nodes[2]
		a.lose(func(_, to netip.AddrPort, _ bool) bool { return to.String() == leaves.self.Address })
		leaves.LeaveSoon()
		time.Sleep(time.Second)
		a.lose(nil)
		late := open(t, a, 4, joining(nodes[0]))
		within(t, "the late one knows it", 5*time.Second, func() bool { return late.saw("+n3") })
		time.Sleep(time.Minute)
		for _, n := range []*node{nodes[0], nodes[1], late} {
			if n.saw("=n3") || n.saw("-n3") || !n.proved(leaves.self.ID).IsValid() {
				t.Errorf("%s: %v before it leaves", n.self.Name, n.changes)
			}
		}
		leaves.stop()
		for _, n := range []*node{nodes[0], nodes[1], late} {
			within(t, "it has left", 10*time.Second, func() bool { return n.saw("=n3") })
		}
	})
	inAir(t, func(t *testing.T, a *air) {
		alone := open(t, a, 1)
		alone.LeaveSoon()
		next := open(t, a, 2, joining(alone))
		within(t, "it is known", 10*time.Second, func() bool { return next.saw("+n1") })
		alone.stop()
		within(t, "it has left", 10*time.Second, func() bool { return next.saw("=n1") })
	})
}

// An agent that is killed and starts again is a member at once, and the old one soon is none.
func TestSuccessor(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*Options)
	}{
		{"same address", func(o *Options) { o.Epoch = 2 }},
		{"other address", func(o *Options) { o.Epoch, o.Advertise = 2, airAddress(33).String() }},
		{"the node was booted", func(o *Options) { o.Boot = "other" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			inAir(t, func(t *testing.T, a *air) {
				nodes := openCluster(t, a, 3)
				nodes[2].kill()
				next := open(t, a, 3, joining(nodes[0]), test.change)
				for _, n := range nodes[:2] {
					within(t, "the next one is there", time.Second, func() bool { return n.at(next.self.ID).IsValid() })
				}
				complete(t, 30*time.Second, nodes[0], nodes[1], next)
				for _, n := range nodes[:2] {
					within(t, "the former one is not, and the next one is", 2*time.Second, func() bool {
						return n.Send(next.self.ID, nil) == nil && n.Send(nodes[2].self.ID, nil) != nil
					})
				}
			})
		})
	}
}

// No agent connects or sends to an address of its own machine or link because a member claims to be there.
func TestNoMemberIsLocal(t *testing.T) {
	for _, text := range []string{"127.0.0.1:10250", "169.254.169.254:80", "[::1]:7951", "[fe80::1]:7951"} {
		inAir(t, func(t *testing.T, a *air) {
			nodes := openCluster(t, a, 3)
			// The hostile member is reached, and says that it is somewhere else.
			at := netip.MustParseAddrPort(text)
			hostile := open(t, a, 9, joining(nodes...), func(o *Options) { o.Sockets, o.Advertise = a.listen(airAddress(9)), text })
			local := a.listen(at)
			defer local.Close()
			within(t, "it has joined", time.Minute, func() bool { return hostile.count() == 4 })
			a.change(func() { clear(a.streams); clear(a.datagrams) })
			time.Sleep(time.Minute)
			a.change(func() {
				if a.streams[at] > 0 || a.datagrams[at] > 0 {
					t.Errorf("%s: %d streams and %d datagrams", text, a.streams[at], a.datagrams[at])
				}
			})
			if got := nodes[0].others(); got != "n2 n3" {
				t.Errorf("%s: the members are %s", text, got)
			}
		})
	}
}

// fill gives a node so many members that it has never heard of.
func fill(n *node, members int) {
	n.Members.mu.Lock()
	defer n.Members.mu.Unlock()
	clear(n.present)
	clear(n.proofs)
	for i := range members {
		n.present[wire.MemberID(i)] = presence{at: airAddress(2)}
		n.proofs[wire.MemberID(i)] = &proof{}
	}
}

// Who is no member, whatever it says.
func TestNotifyAlive(t *testing.T) {
	inAir(t, func(t *testing.T, a *air) {
		n := open(t, a, 1)
		for name, test := range map[string]struct {
			change  func(*memberlist.Node)
			refused bool
		}{
			"a member":         {func(*memberlist.Node) {}, false},
			"IPv6":             {func(m *memberlist.Node) { m.Addr = net.ParseIP("fd00::1") }, false},
			"no metadata":      {func(m *memberlist.Node) { m.Meta = nil }, true},
			"another name":     {func(m *memberlist.Node) { m.Name = "n1/0000000000000001" }, true},
			"no address":       {func(m *memberlist.Node) { m.Addr = nil }, true},
			"a name":           {func(m *memberlist.Node) { m.Addr = []byte("members.example") }, true},
			"no port":          {func(m *memberlist.Node) { m.Port = 0 }, true},
			"unspecified":      {func(m *memberlist.Node) { m.Addr = net.IPv4zero }, true},
			"multicast":        {func(m *memberlist.Node) { m.Addr = net.IPv4(224, 0, 0, 1) }, true},
			"loopback":         {func(m *memberlist.Node) { m.Addr = net.ParseIP("::ffff:127.0.0.1") }, true},
			"a later protocol": {func(m *memberlist.Node) { m.PMin, m.PCur = 3, 3 }, true},
			"of a delegate":    {func(m *memberlist.Node) { m.DMin, m.DCur = 1, 1 }, true},
		} {
			node := memberlist.Node{Name: nameOf(example), Addr: net.IPv4(10, 0, 0, 9), Port: 1, Meta: wire.Marshal(example), PMin: 1, PMax: 5, PCur: 2}
			test.change(&node)
			if err := (*hooks)(n.Members).NotifyAlive(&node); (err != nil) != test.refused {
				t.Errorf("%s: %v", name, err)
			}
		}
		fill(n, maxMembers)
		node := memberlist.Node{Name: nameOf(example), Addr: net.IPv4(10, 0, 0, 9), Port: 1, Meta: wire.Marshal(example), PMin: 1, PMax: 5, PCur: 2}
		if err := (*hooks)(n.Members).NotifyAlive(&node); err == nil {
			t.Errorf("one more than %d: %v", maxMembers, err)
		}
		fill(n, 0)
	})
}

func TestOpenErrors(t *testing.T) {
	n := open(t, nil, 1)
	for _, test := range []struct {
		name, want string
		change     func(*Options)
	}{
		{"port", "the port is in use; stop the program that uses it, or choose another --gossip-port", func(o *Options) { o.Port = int(n.address().Port()) }},
		{"address", "this node does not have the address; choose another --bind", func(o *Options) { o.Bind = "192.0.2.1" }},
		{"bind", `--bind "eth0" is not an address`, func(o *Options) { o.Bind = "eth0" }},
		{"advertise", "--advertise", func(o *Options) { o.Advertise = "0.0.0.0" }},
		{"join", `--join "a:b"`, func(o *Options) { o.Join = []string{"10.0.0.1", "a:b"} }},
		{"label", "--cluster", func(o *Options) { o.Label = strings.Repeat("l", 65) }},
		{"no key", "gossip needs a key", func(o *Options) { o.KeyFile, o.Bind, o.Advertise = "", "", "10.0.0.1" }},
		{"no key, all addresses", "gossip needs a key", func(o *Options) { o.KeyFile, o.Bind, o.Advertise = "", "", "127.0.0.1" }},
		{"no such key", "no such file", func(o *Options) { o.KeyFile = "/nowhere" }},
		{"role", "role", func(o *Options) { o.Role = "a/b" }},
	} {
		opts := Options{Node: "n", Boot: "b", Bind: "127.0.0.1", KeyFile: testKey(), Handler: n}
		for range 2 { // it leaves nothing open
			test.change(&opts)
			if _, err := Open(opts); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %v", test.name, err)
			}
		}
	}
}

// Loopback needs no key.
func TestWithoutKey(t *testing.T) {
	first := open(t, nil, 1, func(o *Options) { o.KeyFile = "" })
	second := open(t, nil, 2, joining(first), func(o *Options) { o.KeyFile = "" })
	complete(t, 30*time.Second, first, second)
	if first.log.String() != "" || first.Status().Encrypted {
		t.Errorf("log %q, status %+v", first.log, first.Status())
	}
}
