package scale

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// A simulation is a whole cluster in one process.
type simulation struct {
	t       testing.TB
	random  *rand.Rand
	network *simnet.Network
	members *simulatedMembers // nil: real memberlists
	keyFile string
	agents  []*agent
	watch   *watch
	// lastNetns is the cookie of the youngest netns.
	lastNetns uint64

	mu sync.Mutex // of what follows
	// pods are the netns of each node's, by address.
	pods []map[detector.Key]uint64
	ends []*simnet.Endpoint
	past []simnet.Traffic // of the endpoints that a node had before
}

// loss is what the network does to packets.
const loss = 0.01

// replicas is how many keep an address.
const replicas = 3

func newSimulation(t testing.TB, size int, simulated bool) *simulation {
	seed := *seed
	tw := &simulation{
		t:      t,
		random: rand.New(rand.NewPCG(seed, 2)),
		network: simnet.New(simnet.Options{
			Seed: seed, Loss: loss, Delay: 300 * time.Microsecond, Jitter: 2 * time.Millisecond,
		}),
		agents: make([]*agent, size),
		pods:   make([]map[detector.Key]uint64, size),
		ends:   make([]*simnet.Endpoint, size),
		past:   make([]simnet.Traffic, size),
		watch:  newWatch(),
	}
	if !*plain {
		tw.keyFile = filepath.Join(t.TempDir(), "gossip.key")
		if err := os.WriteFile(tw.keyFile, []byte(base64.StdEncoding.EncodeToString(make([]byte, 32))), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if simulated {
		tw.members = newSimulatedMembers(tw.network, seed)
	}
	return tw
}

func nodeName(i int) string { return fmt.Sprintf("node-%04d", i) }

// bootID is a string in the form of a boot id.
func bootID(i int) string { return fmt.Sprintf("6d3c9a2e-5b1f-4f0e-9c57-%012x", i) }

func addrOf(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 100, byte(i >> 8), byte(i)}), 7951)
}

// keyOf is the address of pod p of node i.
func keyOf(i, p int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, byte(128 + i>>8), byte(i), byte(p)})}
}

// membership is how a node takes part in a cluster.
func (tw *simulation) membership(i int, epoch int64, endpoint *simnet.Endpoint) members.Options {
	var join []string
	for i := range min(*seeds, len(tw.agents)) {
		join = append(join, addrOf(i).String())
	}
	return members.Options{
		Log: slog.New(slog.DiscardHandler), Node: nodeName(i), Boot: bootID(i), Epoch: epoch, Version: "scale",
		Label: "scale", KeyFile: tw.keyFile, Join: join,
		Sockets: endpoint, Advertise: endpoint.Addr().String(),
	}
}

// boot starts the agent of a node.
func (tw *simulation) boot(i int) {
	epoch := time.Now().UnixNano()
	endpoint, err := tw.network.Listen(addrOf(i))
	if err != nil {
		tw.t.Error(err)
		return
	}
	a := newAgent(cluster.NodeID(nodeName(i), bootID(i)), endpoint, tw.watch.event)
	a.gossip, err = gossip.New(gossip.Options{
		Replicas: replicas, Members: tw.membership(i, epoch, endpoint),
		Open: func(opts members.Options) (gossip.Network, error) {
			n := network{endpoint: endpoint}
			opts.Handler = met{opts.Handler, &a.met}
			if tw.members == nil {
				n.Network, err = members.Open(opts)
			} else {
				a.member, err = tw.members.open(opts)
				n.Network = a.member
			}
			return n, err
		},
	})
	if err != nil {
		tw.t.Error(err)
		return
	}
	a.exchange.Cluster = requests{a.gossip, &a.count}
	ctx, stop := context.WithCancel(context.Background())
	a.stop, a.down = stop, ctx.Done()
	tw.mu.Lock()
	if old := tw.ends[i]; old != nil {
		tw.past[i] = tw.past[i].Add(old.Traffic())
	}
	tw.ends[i] = endpoint
	tw.agents[i] = a
	tw.mu.Unlock()
	for n := range tw.ownCount(i) {
		a.own = append(a.own, ownKey(i, n))
	}
	a.run(ctx)
}

// halt stops the agent of a node in order, and waits for it.
func (tw *simulation) halt(i int) {
	a := tw.agents[i]
	a.stop()
	a.stopped.Wait()
}

// close ends everything.
func (tw *simulation) close() {
	var all sync.WaitGroup
	for i, a := range tw.agents {
		if a != nil {
			all.Go(func() { tw.halt(i) })
		}
	}
	all.Wait()
	if tw.members != nil {
		tw.members.close()
	}
	tw.network.Close()
	// The timers and streams of memberlists end by themselves.
	time.Sleep(time.Minute)
}

// traffic returns what each node has sent so far.
func (tw *simulation) traffic() []simnet.Traffic {
	tw.mu.Lock()
	defer tw.mu.Unlock()
	list := make([]simnet.Traffic, len(tw.ends))
	for i, e := range tw.ends {
		list[i] = tw.past[i]
		if e != nil {
			list[i] = list[i].Add(e.Traffic())
		}
	}
	return list
}

// settle waits until no agent has a lease to send, and returns how often a lease was sent and how
// long ago the last one was.
func (tw *simulation) settle() (sent uint64, last time.Duration) {
	// Longer than a new keeper waits for a lease, or a lease that was lost twice for the
	// next attempt, and shorter than until the first refresh.
	const quiet = 9 * time.Second
	began := time.Now()
	changed := began
	for time.Since(changed) < quiet {
		sum := uint64(0)
		for _, a := range tw.agents {
			sum += a.gossip.Status().Sent["lease"]
		}
		if sum != sent {
			sent, changed = sum, time.Now()
		}
		time.Sleep(quiet / 3) // a status walks over all members
	}
	for _, a := range tw.agents {
		if n := a.gossip.Status().Unacked; n > 0 {
			tw.t.Errorf("%s: %d leases are not acknowledged", a.id, n)
		}
	}
	return sent, changed.Sub(began)
}

// counters are what the agents that there are have sent and dropped so far.
func (tw *simulation) counters() (sent, dropped map[*agent]map[string]uint64) {
	tw.mu.Lock()
	agents := slices.Clone(tw.agents)
	tw.mu.Unlock()
	sent, dropped = make(map[*agent]map[string]uint64), make(map[*agent]map[string]uint64)
	for _, a := range agents {
		if a != nil {
			s := a.gossip.Status()
			sent[a], dropped[a] = s.Sent, s.Dropped
		}
	}
	return sent, dropped
}
