// Package members is this agent's membership in the cluster, over hashicorp/memberlist: who is there
// and how to reach them.
//
// It finds the others by the join list, by name service and by what it remembers of earlier members, and
// finds them again after a partition, however long. It knows neither addresses of pods nor the meaning of
// a message. Only memberlist's public interface is used: that knows who is a member, and neither whom it
// suspects nor who left; see [metadata] for the latter.
package members

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// DefaultPort is the port of gossip, UDP and TCP.
	DefaultPort = 7951
	// MaxLabel is the maximum length of a label in bytes.
	MaxLabel = 64
	// maxMembers is how many members there may be. More are refused.
	maxMembers = 16384
	// leaveTimeout is how long each of the two steps of a leave may take.
	leaveTimeout = time.Second
)

// ErrUnknownMember says that a member is not there, or not any more.
var ErrUnknownMember = errors.New("no such member")

// Options are the identity of this agent, where it listens, and how it finds other agents.
type Options struct {
	Log *slog.Logger // nil is slog.Default
	// Node, Boot and Epoch are this agent's identity: the node's name, the kernel's boot id, and the
	// boot-time clock at the agent's start in nanoseconds. Version is shown by other agents.
	Node, Boot string
	Epoch      int64
	Version    string
	// Role is what this member is: empty is an agent.
	Role cluster.Role
	// Bind is the address to listen on, empty for all; Port 0 is any free one.
	Bind string
	Port int
	// Advertise is where other agents reach this one: an address or a name, with or without a port.
	// Empty is Bind, or else the source address of the default route.
	Advertise string
	// Join names the members to join: addresses or DNS names, which stand for all their addresses, with
	// or without a port.
	Join []string
	// Label is the cluster's name, at most MaxLabel bytes. Agents of other clusters are refused.
	Label string
	// KeyFile has the keys, see [transport.OpenKeys]. Without it, Insecure must be set, see [CheckKey].
	KeyFile  string
	Insecure bool
	// PeersFile is where known members are saved; empty saves none.
	PeersFile string
	// Sockets replace those of the machine, for simulations. Advertise is their address then.
	Sockets transport.Sockets
	// Handler receives messages as soon as Open listens, and changes of members.
	Handler Handler
}

// Handler is notified of messages and members. Its methods are called from several goroutines and must
// not block, but for Serve. A member's changes come in order.
type Handler interface {
	transport.Handler
	// Joined reports that a member is there, or there again.
	Joined(Member)
	// Left reports that a member has left, or does not answer any more.
	Left(member Member, gracefully bool)
}

// Member is one incarnation of an agent. Its state is not filled here.
type Member struct {
	ID wire.MemberID
	cluster.Member
}

// Members is the membership. Its methods are safe for concurrent use.
type Members struct {
	opts      Options
	log       *slog.Logger
	self      Member
	port      int // of join addresses without one
	list      *memberlist.Memberlist
	transport *transport.Transport
	leaving   atomic.Bool
	peers     *peersFile
	joins     *joins
	unknown   unknown
	rejoin    chan struct{}

	mu      sync.Mutex
	present map[wire.MemberID]presence
	health  health
}

// presence is a member that memberlist considers there.
type presence struct {
	Member
	at   netip.AddrPort
	left bool // it said so
}

// ErrNoKey says that a key is missing.
var ErrNoKey = errors.New("gossip needs a key: make one (head -c 32 /dev/urandom | base64 > FILE) and give it to all nodes with --gossip-key-file; " +
	"with --insecure-gossip instead, anybody who reaches the port can read and forge gossip")

// Open listens, but does not join yet. [Members.Run] must be called, which also closes what Open opened.
// Errors are for users.
func Open(opts Options) (*Members, error) {
	m := &Members{opts: opts, log: opts.Log, port: opts.Port, rejoin: make(chan struct{}, 1), present: make(map[wire.MemberID]presence)}
	if m.log == nil {
		m.log = slog.Default()
	}
	if m.port == 0 {
		m.port = DefaultPort
	}
	if err := m.identify(); err != nil {
		return nil, err
	}
	if err := CheckKey(opts); err != nil {
		return nil, err
	}
	targets, err := parseTargets(opts.Join, m.port)
	if err != nil {
		return nil, err
	}
	m.peers = openPeers(opts.PeersFile, m.log)
	m.joins = newJoins(targets, m.peers.known(), time.Now())
	m.unknown.init()
	if err := m.listen(); err != nil {
		return nil, err
	}
	return m, nil
}

// identify checks the options that say who this agent is.
func (m *Members) identify() error {
	o := m.opts
	if err := errors.Join(
		checkText("node name", o.Node, maxName, true),
		checkText("boot id", o.Boot, maxBoot, true),
		checkText("version", o.Version, maxVersion, false),
	); err != nil {
		return err
	}
	if len(o.Label) > MaxLabel {
		return fmt.Errorf("the cluster name has %d bytes; %d are allowed", len(o.Label), MaxLabel)
	}
	m.self = m.metadata().member()
	return nil
}

// metadata is what this agent says of itself now.
func (m *Members) metadata() metadata {
	o := m.opts
	return metadata{Name: o.Node, Boot: o.Boot, Epoch: o.Epoch, Version: o.Version, Role: string(o.Role), Leaving: m.leaving.Load()}
}

// listen opens the transport and the memberlist upon it.
func (m *Members) listen() error {
	sockets, port := m.opts.Sockets, m.port
	if sockets == nil {
		listener, err := transport.Listen(m.opts.Bind, m.opts.Port)
		if err != nil {
			return err
		}
		sockets, port = listener, listener.Port()
	}
	at, err := advertised(m.opts.Advertise, m.opts.Bind, port)
	if err != nil {
		sockets.Close()
		return err
	}
	local := at.Addr().IsLoopback() || at.Addr().IsLinkLocalUnicast()
	m.self.Address = at.String()
	m.transport, err = transport.New(transport.Options{
		Log: m.log, ID: m.self.ID, Label: m.opts.Label, KeyFile: m.opts.KeyFile,
		Handler: (*receiver)(m), MemberID: nameID, Sockets: sockets, AllowLocal: local,
	})
	if err != nil {
		return err
	}
	conf := memberlist.DefaultLANConfig()
	conf.Name = memberName(m.self.Name, m.self.ID)
	conf.AdvertiseAddr, conf.AdvertisePort, conf.BindPort = at.Addr().String(), int(at.Port()), int(at.Port())
	conf.EnableCompression = false
	conf.UDPBufferSize = transport.MaxPayload
	conf.Logger = log.New(io.Discard, "", 0) // what matters, the transport knows, and without a flood of lines
	hooks := (*hooks)(m)
	conf.Delegate, conf.Events, conf.Alive, conf.Ping = hooks, hooks, hooks, hooks
	conf.Transport = m.transport
	if m.list, err = memberlist.Create(conf); err != nil {
		m.transport.Shutdown()
		return fmt.Errorf("starting gossip: %w", err)
	}
	if m.opts.Insecure && m.opts.KeyFile == "" {
		m.log.Warn("gossip is not encrypted: everybody who reaches this address, also a pod, can read and forge it, and make this agent use memory; "+
			"give --gossip-key-file instead of --insecure-gossip", "address", at)
	}
	return nil
}

// Self is this agent.
func (m *Members) Self() Member { return m.self }

// Run joins the cluster, and joins again whatever was lost, until ctx ends; then it leaves, within two
// seconds, and closes what is open. Call it once.
func (m *Members) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { m.join(ctx) })
	wg.Go(func() { m.resync(ctx) })
	wg.Go(func() { m.remember(ctx) })
	<-ctx.Done()
	m.peers.write(m.addresses())
	m.leave()
	err := m.list.Shutdown()
	wg.Wait()
	return err
}

// leave tells the others that this agent leaves. Memberlist's own message does not say whether a member
// left or died, so that the metadata says it first.
func (m *Members) leave() {
	if m.list.NumMembers() <= 1 {
		return
	}
	m.leaving.Store(true)
	if err := m.list.UpdateNode(leaveTimeout); err != nil {
		m.log.Debug("leaving", "error", err)
	}
	if err := m.list.Leave(leaveTimeout); err != nil {
		m.log.Debug("leaving", "error", err)
	}
}

// Send sends a message of at most [transport.MaxPayload] bytes to a member, by one datagram that may be
// lost. It does not block.
func (m *Members) Send(to wire.MemberID, payload []byte) error {
	at, ok := m.at(to)
	if !ok {
		return ErrUnknownMember
	}
	if err := m.transport.Send(to, at, payload); err != nil {
		return fmt.Errorf("sending to %s: %w", at, err)
	}
	return nil
}

// Request sends a request to a member and waits for the reply until ctx ends, see [transport.Transport.Request].
func (m *Members) Request(ctx context.Context, to wire.MemberID, request []byte, reading chan struct{}) ([]byte, error) {
	at, ok := m.at(to)
	if !ok {
		return nil, ErrUnknownMember
	}
	reply, err := m.transport.Request(ctx, to, at, request, reading)
	if err != nil {
		return nil, fmt.Errorf("requesting from %s: %w", at, err)
	}
	return reply, nil
}

func (m *Members) at(id wire.MemberID) (netip.AddrPort, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	p, ok := m.present[id]
	return p.at, ok
}

// addresses are where the other members are, in no order.
func (m *Members) addresses() map[netip.AddrPort]bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := make(map[netip.AddrPort]bool, len(m.present))
	for _, p := range m.present {
		all[p.at] = true
	}
	return all
}

// count is the number of members, with this one.
func (m *Members) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.present) + 1
}

// addressOf is the address that memberlist knows of a member.
func addressOf(ip net.IP, port uint16) (netip.AddrPort, error) {
	addr, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.AddrPort{}, fmt.Errorf("an address of %d bytes", len(ip))
	}
	at := netip.AddrPortFrom(addr.Unmap(), port)
	return at, transport.CheckAddress(at)
}
