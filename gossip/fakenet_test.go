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
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

// fakeNet connects real agents' gossip in memory: it loses, delays and reorders datagrams. Everybody gets to know members
// at once. It belongs into a synctest bubble.
type fakeNet struct {
	t  *testing.T
	mu sync.Mutex
	// loss is the part of datagrams that is lost, delay that of the others at most.
	loss  float64
	delay time.Duration
	// cut reports that nothing gets from one to the other. drop sees each datagram, and change replaces it.
	cut    func(from, to string) bool
	drop   func(from, to string, p wire.Packet) bool
	change func(from string, payload []byte) []byte
	// plain: no member reads packed packets. Otherwise the first one, the third and so on do.
	plain bool
	rng   *rand.Rand
	nodes map[wire.MemberID]*fakeNode
	all   []members.Member // that ever were
	log   *slog.Logger     // of those that start; nil is none
}

// datagram is a datagram on its way.
type datagram struct {
	from    wire.MemberID
	payload []byte
}

// fakeNode is a Gossip with its end of the network and an agent that records its messages.
type fakeNode struct {
	*Gossip
	net     *fakeNet
	member  members.Member
	handler members.Handler
	// there: it takes part; guarded by net.mu.
	there bool
	stack []datagram
	stop  context.CancelFunc
	done  chan struct{}

	mu       sync.Mutex
	received []received
	// From cutFrom to cutUntil nobody answered.
	cutFrom, cutUntil time.Time
	// probe answers probe requests, answer queries; nil leaves them without a reply.
	probe  func(cluster.ProbeRequest) cluster.ProbeReply
	answer func(cluster.Query) []byte
	// requests has it request a probe of each holder that it is notified of, as agents do; held is what it holds.
	requests bool
	held     map[detector.Key]cluster.Binding
	// packets and bytes count what was sent, packed how much of it was packed, rejoined how often it joined again.
	packets, bytes, packed, rejoined int
	// paused is until when this process stands still: nothing that calls the network goes on.
	paused time.Time
}

// received is a message to the agent.
type received struct {
	at      time.Time
	message cluster.Message
}

func newFakeNet(t *testing.T) *fakeNet {
	return &fakeNet{t: t, delay: 10 * time.Millisecond, rng: rand.New(rand.NewPCG(1, 2)), nodes: make(map[wire.MemberID]*fakeNode)}
}

const testBoot = "b0071d"

// start starts an agent on a node; all others get to know it.
func (f *fakeNet) start(name, boot string, epoch int64) *fakeNode {
	f.t.Helper()
	return f.startMember(cluster.Member{Name: name, Boot: boot, Epoch: epoch, Address: name + ":7951", Version: "test"})
}

func (f *fakeNet) startMember(m cluster.Member) *fakeNode {
	f.t.Helper()
	m.Packs = !f.plain && len(f.all)%2 == 0
	n := &fakeNode{net: f, there: true, done: make(chan struct{}), member: members.Member{ID: wire.MemberIDOf(m.Name, m.Boot, m.Epoch), Member: m}}
	g, err := New(Options{
		Members: members.Options{Log: cmp.Or(f.log, slog.New(slog.DiscardHandler)), Node: m.Name, Boot: m.Boot, Epoch: m.Epoch, Version: m.Version, Role: m.Role},
		Open: func(o members.Options) (Network, error) {
			n.handler = o.Handler
			return fakePort{n}, nil
		},
	})
	if err != nil {
		f.t.Fatal(err)
	}
	n.Gossip = g
	f.mu.Lock()
	for _, other := range f.nodes {
		if other.there {
			n.handler.Joined(other.member)
			other.handler.Joined(n.member)
		}
	}
	f.nodes[n.member.ID] = n
	f.all = append(f.all, n.member)
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
func (f *fakeNet) startMany(n int) (list []*fakeNode) {
	f.t.Helper()
	for i := range n {
		list = append(list, f.start(fmt.Sprintf("node-%d", i), testBoot, 1))
	}
	return list
}

// agent records its messages, and answers.
func (n *fakeNode) agent(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-n.Messages():
			n.mu.Lock()
			n.received = append(n.received, received{time.Now(), m})
			probe, answer := n.probe, n.answer
			var own cluster.Binding
			if notice, ok := m.(cluster.ConflictNotice); ok && n.requests {
				own = n.held[notice.Key]
			}
			n.mu.Unlock()
			switch m := m.(type) {
			case cluster.Query:
				if answer != nil {
					m.Answer <- answer(m)
				}
			case cluster.ProbeRequest:
				if probe != nil {
					n.ReplyProbe(m.From, m.ID, probe(m))
				}
			case cluster.ConflictNotice:
				for _, b := range m.Bindings {
					if own.Evidence != 0 {
						n.RequestProbe(detector.Probe{Key: m.Key, Holder: b.Holder.ID, Purpose: detector.Verify}, []cluster.Binding{own})
					}
				}
			}
		}
	}
}

// messages returns the messages of a type that the agent received, with their times.
func messages[M cluster.Message](n *fakeNode) (list []M, at []time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, r := range n.received {
		if m, ok := r.message.(M); ok {
			list, at = append(list, m), append(at, r.at)
		}
	}
	return list, at
}

// count counts the messages that the agent received.
func (n *fakeNode) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.received)
}

// answers sets what the agent replies to probe requests.
func (n *fakeNode) answers(probe func(cluster.ProbeRequest) cluster.ProbeReply) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.probe = probe
}

// forgetMessages empties what messages returns.
func (n *fakeNode) forgetMessages() {
	n.mu.Lock()
	n.received = nil
	n.mu.Unlock()
}

// kill ends an agent at once; the others find out now. leave ends it in order.
func (n *fakeNode) kill()  { n.end(false) }
func (n *fakeNode) leave() { n.end(true) }

func (n *fakeNode) end(gracefully bool) {
	n.net.mu.Lock()
	n.there = false
	n.net.mu.Unlock()
	n.stop()
	<-n.done
	n.net.left(n.member, gracefully)
}

// left and joined notify all of a member.
func (f *fakeNet) left(m members.Member, gracefully bool) {
	f.each(m.ID, func(h members.Handler) { h.Left(m, gracefully) })
}

func (f *fakeNet) joined(m members.Member) {
	f.each(m.ID, func(h members.Handler) { h.Joined(m) })
}

func (f *fakeNet) each(but wire.MemberID, do func(members.Handler)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, n := range f.nodes {
		if n.there && n.member.ID != but {
			do(n.handler)
		}
	}
}

// set changes the network.
func (f *fakeNet) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// fakePort is a node's end of the network.
type fakePort struct{ *fakeNode }

// Run implements [Network].
func (fakePort) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

// LeaveSoon implements [Network].
func (fakePort) LeaveSoon() {}

// Send implements [Network].
func (n fakePort) Send(to wire.MemberID, payload []byte) error {
	n.mu.Lock()
	n.packets++
	n.bytes += len(payload)
	packed := payload[0]&0xe0 != 0xa0 // no map
	if packed {
		n.packed++
	}
	n.mu.Unlock()
	n.standStill()
	f := n.net
	f.mu.Lock()
	defer f.mu.Unlock()
	receiver := f.nodes[to]
	if receiver == nil {
		return errors.New("no such member")
	}
	if len(payload) > transport.MaxPayload {
		f.t.Errorf("%s sent a datagram of %d bytes", n.member.Name, len(payload))
	}
	if packed && !receiver.member.Packs {
		f.t.Errorf("%s sent a packed packet to %s, which does not read it", n.member.Name, receiver.member.Name)
	}
	lost := !n.there || f.cut != nil && f.cut(n.member.Name, receiver.member.Name) || f.rng.Float64() < f.loss
	if f.drop != nil {
		p, _, _, err := wire.Decode(payload, n.member.NodeID(), time.Now())
		if err != nil {
			f.t.Error(err)
		}
		lost = lost || f.drop(n.member.Name, receiver.member.Name, p)
	}
	if lost {
		return nil
	}
	in := datagram{n.member.ID, slices.Clone(payload)}
	if f.change != nil {
		in.payload = f.change(n.member.Name, in.payload)
	}
	// Half of the delay at least, so that what is sent later may well come before.
	delay := f.delay/2 + time.Duration(f.rng.Int64N(int64(f.delay/2)+1))
	time.AfterFunc(delay, func() { receiver.arrive(in) })
	return nil
}

// standStill waits while the process is paused.
func (n *fakeNode) standStill() {
	n.mu.Lock()
	until := n.paused
	n.mu.Unlock()
	time.Sleep(time.Until(until))
}

// pause pauses the process with the next message that it sends.
func (n *fakeNode) pause(d time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.paused = time.Now().Add(d)
}

// arrive gathers what comes within a millisecond and hands it over newest first.
func (n *fakeNode) arrive(in datagram) {
	n.net.mu.Lock()
	defer n.net.mu.Unlock()
	n.stack = append(n.stack, in)
	if len(n.stack) > 1 {
		return
	}
	time.AfterFunc(time.Millisecond, func() {
		n.net.mu.Lock()
		defer n.net.mu.Unlock()
		for _, p := range slices.Backward(n.stack) {
			if n.there {
				n.handler.Receive(p.from, netip.AddrPort{}, p.payload)
				clear(p.payload) // nobody may keep it
			}
		}
		n.stack = nil
	})
}

// from hands a message over as if a member had sent it.
func (n *fakeNode) from(id wire.MemberID, messages ...any) {
	var b wire.Builder
	for _, m := range messages {
		b.Add(wire.Encode(m.(wire.Message), time.Now()))
	}
	n.handler.Receive(id, netip.AddrPort{}, b.Bytes())
}

// Request implements [Network]. One that does not accept it takes two seconds.
func (n fakePort) Request(ctx context.Context, to wire.MemberID, request []byte, reading chan struct{}, use func([]byte) error) error {
	f := n.net
	f.mu.Lock()
	receiver := f.nodes[to]
	reached := receiver != nil && receiver.there && (f.cut == nil || !f.cut(n.member.Name, receiver.member.Name))
	delay := f.delay
	f.mu.Unlock()
	wait := func(d time.Duration) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(d):
			return nil
		}
	}
	if !reached {
		return errors.Join(errors.New("it does not answer"), wait(2*time.Second))
	}
	if err := wait(delay); err != nil {
		return err
	}
	reply := receiver.handler.Serve(ctx, request)
	if reply == nil {
		return errors.New("it closed the connection")
	}
	if err := wait(delay); err != nil {
		return err
	}
	reading <- struct{}{}
	defer func() { <-reading }()
	return use(reply)
}

// Rejoin implements [Network].
func (n fakePort) Rejoin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rejoined++
}

// Status implements [Network].
func (n fakePort) Status() cluster.Status {
	n.standStill()
	return cluster.Status{Address: n.member.Address, Label: "test", Dropped: make(map[string]uint64)}
}

func testKey(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
}

// binding is that of a pod on the node.
func (n *fakeNode) binding(netns uint64) cluster.Binding {
	return cluster.Binding{
		Holder:    detector.Holder{ID: detector.HolderID{Node: n.member.NodeID(), Netns: netns}, MAC: detector.MAC{2, 0, 0, 0, 0, byte(netns)}},
		Evidence:  detector.Announced,
		FirstSeen: time.Now().Add(-time.Minute),
		LastSeen:  time.Now(),
	}
}

// hold leases a key for a pod of the node.
func (n *fakeNode) hold(key detector.Key, netns uint64) cluster.Binding {
	b := n.binding(netns)
	n.mu.Lock()
	if n.held == nil {
		n.held = make(map[detector.Key]cluster.Binding)
	}
	n.held[key] = b
	n.mu.Unlock()
	n.Lease(cluster.Lease{Key: key, Binding: b})
	return b
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

func (n *fakeNode) sent(k wire.Kind) uint64 { return n.Status().Sent[k.String()] }

func (n *fakeNode) dropped(reason string) uint64 { return n.Status().Dropped[reason] }

// unacked counts the leases that are not acknowledged by a keeper, also if they are not late.
func (n *fakeNode) unacked() (count int) {
	n.state.Lock()
	defer n.state.Unlock()
	count, _, _ = n.post.unacked(n.roster.Self(), time.Now().Add(time.Minute))
	return count
}

// othersOf returns which nodes a node was notified of for a key.
func (n *fakeNode) othersOf(key detector.Key) (list []string) {
	notices, _ := messages[cluster.ConflictNotice](n)
	for _, m := range notices {
		for _, b := range m.Bindings {
			if m.Key == key {
				list = append(list, cluster.NodeName(b.Holder.ID.Node))
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func (n *fakeNode) knows(key detector.Key, others ...string) func() bool {
	return func() bool { return slices.Equal(n.othersOf(key), others) }
}

// Cut implements [Network].
func (n fakePort) Cut() (from, until time.Time) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cutFrom, n.cutUntil
}
