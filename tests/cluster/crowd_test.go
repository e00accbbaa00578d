package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/lab"
)

const (
	// crowdSize is how many agents a crowd has, and crowdPods how many addresses each of their nodes.
	crowdSize, crowdPods = 5000, 110
	// summaryEvery is how often gossip repeats a summary.
	summaryEvery = 2 * time.Minute
	// exchangeEvery is how often a member of 5,000 exchanges its list with another: memberlist begins one in 270 s, and each takes part in two.
	exchangeEvery = 135 // seconds
)

// crowdRange has the addresses of their nodes.
var crowdRange = netip.MustParsePrefix("10.100.0.0/16")

// crowd is thousands of agents in one process and one netns, as members outside see them: each has an address and sockets, and the real
// transport and gossip, with which it sends reports and answers queries. Its memberlist answers, and refutes suspicions, but has no other
// member: 5,000 lists of 5,000 take 12 GB. Only the first agent has the whole list. Agents of a crowd do not talk to each other.
type crowd struct {
	*testCluster
	node    *lab.Node
	agents  []*crowdAgent
	outside []outsider
	// bindings returns what an agent has, and its hash; zero if it does not say when that changes.
	bindings func(*crowdAgent) ([]detector.Binding, uint64)

	mu sync.Mutex // of the agents' conflicts, and of outside
}

// crowdAgent implements [gossip.Network], and what memberlist calls.
type crowdAgent struct {
	crowd     *crowd
	number    int
	gossip    *gossip.Gossip
	handler   members.Handler
	transport *transport.Transport
	list      *memberlist.Memberlist
	name      string // in memberlist
	id        string // the NodeID
	at        netip.Addr
	metadata  metadata
	conflicts []detector.Conflict
}

// metadata is what a member says of itself, as in package members.
type metadata struct {
	Name    string `cbor:"1,keyasint"`
	Boot    string `cbor:"2,keyasint"`
	Epoch   int64  `cbor:"3,keyasint"`
	Version string `cbor:"4,keyasint,omitempty"`
	Role    string `cbor:"5,keyasint,omitempty"`
}

// startCrowd starts a crowd that joins the agents and reporters. It ends with the test.
func (c *testCluster) startCrowd(reporters int, bindings func(*crowdAgent) ([]detector.Binding, uint64)) *crowd {
	c.Helper()
	w := &crowd{testCluster: c, node: c.Node("crowd"), bindings: bindings}
	c.Do(w.node.Exec(exec.Command("ip", "route", "add", "local", crowdRange.String(), "dev", "lo").Run))
	for _, m := range c.Machines {
		_, err := m.Run(c.Context(), "ip", "route", "add", crowdRange.String(), "via", w.node.Uplink().String())
		c.Do(err)
	}
	key, err := c.Shell(`kubectl -n dupip get secret dupip-gossip -o jsonpath='{.data.gossip\.key}' | base64 -d`)
	c.Do(err)
	keyFile := filepath.Join(c.Dir(), "crowd.key")
	c.Do(os.WriteFile(keyFile, []byte(key), 0o600))

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	c.Cleanup(func() { cancel(); wg.Wait() })
	c.Do(w.node.Exec(func() error { // for the sockets
		for n := range crowdSize {
			if err := w.add(n, keyFile); err != nil {
				return err
			}
			a := w.agents[n]
			wg.Go(func() { _ = a.gossip.Run(ctx) })
			wg.Go(func() { a.live(ctx) })
		}
		return nil
	}))
	c.eventually("the members outside", func() error { return w.find(len(c.Machines) + reporters) })
	var joining errgroup.Group
	joining.SetLimit(64)
	for _, a := range w.agents {
		joining.Go(func() error { return a.join(ctx) })
	}
	c.Do(joining.Wait())
	c.eventually("the whole list", func() error {
		err := w.find(crowdSize - 1 + len(w.outside))
		if err != nil {
			w.remind()
		}
		return err
	})
	wg.Go(func() { w.keep(ctx) })
	return w
}

// add adds an agent.
func (w *crowd) add(number int, keyFile string) (err error) {
	boot := fmt.Sprintf("6d3c9a2e-5b1f-4f0e-9c57-%012x", number)
	a := &crowdAgent{crowd: w, number: number, metadata: metadata{Name: fmt.Sprintf("worker-%d", number), Boot: boot, Epoch: 1e9, Version: "0.2.0"}}
	first := crowdRange.Addr().As4()
	a.at = netip.AddrFrom4([4]byte{first[0], first[1], byte(number/250 + 1), byte(number%250 + 1)})
	a.id = cluster.NodeID(a.metadata.Name, boot)
	a.gossip, err = gossip.New(gossip.Options{
		Members: members.Options{Log: slog.New(slog.DiscardHandler), Node: a.metadata.Name, Boot: boot, Epoch: a.metadata.Epoch, KeyFile: keyFile},
		Open:    a.open,
	})
	w.agents = append(w.agents, a)
	return err
}

// open listens.
func (a *crowdAgent) open(o members.Options) (gossip.Network, error) {
	listener, err := transport.Listen(a.at.String(), lab.GossipPort)
	if err != nil {
		return nil, err
	}
	a.handler = o.Handler
	id := wire.MemberIDOf(o.Node, o.Boot, o.Epoch)
	a.name = fmt.Sprintf("%s/%016x", o.Node, uint64(id))
	a.transport, err = transport.New(transport.Options{
		Log: o.Log, ID: id, KeyFile: o.KeyFile, Handler: o.Handler, MemberID: nameID, Sockets: crowdSockets{listener, a.crowd.node},
	})
	if err != nil {
		return nil, err
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name, conf.AdvertiseAddr, conf.AdvertisePort, conf.BindPort = a.name, a.at.String(), lab.GossipPort, lab.GossipPort
	conf.EnableCompression, conf.UDPBufferSize = false, transport.MaxPayload-7 // as package members has them
	conf.GossipInterval, conf.PushPullInterval, conf.ProbeInterval = 0, 0, time.Hour
	conf.RetransmitMult = 16 // its own news go with its first pings, see join
	conf.Logger = log.New(io.Discard, "", 0)
	conf.Delegate, conf.Alive, conf.Transport = a, a, a.transport
	a.list, err = memberlist.Create(conf)
	return a, err
}

// nameID returns the incarnation in a name of memberlist.
func nameID(name string) (wire.MemberID, bool) {
	_, text, _ := strings.Cut(name, "/")
	id, err := strconv.ParseUint(text, 16, 64)
	return wire.MemberID(id), err == nil
}

// crowdSockets connects from a netns.
type crowdSockets struct {
	*transport.Listener
	node *lab.Node
}

func (s crowdSockets) Dial(ctx context.Context, to netip.AddrPort) (conn net.Conn, err error) {
	err = s.node.Exec(func() (err error) {
		conn, err = s.Listener.Dial(ctx, to)
		return err
	})
	return conn, err
}

// What memberlist calls.

func (a *crowdAgent) NodeMeta(int) []byte             { return wire.Marshal(a.metadata) }
func (a *crowdAgent) NotifyMsg([]byte)                {}
func (a *crowdAgent) GetBroadcasts(int, int) [][]byte { return nil }
func (a *crowdAgent) LocalState(bool) []byte          { return nil }
func (a *crowdAgent) MergeRemoteState([]byte, bool)   {}

func (a *crowdAgent) NotifyAlive(n *memberlist.Node) error {
	if a.number == 0 || n.Name == a.name {
		return nil
	}
	return errors.New("only the first agent has a list")
}

// What gossip calls.

func (a *crowdAgent) Run(ctx context.Context) error {
	<-ctx.Done()
	return a.list.Shutdown()
}

func (a *crowdAgent) LeaveSoon() {}

func (a *crowdAgent) Send(to wire.MemberID, payload []byte) error {
	for _, o := range a.crowd.others() {
		if o.ID == to {
			return a.transport.Send(to, o.at, payload)
		}
	}
	return members.ErrUnknownMember
}

func (a *crowdAgent) Request(context.Context, wire.MemberID, []byte, chan struct{}, func([]byte) error) error {
	return members.ErrUnknownMember
}

func (a *crowdAgent) Rejoin() {}

func (a *crowdAgent) Status() cluster.Status {
	return cluster.Status{Address: netip.AddrPortFrom(a.at, lab.GossipPort).String()}
}

func (a *crowdAgent) Cut() (from, until time.Time) { return from, until }

// summarize sends a summary, which gossip repeats.
func (a *crowdAgent) summarize() {
	summary := cluster.Summary{Version: a.metadata.Version, Interfaces: map[string]int{"attached": crowdPods}, Findings: make(map[string]int)}
	if a.number%100 == 0 { // so it may be somewhere
		summary.Findings[document.Unreserved+" address"] = 1
	}
	_, summary.Bindings = a.crowd.bindings(a)
	a.gossip.ReportSummary(summary)
}

// live sends a summary, and answers queries.
func (a *crowdAgent) live(ctx context.Context) {
	a.summarize()
	for {
		select {
		case <-ctx.Done():
			return
		case m := <-a.gossip.Messages():
			if q, ok := m.(cluster.Query); ok {
				go a.answer(q)
			}
		}
	}
}

// answer says what the agent knows. It has no stories and findings.
func (a *crowdAgent) answer(q cluster.Query) {
	d := document.Answer{At: time.Now()}
	switch q.Kind {
	case cluster.QueryBindings:
		bindings, _ := a.crowd.bindings(a)
		for _, b := range bindings {
			d.Bindings = append(d.Bindings, document.NewBinding(b))
		}
	case cluster.QueryConflicts:
		a.crowd.mu.Lock()
		conflicts := slices.Clone(a.conflicts)
		a.crowd.mu.Unlock()
		for _, c := range conflicts {
			doc := document.NewConflict(c)
			own := slices.IndexFunc(doc.Holders, func(b document.Binding) bool { return b.NodeID() == a.id })
			doc.Routes = []document.Route{{To: document.ToHolder, Holder: &own, Device: "cni0"}}
			d.Conflicts = append(d.Conflicts, doc)
		}
	}
	if packed, err := d.Encode(q.Limit); err == nil {
		q.Answer <- packed
	}
}

// crowdBindings are those of crowdPods pods, which never change.
func crowdBindings(a *crowdAgent) (list []detector.Binding, hash uint64) {
	for pod := range crowdPods {
		list = append(list, a.binding(netip.AddrFrom4([4]byte{10, 110 + byte(a.number>>8), byte(a.number), byte(pod + 1)}), pod))
	}
	return list, 0
}

// conflictPod is the number of the pod of each node that has a conflict.
const conflictPod = crowdPods

// binding is that of a pod of the node.
func (a *crowdAgent) binding(ip netip.Addr, pod int) detector.Binding {
	uid := fmt.Sprintf("0b5e3f5a-93c1-4e0e-8d1c-%012x", a.number<<16|pod)
	return detector.Binding{
		Key: detector.Key{Network: "default", IP: ip}, Evidence: detector.Announced, FirstSeen: time.Now().Add(-time.Hour), LastSeen: time.Now(),
		Holder: detector.Holder{
			ID: detector.HolderID{Node: a.id, Netns: uint64(pod + 4000)}, Interface: detector.Interface{Ifindex: uint32(pod + 10), Generation: 1},
			InterfaceName: fmt.Sprintf("veth%08x", a.number<<8|pod), MAC: detector.MAC{0x0a, 0x58, byte(a.number >> 8), byte(a.number), byte(pod), 1},
			NetnsName: "cni-" + uid, Pod: detector.Pod{Namespace: "shop", Name: fmt.Sprintf("checkout-%d-%d", a.number, pod), UID: uid},
			CreatedAt: time.Now().Add(-time.Hour), Sandbox: detector.Sandbox{ID: uid[len(uid)-12:]}, Given: detector.GivenYes, Bridge: "cni0",
		},
	}
}

// raise confirms conflicts with these numbers, each on two nodes of its own.
func (w *crowd) raise(first, last int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := first; n < last; n++ {
		ip, now, pair := netip.AddrFrom4([4]byte{10, 200, byte(n >> 8), byte(n)}), time.Now(), []*crowdAgent{w.agents[n], w.agents[crowdSize-1-n]}
		conflict := detector.Conflict{
			ID: fmt.Sprintf("%08x-1", n), State: detector.Confirmed, Scope: detector.CrossNode, SecondSeen: now, SuspectedAt: now, ConfirmedAt: now,
			Key: detector.Key{Network: "default", IP: ip}, Holders: []detector.Binding{pair[0].binding(ip, conflictPod), pair[1].binding(ip, conflictPod)},
		}
		for _, a := range pair {
			a.conflicts = append(a.conflicts, conflict)
			a.gossip.ReportConflict(conflict.Key, true, func(at time.Time, most int) ([]byte, error) {
				return new(document.NewConflict(conflict)).EncodeReport(at, most)
			})
		}
	}
}
