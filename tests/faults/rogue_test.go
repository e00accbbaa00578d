package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/lab"
)

// rogueVariable has the orders of a rogue, which is this test binary started again inside
// a netns.
const rogueVariable = "DUPIP_TEST_ROGUE"

// orders are what a rogue does. It is a member with the key that may send anything.
type orders struct {
	Bind, Label, KeyFile string
	Join                 []string
	Members              int
	// Leases is how many it sends each second, Victims some of the addresses that it claims.
	Leases  int
	Victims []netip.Addr
}

// report are what a rogue has done.
type report struct {
	Joined   bool
	Leases   int
	Packets  int
	Received int
}

// rogue joins, carries out its orders from the first line of its input on, and ends with it.
func rogue(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &rogueMember{rng: rand.New(rand.NewPCG(rand.Uint64(), 0)), others: make(map[wire.MemberID]string)}
	opts := members.Options{
		Log: slog.New(slog.DiscardHandler), Node: "rogue", Boot: "60e00000-0000-4000-8000-000000000000", Epoch: 1, Version: "1",
		Bind: o.Bind, Port: lab.GossipPort, Join: o.Join, Label: o.Label, KeyFile: o.KeyFile, Handler: r,
	}
	var err error
	if r.network, err = members.Open(opts); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- r.network.Run(ctx) }()
	for len(r.present()) < o.Members-1 {
		select {
		case err := <-done:
			return err
		case <-time.After(20 * time.Millisecond):
		}
	}
	r.did.Joined = true
	r.report()
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err == nil {
		ended := make(chan struct{})
		go func() {
			_, _ = io.Copy(io.Discard, input)
			close(ended)
		}()
		r.flood(o, ended)
	}
	r.report()
	cancel()
	return <-done
}

// rogueMember is a member that does not keep to the rules. It never replies.
type rogueMember struct {
	network *members.Members
	rng     *rand.Rand

	mu     sync.Mutex
	others map[wire.MemberID]string // their NodeIDs
	real   [][]byte                 // what others sent to it
	did    report
}

// present are the other members.
func (r *rogueMember) present() map[wire.MemberID]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.others)
}

func (r *rogueMember) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(r.did)
}

// Receive implements [members.Handler].
func (r *rogueMember) Receive(_ wire.MemberID, _ netip.AddrPort, b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did.Received++
	if len(r.real) < 2000 {
		r.real = append(r.real, bytes.Clone(b))
	}
}

// Serve implements [members.Handler].
func (*rogueMember) Serve(context.Context, []byte) []byte { return nil }

// Joined implements [members.Handler].
func (r *rogueMember) Joined(m members.Member) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.others[m.ID] = m.NodeID()
}

// Left implements [members.Handler].
func (r *rogueMember) Left(m members.Member, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.others, m.ID)
}

// flood sends false messages until ended is closed.
func (r *rogueMember) flood(o orders, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	others := r.present()
	nodes := slices.Collect(maps.Values(others))
	for seq := uint64(1); ; {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		for to, node := range others {
			var messages []any
			for range o.Leases / 100 / len(others) {
				seq++
				messages = append(messages, r.lease(seq, o.Victims))
				r.did.Leases++
			}
			messages = append(messages, r.falseMessages(seq, o.Victims, node, nodes)...)
			for _, p := range append(pack(messages), r.corrupted()...) {
				_ = r.network.Send(to, p)
				r.did.Packets++
			}
		}
	}
}

// pack puts messages into packets.
func pack(messages []any) (packets [][]byte) {
	b := wire.Builder{}
	for _, m := range messages {
		if kind, encoded := wire.Encode(m.(wire.Message), time.Now()); !b.Add(kind, encoded) {
			packets = append(packets, b.Bytes())
			b = wire.Builder{}
			b.Add(kind, encoded)
		}
	}
	return append(packets, b.Bytes())
}

// lease is of one of very many addresses, or sometimes a victim's.
func (r *rogueMember) lease(seq uint64, victims []netip.Addr) wire.Lease {
	ip := netip.AddrFrom4([4]byte{10, 66, byte(r.rng.Uint32()), byte(r.rng.Uint32())})
	if r.rng.IntN(50) == 0 {
		ip = victims[r.rng.IntN(len(victims))]
	}
	return wire.Lease{
		Seq: seq, Gone: r.rng.IntN(20) == 0, Key: detector.Key{Network: "default", IP: ip},
		Binding: cluster.Binding{
			Holder: detector.Holder{
				ID:  detector.HolderID{Netns: 1 + r.rng.Uint64N(100)},
				MAC: detector.MAC{2, 0, 0, 0, 0, byte(r.rng.Uint32())},
			},
			Evidence: detector.Announced, FirstSeen: time.Now().Add(-time.Hour),
		},
	}
}

// falseMessages are about other nodes: holders that they do not have, withdrawals of real ones, and endless probe
// requests.
func (r *rogueMember) falseMessages(seq uint64, victims []netip.Addr, to string, nodes []string) []any {
	key := detector.Key{Network: "default", IP: victims[r.rng.IntN(len(victims))]}
	other := detector.HolderID{Node: nodes[r.rng.IntN(len(nodes))], Netns: 1 + r.rng.Uint64N(5000)}
	binding := cluster.Binding{Holder: detector.Holder{ID: other}, Evidence: detector.Announced, FirstSeen: time.Now().Add(-time.Minute)}
	target := other
	target.Node = to
	return []any{
		wire.Notice{Seq: seq, Key: key, Total: 5, Others: []cluster.Binding{binding}},
		wire.Ack{Seq: seq % 1000, Others: []cluster.Binding{binding}, Total: 3},
		wire.Lease{Seq: seq, Key: key, Binding: binding, Gone: true},
		wire.ProbeReply{ID: 1 + r.rng.Uint64N(100), Key: key, Outcome: detector.Answered, Binding: binding},
		wire.ProbeRequest{ID: seq, Key: key, Holder: target, Others: []cluster.Binding{binding}},
		wire.Resend{Seq: seq},
	}
}

// corrupted are a few packets of others, changed or as they were.
func (r *rogueMember) corrupted() (packets [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := forger{rng: r.rng}
	for range min(3, len(r.real)) {
		p := r.real[r.rng.IntN(len(r.real))]
		if r.rng.IntN(3) > 0 {
			p = f.corrupt(p)
		}
		packets = append(packets, p[:min(len(p), transport.MaxPayload)])
	}
	return packets
}

// startRogue starts a rogue on a node, waits until it is a member, and lets it lie. The result
// ends it.
func (s *testCluster) startRogue(n *lab.Node, o orders) (stop func() report) {
	s.Helper()
	text, err := json.Marshal(o)
	s.Do(err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), rogueVariable+"="+string(text))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	in, err := cmd.StdinPipe()
	s.Do(err)
	out, err := cmd.StdoutPipe()
	s.Do(err)
	s.Do(n.Start(cmd))
	ended := sync.OnceValue(cmd.Wait)
	s.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = ended()
	})
	reports := json.NewDecoder(out)
	var d report
	timer := time.AfterFunc(healTime, func() { _ = cmd.Process.Kill() })
	if err := reports.Decode(&d); err != nil || !d.Joined {
		s.Fatal("the rogue did not join: ", err, stderr.String())
	}
	timer.Stop()
	// A member that has not received the broadcast of its joining takes its leases for an unknown
	// member's, and the storm may delay that broadcast. It acknowledges nothing, so to those that received that first it may be suspect
	// before the last one has.
	ctx, cancel := lab.WithTimeout(s.Context(), healTime)
	defer cancel()
	for _, n := range s.nodes {
		s.Do(n.agent.WaitNodes(ctx, "the rogue", func(all []lab.Member) bool { return len(all) == len(s.nodes)+1 }))
	}
	_, err = io.WriteString(in, "lie\n")
	s.Do(err)
	return func() report {
		s.Helper()
		s.Do(in.Close())
		s.Do(reports.Decode(&d))
		if err := ended(); err != nil {
			s.Errorf("end of the rogue: %v %s", err, stderr.String())
		}
		return d
	}
}

// A cluster with a key, and one who does not have it, then one who has.
func TestRogue(t *testing.T) {
	t.Parallel()
	key := keyFile(t, t.TempDir(), lab.NewKey())
	s := newTestCluster(t, 6, "--gossip-key-file", key)
	s.part(t, "a member with the key lies", func(s *testCluster) { s.rogueMember(key) })
}

func (s *testCluster) rogueMember(key string) {
	victims, before := s.duplicate(s.nodes[0]), s.duplicate(s.nodes[1], s.nodes[2])
	s.waitFound(before, before.began, patience)
	for _, n := range s.nodes {
		s.join(&duplicate{ips: s.addrs()}, n)
	}
	victims.disputed, before.disputed = true, true
	memory := s.memory()
	n := s.Node("rogue")
	flags := n.ClusterFlags()
	invited := time.Now()
	stop := s.startRogue(n, orders{
		Bind: n.Uplink().String(), Label: flags[slices.Index(flags, "--cluster")+1], KeyFile: key,
		Join: []string{s.nodes[0].Uplink().String()}, Members: len(s.nodes) + 1,
		Leases: 50_000, Victims: slices.Concat(victims.ips, before.ips),
	})
	began := time.Now()
	for i := range 3 {
		d := s.duplicate(s.nodes[i], s.nodes[i+2])
		d.disputed = true // the rogue sends leases of others as its own
		s.Logf("beside the rogue: found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	s.join(victims, s.nodes[5])
	s.Logf("an address that the rogue claims: found after %.1f s", s.waitFound(victims, victims.holders[1].pod.Started, patience).Seconds())
	s.holdsFor(stormTime-time.Since(began), func() { s.assertUnchanged(before) })
	s.survived(memory)
	did := stop()
	s.Logf("the rogue: %+v in %.1f s", did, time.Since(began).Seconds())
	// A keeper takes 5,000 leases of a node at once, and 1,000 a second. The other nodes have few.
	most := 6000 + int(1000*time.Since(invited).Seconds())
	sent := did.Leases / len(s.nodes)
	for _, n := range s.nodes {
		status, err := s.status(n.agent)
		s.Do(err)
		if n == s.nodes[0] {
			s.Logf("%s was sent %d leases and keeps %d, dropped %v", n.ShortName(), sent, status.Kept, nonzero(status.Dropped))
		}
		// On a slow machine the rogue cannot send so many.
		if status.Dropped["lease rate of a node"] == 0 && sent > 2*most {
			s.Errorf("%s took all of %d leases: dropped %v", n.ShortName(), sent, nonzero(status.Dropped))
		}
		if status.Kept > most {
			s.Errorf("%s keeps %d leases, want %d at most", n.ShortName(), status.Kept, most)
		}
	}
	s.waitAllMembers()
	s.assertUnchanged(before, victims)
}
