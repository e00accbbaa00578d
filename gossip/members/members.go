// Package members is this node's membership in the cluster, over hashicorp/memberlist:
// who is there, how to reach them, and bytes to and from them.
//
// It finds the others by the join list, by name service, and by what it remembers of
// earlier members; it comes back after a cut however long; it changes keys while it
// runs; and it says what keeps members apart. It knows neither addresses of pods nor the
// meaning of a packet.
package members

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// DefaultPort is the port of gossip, UDP and TCP.
	DefaultPort = 7951
	// MaxLabel is the maximum length of a label in bytes: with a longer one the largest
	// packet would not fit into a datagram of an ordinary network.
	MaxLabel = 64

	// packetBudget is what a datagram may have above UDP: a packet with label, checksum
	// and encryption stays below it.
	packetBudget = 1400
	// handoffDepth is how many messages may wait for the handler. They are taken newest
	// first, and what comes on top is dropped.
	handoffDepth = 4096
	leaveTimeout = 5 * time.Second
)

// ErrUnknownMember says that a member is not there, or not any more.
var ErrUnknownMember = errors.New("no such member")

// Options are the identity of this agent, where it listens, and how it finds other agents.
type Options struct {
	// Log defaults to slog.Default.
	Log *slog.Logger
	// Node, Boot and Epoch are this agent's identity: the node's name, the kernel's boot
	// id, and the boot-time clock at the agent's start in nanoseconds.
	Node, Boot string
	Epoch      int64
	// Version is the agent's version, which other agents show.
	Version string
	// Bind is the address to listen on, empty for all; Port 0 is any free one.
	Bind string
	Port int
	// Advertise is where other agents reach this one: an address or a name, with or without
	// a port. Empty is Bind, or else the source address of the default route.
	Advertise string
	// Join names the members to join: addresses or DNS names, which stand for all their
	// addresses, with or without a port. Names are resolved for each join.
	Join []string
	// Label is the cluster's name: messages of other clusters are dropped. At most MaxLabel
	// bytes.
	Label string
	// KeyFile has the keys that encrypt gossip, one a line: 16, 24 or 32 bytes in base64.
	// The first encrypts, all decrypt; lines that begin with # are skipped. It is read again
	// when it changes. Empty is none.
	KeyFile string
	// PeersFile is where the known members are saved; empty saves none.
	PeersFile string
	// Transport replaces the network, for simulations.
	Transport memberlist.Transport
	// Handler receives packets as soon as Open listens, and changes of members while Run
	// runs.
	Handler Handler
}

// Handler hears of packets and members. Packet is called from several goroutines, the
// other methods from one, in order: a member that joined is told before it left. They
// must not block. A packet must be copied if it is kept.
type Handler interface {
	// Packet is a message that another member sent or broadcast.
	Packet(payload []byte)
	// Joined tells that another member is there, or there again.
	Joined(Member)
	// Updated tells that it says something else of itself.
	Updated(Member)
	// Left tells that a member said good-bye, or is taken for dead.
	Left(member Member, gracefully bool)
}

// Member is one incarnation of an agent. Its Unacked is not filled here.
type Member struct {
	ID wire.MemberID
	cluster.Member
	joined time.Time
}

// Members is the membership. Its methods are safe for concurrent use.
type Members struct {
	log     *slog.Logger
	opts    Options
	handler Handler
	label   string
	port    int // of join addresses without one

	list       *memberlist.Memberlist
	transport  *guard
	metadata   []byte
	keys       *keys // nil without encryption
	peers      *peersFile
	noise      *noise
	table      *table
	broadcasts memberlist.TransmitLimitedQueue
	joins      *joins

	strangers *strangers

	drops   drops
	trouble trouble
	asking  sync.Mutex // one snapshot at a time
	asked   time.Time  // when the last was taken
	started atomic.Bool
	leaving atomic.Bool // memberlist has this node for gone
}

// Open listens, but does not join yet. [Members.Run] must be called, which also closes
// what Open opened. Errors are for users.
func Open(opts Options) (*Members, error) {
	if opts.Log == nil {
		opts.Log = slog.Default()
	}
	m := &Members{
		log: opts.Log, opts: opts, handler: opts.Handler, label: opts.Label, port: opts.Port,
	}
	if m.port == 0 {
		m.port = DefaultPort
	}
	self, err := m.identify()
	if err != nil {
		return nil, err
	}
	targets, err := parseTargets(opts.Join, m.port)
	if err != nil {
		return nil, err
	}
	if opts.KeyFile != "" {
		if m.keys, err = openKeys(opts.KeyFile, m.log); err != nil {
			return nil, err
		}
	}
	m.table = newTable(self)
	m.noise = newNoise(m.log, &m.drops, &m.trouble)
	m.peers = openPeers(opts.PeersFile, m.log)
	m.strangers = newStrangers(m.table.knows, m.table.live)
	m.joins = newJoins(targets, m.peers.known(), time.Now())
	m.broadcasts.RetransmitMult = 4
	m.broadcasts.NumNodes = m.table.live
	if err := m.listen(memberName(self.Name, self.ID)); err != nil {
		return nil, err
	}
	return m, nil
}

// identify checks the options that say who this agent is.
func (m *Members) identify() (Member, error) {
	o := m.opts
	if err := errors.Join(
		wantText("node name", o.Node, maxName, true),
		wantText("boot id", o.Boot, maxBoot, true),
		wantText("version", o.Version, maxVersion, false),
	); err != nil {
		return Member{}, err
	}
	if len(o.Label) > MaxLabel {
		return Member{}, fmt.Errorf("the cluster name has %d bytes; %d are allowed", len(o.Label), MaxLabel)
	}
	id := identity{Name: o.Node, Boot: o.Boot, Epoch: o.Epoch, Version: o.Version}
	m.metadata = id.encode()
	return id.member(), nil
}

// listen opens the transport and the memberlist upon it.
func (m *Members) listen(name string) error {
	conf := memberlist.DefaultLANConfig()
	conf.Name = name
	conf.Label = m.label
	conf.EnableCompression = false
	conf.HandoffQueueDepth = handoffDepth
	conf.UDPBufferSize = packetBudget
	conf.Logger = log.New(m.noise, "", 0)
	hooks := (*hooks)(m)
	conf.Delegate, conf.Events, conf.Alive, conf.Ping = hooks, hooks, hooks, hooks
	conf.BindPort = m.port
	if m.keys != nil {
		conf.Keyring = m.keys.ring
	}
	inner := m.opts.Transport
	if inner == nil {
		var opens *seals
		if m.keys != nil {
			opens = &seals{ring: m.keys.ring, label: m.label}
		}
		network, err := listenNetwork(m.opts.Bind, m.opts.Port, opens, &m.drops)
		if err != nil {
			return err
		}
		at, err := advertised(m.opts.Advertise, m.opts.Bind, network.port())
		if err != nil {
			network.Shutdown()
			return err
		}
		conf.AdvertiseAddr, conf.AdvertisePort = at.Addr().String(), int(at.Port())
		inner = network
	} else {
		conf.AdvertiseAddr, conf.AdvertisePort = m.opts.Advertise, m.port
	}
	m.transport = newGuard(inner)
	conf.Transport = m.transport
	list, err := memberlist.Create(conf)
	if err != nil {
		m.transport.Shutdown()
		return fmt.Errorf("starting gossip: %w", err)
	}
	m.list = list
	self := list.LocalNode()
	at, err := addressOf(self.Addr, self.Port)
	if err != nil {
		list.Shutdown()
		return fmt.Errorf("starting gossip: own address: %w", err)
	}
	m.table.locate(at)
	if m.keys == nil && !at.Addr().IsLoopback() {
		level := slog.LevelInfo
		if !at.Addr().IsPrivate() && !at.Addr().IsLinkLocalUnicast() {
			level = slog.LevelWarn
		}
		m.log.Log(context.Background(), level, "gossip is not encrypted: everybody who reaches this address, also a pod, can read and forge it; give --gossip-key-file",
			"address", at)
	}
	return nil
}

// Self is this agent itself.
func (m *Members) Self() Member { return m.table.me() }

// Run joins the cluster, and joins again whatever was lost, until ctx ends; then it says
// good-bye, waits for it up to 5 s, and closes the listeners. Call it once.
func (m *Members) Run(ctx context.Context) error {
	if m.started.Swap(true) {
		return errors.New("members: Run was called before")
	}
	work, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { m.tell(work) })
	wg.Go(func() { m.duel(work) })
	wg.Go(func() { m.join(ctx) })
	wg.Go(func() { m.seek(ctx) })
	wg.Go(func() { m.inquire(ctx) })
	wg.Go(func() { m.remember(ctx) })
	if m.keys != nil {
		wg.Go(func() { m.keys.watch(ctx) })
	}
	<-ctx.Done()
	m.peers.write(m.table.addresses())
	m.leave()
	cancel()
	err := m.list.Shutdown()
	wg.Wait()
	return err
}

// leave says good-bye to the others, for as long as there are any.
func (m *Members) leave() {
	said := make(chan error, 1)
	go func() { said <- m.list.Leave(leaveTimeout) }()
	alone := time.NewTicker(50 * time.Millisecond)
	defer alone.Stop()
	for {
		select {
		case err := <-said:
			if err != nil {
				m.log.Warn("leaving the cluster failed; other nodes will see this node as dead", "error", err)
			}
			return
		case <-alone.C:
			// memberlist goes on waiting when the last of the others leaves meanwhile. It
			// must have begun: to leave after the end is a panic there.
			if m.table.live() == 1 && m.leaving.Load() {
				return
			}
		}
	}
}

// Send sends a packet of at most [wire.MaxPacket] bytes to a member, by one datagram that
// may be lost. It does not wait.
func (m *Members) Send(id wire.MemberID, packet []byte) error {
	if len(packet) > wire.MaxPacket {
		m.drops.add(dropOversize)
		return fmt.Errorf("sending %d bytes: a packet has %d at most", len(packet), wire.MaxPacket)
	}
	node, ok := m.table.route(id)
	if !ok {
		return ErrUnknownMember
	}
	if err := m.list.SendBestEffort(&node, packet); err != nil {
		m.drops.add(dropUnsent)
		return fmt.Errorf("sending to %s: %w", node.Name, err)
	}
	return nil
}

// addressOf is an address that a member may have.
func addressOf(ip net.IP, port uint16) (netip.AddrPort, error) {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("an address of %d bytes", len(ip))
	}
	at := netip.AddrPortFrom(addr.Unmap(), port)
	return at, wantReachable(at)
}

// wantReachable refuses what cannot be a member's address.
func wantReachable(at netip.AddrPort) error {
	addr := at.Addr()
	switch {
	case !addr.IsValid(), addr.IsUnspecified(), addr.IsMulticast(), addr == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return fmt.Errorf("%s is not the address of one node", addr)
	case addr.Zone() != "":
		return fmt.Errorf("%s is valid on one link only", addr)
	case at.Port() == 0:
		return fmt.Errorf("%s has no port", addr)
	}
	return nil
}
