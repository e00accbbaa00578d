package gossip

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
)

// fakeNet connects real cores in memory: it loses, delays and reorders packets, and hands
// over bursts newest first, as memberlist does. Everybody hears of members at once. It
// belongs into a synctest bubble.
type fakeNet struct {
	t  *testing.T
	mu sync.Mutex
	// loss is the part of packets that is lost, delay that of the others at most.
	loss  float64
	delay time.Duration
	// cut says that nothing gets from one to the other.
	cut     func(from, to string) bool
	rng     *rand.Rand
	nodes   map[wire.MemberID]*fakeNode
	members []members.Member // all that ever were
	log     *slog.Logger     // of cores that start; nil is none
}

// fakeNode is a core with its end of the network and an agent that writes down what it
// is told.
type fakeNode struct {
	*Gossip
	net     *fakeNet
	member  members.Member
	handler members.Handler
	// hears says that it takes part; guarded by net.mu.
	hears bool
	stack [][]byte
	stop  context.CancelFunc
	done  chan struct{}

	mu   sync.Mutex
	told []told
	// answer answers questions; nil leaves them unanswered.
	answer func(cluster.ProbeRequest) cluster.ProbeReply
	// asks has it ask for each rival that it is told of, as agents do; held is what it
	// holds.
	asks bool
	held map[detector.Key]cluster.Binding
	// reply answers queries; nil leaves them unanswered.
	reply func(cluster.Query) cluster.Document
	// packets and bytes count what was sent, broadcasts what was to be told to all.
	packets, bytes int
	// sought are the members that were heard and are not there.
	sought     []wire.MemberID
	broadcasts [][]byte
}

// told is a message to the agent.
type told struct {
	at      time.Time
	message cluster.Message
}

func newFakeNet(t *testing.T) *fakeNet {
	return &fakeNet{
		t: t, delay: 10 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 2)),
		nodes: make(map[wire.MemberID]*fakeNode),
	}
}

const testBoot = "b0071d"

// start starts an agent's core on a node; all others hear of it.
func (f *fakeNet) start(name, boot string, epoch int64) *fakeNode {
	f.t.Helper()
	n := &fakeNode{
		net: f, hears: true, done: make(chan struct{}),
		member: members.Member{ID: wire.MemberIDOf(name, boot, epoch), Member: cluster.Member{
			Name: name, Boot: boot, Epoch: epoch, Address: name + ":7951", Version: "test", State: cluster.Alive, Since: time.Now(),
		}},
	}
	core, err := New(Options{
		Log:     cmp.Or(f.log, slog.New(slog.DiscardHandler)),
		Members: members.Options{Node: name, Boot: boot, Epoch: epoch},
		Open: func(m members.Options) (Network, error) {
			n.handler = m.Handler
			return fakePort{n}, nil
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	n.Gossip = core
	f.mu.Lock()
	f.nodes[n.member.ID] = n
	for _, m := range f.members {
		if m.State == cluster.Alive {
			n.handler.Joined(m)
		}
	}
	f.members = append(f.members, n.member)
	for _, other := range f.nodes {
		if other != n && other.hears {
			other.handler.Joined(n.member)
		}
	}
	f.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background())
	n.stop = cancel
	go func() {
		defer close(n.done)
		if err := n.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	go n.agent(ctx)
	f.t.Cleanup(func() {
		cancel()
		<-n.done
	})
	return n
}

// startMany starts n agents on node-0, node-1 and so on.
func (f *fakeNet) startMany(n int) []*fakeNode {
	f.t.Helper()
	var list []*fakeNode
	for i := range n {
		list = append(list, f.start(fmt.Sprintf("node-%d", i), testBoot, 1))
	}
	return list
}

// agent writes down what it is told, and answers.
func (n *fakeNode) agent(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-n.Messages():
			n.mu.Lock()
			n.told = append(n.told, told{time.Now(), m})
			answer, reply := n.answer, n.reply
			n.mu.Unlock()
			if q, ok := m.(cluster.Query); ok && reply != nil {
				n.Reply(q.ID, reply(q))
			}
			if q, ok := m.(cluster.ProbeRequest); ok && answer != nil {
				n.ReplyProbe(q.ID, answer(q))
			}
		}
	}
}

// messages returns the messages of a type that the agent was told, with their times.
func messages[M cluster.Message](n *fakeNode) (list []M, at []time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, t := range n.told {
		if m, ok := t.message.(M); ok {
			list, at = append(list, m), append(at, t.at)
		}
	}
	return list, at
}

// forgetMessages empties what messages returns.
func (n *fakeNode) forgetMessages() {
	n.mu.Lock()
	n.told = nil
	n.mu.Unlock()
}

// kill ends an agent at once; the others find out now.
func (n *fakeNode) kill() { n.end(cluster.Dead) }

// leave ends an agent in order.
func (n *fakeNode) leave() { n.end(cluster.Left) }

func (n *fakeNode) end(s cluster.State) {
	n.net.mu.Lock()
	n.hears = false
	n.net.mu.Unlock()
	n.stop()
	<-n.done
	n.net.tell(n.member, s)
}

// tell tells all that a member has another state now.
func (f *fakeNet) tell(m members.Member, s cluster.State) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.members {
		if old := &f.members[i]; old.ID == m.ID {
			old.State, old.Since = s, time.Now()
			m = *old
		}
	}
	for _, n := range f.nodes {
		if n.hears && n.member.ID != m.ID {
			if s == cluster.Alive {
				n.handler.Joined(m)
			} else {
				n.handler.Left(m, s == cluster.Left)
			}
		}
	}
}

// fakePort is a node's end of the network.
type fakePort struct{ *fakeNode }

// Run implements [Network].
func (fakePort) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// Send implements [Network].
func (n fakePort) Send(to wire.MemberID, packet []byte) error {
	f := n.net
	f.mu.Lock()
	defer f.mu.Unlock()
	receiver := f.nodes[to]
	if receiver == nil {
		return errors.New("no such member")
	}
	if len(packet) > wire.MaxPacket {
		f.t.Errorf("%s sent a packet of %d bytes", n.member.Name, len(packet))
	}
	n.mu.Lock()
	n.packets++
	n.bytes += len(packet)
	n.mu.Unlock()
	if !n.hears || f.cut != nil && f.cut(n.member.Name, receiver.member.Name) || f.rng.Float64() < f.loss {
		return nil
	}
	packet = slices.Clone(packet)
	// Half of the delay at least, so that what is sent later may well come before.
	delay := f.delay/2 + time.Duration(f.rng.Int64N(int64(f.delay/2)+1))
	time.AfterFunc(delay, func() { receiver.arrive(packet) })
	return nil
}

// arrive gathers what comes within a millisecond and hands it over newest first.
func (n *fakeNode) arrive(packet []byte) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.stack = append(n.stack, packet)
	if len(n.stack) > 1 {
		return
	}
	time.AfterFunc(time.Millisecond, func() {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		for _, p := range slices.Backward(n.stack) {
			if n.hears {
				n.handler.Packet(p)
				clear(p) // nobody may keep it
			}
		}
		n.stack = nil
	})
}

// Seek implements [Network]: who is there is for the test to say.
func (n fakePort) Seek(id wire.MemberID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.sought = append(n.sought, id)
}

// Broadcast implements [Network]: it reaches all members once, as others pass it on.
func (n fakePort) Broadcast(_ string, packet []byte) {
	n.mu.Lock()
	n.broadcasts = append(n.broadcasts, slices.Clone(packet))
	n.mu.Unlock()
	n.net.mu.Lock()
	var others []wire.MemberID
	for id, other := range n.net.nodes {
		if id != n.member.ID && other.hears {
			others = append(others, id)
		}
	}
	n.net.mu.Unlock()
	for _, id := range others {
		_ = n.Send(id, packet) // there are no others
	}
}

// List implements [Network].
func (n fakePort) List() []members.Member {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	return slices.Clone(n.net.members)
}

// Status implements [Network].
func (n fakePort) Status() members.Status {
	return members.Status{Address: n.member.Address, Label: "test"}
}

func testKey(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

// claim is that of a pod on the node.
func (n *fakeNode) claim(netns uint64) cluster.Binding {
	return cluster.Binding{
		Holder:    detector.Holder{ID: detector.HolderID{Node: n.member.NodeID(), Netns: netns}, MAC: detector.MAC{2, 0, 0, 0, 0, byte(netns)}},
		Evidence:  detector.Announced,
		FirstSeen: time.Now().Add(-time.Minute),
		LastSeen:  time.Now(),
	}
}

// hold leases a key for a pod of the node.
func (n *fakeNode) hold(key detector.Key, netns uint64) cluster.Binding {
	c := n.claim(netns)
	n.mu.Lock()
	if n.held == nil {
		n.held = make(map[detector.Key]cluster.Binding)
	}
	n.held[key] = c
	n.mu.Unlock()
	n.Lease(cluster.Lease{Key: key, Binding: c})
	return c
}

// eventually waits in the bubble's time until something is so.
func eventually(t *testing.T, within time.Duration, what string, so func() bool) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		synctest.Wait()
		if so() {
			return time.Since(start)
		}
		if time.Since(start) > within {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(time.Millisecond)
	}
}
