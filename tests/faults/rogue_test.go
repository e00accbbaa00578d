package faults

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
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
	Joined        bool
	Leases        int
	Packets       int
	Received      int
	ProbeRequests int
}

// rogue joins, carries out its orders from the first line of its input on, and ends with it.
func rogue(text string) error {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	r := &rogueMember{rng: rand.New(rand.NewPCG(rand.Uint64(), 0))}
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
	for r.alive() < o.Members {
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

// rogueMember is a member that does not keep to the rules. It never answers a question.
type rogueMember struct {
	network *members.Members
	rng     *rand.Rand

	mu   sync.Mutex
	real [][]byte // what others sent to it
	did  report
}

func (r *rogueMember) alive() (n int) {
	for _, m := range r.network.List() {
		if m.State == cluster.Alive {
			n++
		}
	}
	return n
}

func (r *rogueMember) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	_ = json.NewEncoder(os.Stdout).Encode(r.did)
}

// Packet implements [members.Handler].
func (r *rogueMember) Packet(b []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.did.Received++
	if p, err := wire.Decode(b); err == nil && p.Type == wire.TypeAsk {
		r.did.ProbeRequests++
	}
	if len(r.real) < 2000 {
		r.real = append(r.real, bytes.Clone(b))
	}
}

// Joined implements [members.Handler].
func (*rogueMember) Joined(members.Member) {}

// Updated implements [members.Handler].
func (*rogueMember) Updated(members.Member) {}

// Left implements [members.Handler].
func (*rogueMember) Left(members.Member, bool) {}

// flood sends false entries until ended is closed.
func (r *rogueMember) flood(o orders, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	var others []wire.MemberID
	self := r.network.Self().ID
	for _, m := range r.network.List() {
		if m.ID != self {
			others = append(others, m.ID)
		}
	}
	seq := uint64(1)
	for turn := 0; ; turn++ {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		for _, to := range others {
			var entries []wire.Entry
			for range o.Leases / 100 / len(others) {
				seq++
				entries = append(entries, r.lease(seq, o.Victims, self))
				r.did.Leases++
			}
			entries = append(entries, r.falseEntries(seq, o.Victims, self, others)...)
			packets := append(pack(self, entries), r.spoiled()...)
			for _, p := range packets {
				_ = r.network.Send(to, p)
				r.did.Packets++
			}
		}
	}
}

// pack puts entries into packets: as many of one type as fit, one after the other.
func pack(self wire.MemberID, entries []wire.Entry) (packets [][]byte) {
	var packet []byte
	var last wire.Type
	for _, e := range entries {
		more := e.Append(packet)
		if packet == nil || e.Type() != last || len(more) > wire.MaxPacket {
			if packet != nil {
				packets = append(packets, packet)
			}
			last = e.Type()
			more = wire.Encode(self, e)
		}
		packet = more
	}
	if packet == nil {
		return nil
	}
	return append(packets, packet)
}

// lease claims one of very many addresses, or sometimes a victim's.
func (r *rogueMember) lease(seq uint64, victims []netip.Addr, self wire.MemberID) wire.Lease {
	ip := netip.AddrFrom4([4]byte{10, 66, byte(r.rng.Uint32()), byte(r.rng.Uint32())})
	if r.rng.IntN(50) == 0 {
		ip = victims[r.rng.IntN(len(victims))]
	}
	return wire.Lease{
		Seq: seq, Gone: r.rng.IntN(20) == 0, Key: detector.Key{Network: "default", IP: ip},
		Claim: wire.Claim{
			Holder:   wire.Holder{Member: self, Netns: 1 + r.rng.Uint64N(100)},
			MAC:      detector.MAC{2, 0, 0, 0, 0, byte(r.rng.Uint32())},
			Evidence: detector.Announced, FirstSeen: time.Hour,
		},
	}
}

// falseEntries are about other nodes: holders that they do not have, withdrawals of real ones, and
// endless probe requests.
func (r *rogueMember) falseEntries(seq uint64, victims []netip.Addr, self wire.MemberID, others []wire.MemberID) []wire.Entry {
	key := detector.Key{Network: "default", IP: victims[r.rng.IntN(len(victims))]}
	other := wire.Holder{Member: others[r.rng.IntN(len(others))], Netns: 1 + r.rng.Uint64N(5000)}
	claim := wire.Claim{Holder: other, Evidence: detector.Announced, FirstSeen: time.Minute, LastSeen: time.Second}
	own := claim
	own.Holder.Member = self
	return []wire.Entry{
		wire.Rival{Key: key, Total: 5, Claims: []wire.Claim{claim, own}},
		wire.Verified{Key: key, Outcome: cluster.Gone, Claim: wire.Claim{Holder: other}},
		wire.Verified{ID: 1 + r.rng.Uint64N(100), Key: key, Outcome: cluster.Answered, Claim: own},
		wire.Ask{ID: seq, Key: key, Holder: other, Claims: []wire.Claim{own}},
		wire.Query{ID: seq, Kind: cluster.QueryBindings, All: true},
		wire.Pair{A: "a/1", B: fmt.Sprintf("node-%d/2", r.rng.IntN(10000)), Origin: self, Seq: seq, Addresses: 7},
	}
}

// spoiled are a few packets of others, changed or as they were.
func (r *rogueMember) spoiled() (packets [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := forger{rng: r.rng}
	for range min(3, len(r.real)) {
		p := r.real[r.rng.IntN(len(r.real))]
		if r.rng.IntN(3) > 0 {
			p = f.spoil(p)
		}
		packets = append(packets, p[:min(len(p), wire.MaxPacket)])
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
	// member's, and the storm may delay that broadcast.
	ctx, cancel := context.WithTimeout(s.Context(), healTime)
	defer cancel()
	for _, n := range s.nodes {
		s.Do(n.agent.WaitMembers(ctx, len(s.nodes)+1))
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
	secret := newKey()
	key := keyFile(t, t.TempDir(), secret)
	s := newTestCluster(t, 6, "--gossip-key-file", key)
	s.part(t, "packets are forged without the key", func(s *testCluster) { s.withstandForgery(s.Node("outsider"), nil) })
	s.part(t, "packets are forged with the key", func(s *testCluster) {
		opened, err := base64.StdEncoding.DecodeString(secret)
		s.Do(err)
		s.withstandForgery(s.Node("insider"), opened)
	})
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
	stop := s.startRogue(n, orders{
		Bind: n.Uplink().String(), Label: flags[slices.Index(flags, "--cluster")+1], KeyFile: key,
		Join: []string{s.nodes[0].Uplink().String()}, Members: len(s.nodes) + 1,
		Leases: 50_000, Victims: slices.Concat(victims.ips, before.ips),
	})
	began := time.Now()
	for i := range 3 {
		d := s.duplicate(s.nodes[i], s.nodes[i+2])
		s.Logf("beside the rogue: found after %.1f s", s.waitFound(d, d.began, patience).Seconds())
	}
	s.join(victims, s.nodes[5])
	s.Logf("an address that the rogue claims: found after %.1f s", s.waitFound(victims, victims.holders[1].pod.Started, patience).Seconds())
	s.holdsFor(stormTime-time.Since(began), func() { s.assertUnchanged(before) })
	s.survived(memory)
	did := stop()
	s.Logf("the rogue: %+v in %.1f s", did, time.Since(began).Seconds())
	for _, n := range s.nodes {
		status, err := s.status(n.agent)
		s.Do(err)
		if n == s.nodes[0] {
			s.Logf("%s keeps %d leases, dropped %v", n.ShortName(), status.Kept, nonzero(status.Dropped))
		}
		if status.Dropped["lease rate of a node"] == 0 {
			s.Errorf("%s took all leases: dropped %v", n.ShortName(), nonzero(status.Dropped))
		}
		if status.Kept > 16384+1000 {
			s.Errorf("%s keeps %d leases", n.ShortName(), status.Kept)
		}
	}
	s.waitAllMembers()
	s.assertUnchanged(before, victims)
}
