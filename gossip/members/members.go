// Package members is this agent's membership in the cluster, over hashicorp/memberlist: who is there
// and how to reach them.
//
// It finds the others by the join list, by name service and by what it remembers of earlier members, and
// finds them again after a partition, however long. It knows neither addresses of pods nor the meaning of
// a message. Only memberlist's public interface is used: that knows who is a member, and neither whom it
// suspects nor who left; see [metadata] for the latter.
package members

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/netip"
	"regexp"
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
	// maxMembers is how many other members there may be. More are refused. Kubernetes is made for 5,000 nodes.
	maxMembers = 16384
	// leaveTimeout is how long each of the two steps of a leave may take.
	leaveTimeout = time.Second
	// checksum is what memberlist adds to a datagram that it has filled: 5 bytes, and 2 that it does not count.
	checksum = 7
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
	// Label is the cluster's name: at most 64 printable ASCII characters, no space at its ends. Agents of other clusters
	// are refused.
	Label string
	// KeyFile has the keys, see [transport.OpenKeys]. Only some need none, see [CheckKey].
	KeyFile string
	// MembersFile is where known members are saved; empty saves none.
	MembersFile string
	// Sockets replace those of the machine, for simulations. Advertise is their address then.
	Sockets transport.Sockets
	// Handler receives messages as soon as Open listens, and changes of members.
	Handler Handler
}

// Handler is notified of messages and members. Its methods are called from several goroutines and must
// not block, but for Serve. A member's changes come in order.
type Handler interface {
	transport.Handler
	// Joined reports that a member is there, or there again: it has answered at its address.
	Joined(Member)
	// Left reports that a member has left, or does not answer any more. Whatever others say, it was asked.
	Left(member Member, gracefully bool)
}

// Member is one incarnation of an agent. Its state is not filled here.
type Member struct {
	ID wire.MemberID
	cluster.Member
}

// Members is the membership. Its methods are safe for concurrent use.
type Members struct {
	opts       Options
	log        *slog.Logger
	self       Member
	list       *memberlist.Memberlist
	transport  *transport.Transport
	soon       sync.Once   // see LeaveSoon
	leavesSoon atomic.Bool // says the metadata
	leaving    atomic.Bool // says the answer to a challenge
	known      *knownFile
	joins      *joins
	alone      chan struct{} // has a value when the last other member was lost
	completing atomic.Bool   // a short list is completed
	unknown    resync        // members of which no news has come yet
	returned   resync        // members that were lost

	challenges chan struct{} // has a value for each that is under way

	mu       sync.Mutex
	present  map[wire.MemberID]presence // as memberlist says
	proofs   map[wire.MemberID]*proof
	answered time.Time                       // when any member answered last by UDP
	cut      struct{ from, until time.Time } // see Cut
}

// presence is a member that memberlist considers there.
type presence struct {
	Member
	at   netip.AddrPort
	left bool // it said so
}

// ErrNoKey says that a key is missing.
var ErrNoKey = errors.New("gossip needs a key: make one (head -c 32 /dev/urandom | base64 > FILE) and give it to all nodes with --gossip-key-file")

// CheckKey returns [ErrNoKey] for an agent that needs a key and has none. Those that listen on loopback only need none, nor do simulated ones.
func CheckKey(opts Options) error {
	if addr, err := netip.ParseAddr(opts.Bind); opts.KeyFile != "" || opts.Sockets != nil || err == nil && addr.IsLoopback() {
		return nil
	}
	return ErrNoKey
}

// validLabel: a line break at the end would be another cluster, and nobody would see why.
var validLabel = regexp.MustCompile(`^([!-~]([ -~]{0,62}[!-~])?)?$`)

// Check refuses options that are wrong on every machine: addresses, names and ports. It does not listen, and asks no
// name service. Errors are for users.
func (o Options) Check() error {
	if !validLabel.MatchString(o.Label) {
		return fmt.Errorf("--cluster %.100q: at most 64 printable ASCII characters, without a space or line break at the ends", o.Label)
	}
	if addr, err := netip.ParseAddr(o.Bind); o.Bind != "" && (err != nil || addr.IsMulticast()) {
		return fmt.Errorf("--bind %q is not an address of a node, such as 10.0.0.1; the port has a flag of its own, --gossip-port", o.Bind)
	}
	targets, err := parseTargets(o.Join, cmp.Or(o.Port, DefaultPort))
	if err != nil || o.Advertise == "" {
		return err
	}
	at, err := parseTarget(o.Advertise, cmp.Or(o.Port, DefaultPort))
	if err != nil {
		return fmt.Errorf("--advertise %q: %w", o.Advertise, err)
	}
	for n, t := range targets {
		if other := t.at.Addr(); o.Sockets == nil && at.host == "" && local(at.at.Addr()) && other.IsValid() && !local(other) {
			return fmt.Errorf("--advertise %q: the agent at --join %q cannot reach that; give an address of this node that others reach", o.Advertise, o.Join[n])
		}
	}
	return nil
}

// Open listens, but does not join yet. [Members.Run] must be called, which also closes what Open opened.
// Errors are for users.
func Open(opts Options) (*Members, error) {
	m := &Members{
		opts: opts, log: cmp.Or(opts.Log, slog.Default()), present: make(map[wire.MemberID]presence),
		proofs: make(map[wire.MemberID]*proof), challenges: make(chan struct{}, maxChallenges),
	}
	if err := cmp.Or(m.metadata().check(), CheckKey(opts), opts.Check()); err != nil {
		return nil, err
	}
	targets, err := parseTargets(opts.Join, cmp.Or(opts.Port, DefaultPort))
	if err != nil {
		return nil, err
	}
	m.self = m.metadata().member()
	m.known = openKnown(opts.MembersFile)
	m.joins, m.alone = newJoins(targets, m.known.last, time.Now()), make(chan struct{}, 1)
	if err := m.listen(); err != nil {
		return nil, err
	}
	return m, nil
}

// metadata is what this agent says of itself now.
func (m *Members) metadata() metadata {
	o := m.opts
	return metadata{Name: o.Node, Boot: o.Boot, Epoch: o.Epoch, Version: o.Version, Role: string(o.Role), Leaving: m.leavesSoon.Load(), Packs: true}
}

// listen opens the sockets, the transport upon them, and the memberlist upon that.
func (m *Members) listen() error {
	sockets, port := m.opts.Sockets, m.opts.Port
	if sockets == nil {
		listener, err := transport.Listen(m.opts.Bind, port)
		if err != nil {
			return err
		}
		sockets, port = listener, listener.Port()
	}
	at, err := advertised(m.opts.Advertise, m.opts.Bind, cmp.Or(port, DefaultPort))
	if err != nil {
		sockets.Close()
		return err
	}
	m.self.Address, m.joins.self = at.String(), at
	conf, hooks := memberlist.DefaultLANConfig(), (*hooks)(m)
	m.transport, err = transport.New(transport.Options{
		Log: m.log, ID: m.self.ID, Label: m.opts.Label, KeyFile: m.opts.KeyFile,
		Handler: hooks, MemberID: nameID, Sockets: sockets, Proofs: hooks, AllowLocal: local(at.Addr()),
	})
	if err != nil {
		return err
	}
	conf.Name = memberName(m.self.Name, m.self.ID)
	conf.AdvertiseAddr, conf.AdvertisePort, conf.BindPort = at.Addr().String(), int(at.Port()), int(at.Port())
	conf.EnableCompression = false
	conf.GossipNodes = 6 // twice as many: when hundreds start or come back at once, their news takes half as long
	conf.UDPBufferSize = transport.MaxPayload - checksum
	conf.Logger = log.New(io.Discard, "", 0) // what matters, the transport knows, and without a flood of lines
	conf.Delegate, conf.Events, conf.Alive, conf.Ping = hooks, hooks, hooks, hooks
	conf.Transport = m.transport
	if m.list, err = memberlist.Create(conf); err != nil {
		m.transport.Shutdown()
		return fmt.Errorf("starting gossip: %w", err)
	}
	return nil
}

// local reports whether an address means something on one machine or link only.
func local(addr netip.Addr) bool { return addr.IsLoopback() || addr.IsLinkLocalUnicast() }

// Run joins the cluster, and joins again whatever was lost, until ctx ends; then it leaves, within two
// seconds, and closes what is open. Call it once.
func (m *Members) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	wg.Go(func() { m.join(ctx) })
	<-ctx.Done()
	m.leave()
	err := m.list.Shutdown()
	wg.Wait()
	return err
}

// LeaveSoon tells the others that this agent leaves soon. It returns when they know, after a second at most. Until the context of Run ends, the agent
// stays a member. Memberlist's own message does not say whether a member left or died, so the metadata says it first.
func (m *Members) LeaveSoon() {
	m.soon.Do(func() {
		m.log.Info("telling the other nodes that this one leaves")
		m.leavesSoon.Store(true) // if it is alone, for those that join before it leaves
		for range 2 {            // in a small cluster such news may be lost
			if err := m.list.UpdateNode(leaveTimeout / 2); err != nil {
				m.log.Debug("telling the others that this agent leaves soon failed", "error", err)
			}
		}
	})
}

// leave tells the others that this agent leaves.
func (m *Members) leave() {
	m.leaving.Store(true)
	m.LeaveSoon()
	if m.count() == 1 {
		return
	}
	if err := m.list.Leave(leaveTimeout); err != nil {
		m.log.Debug("leaving the cluster failed", "error", err)
	}
}

// Send sends a message of at most [transport.MaxPayload] bytes to a member, by one datagram that may be
// lost. It does not block.
func (m *Members) Send(to wire.MemberID, payload []byte) error {
	at := m.proved(to)
	if !at.IsValid() {
		return ErrUnknownMember
	}
	return m.transport.Send(to, at, payload)
}

// Request sends a request to a member and waits for the reply until ctx ends, see [transport.Transport.Request].
func (m *Members) Request(ctx context.Context, to wire.MemberID, request []byte, reading chan struct{}, use func(reply []byte) error) error {
	at := m.proved(to)
	if !at.IsValid() {
		return ErrUnknownMember
	}
	return m.transport.Request(ctx, to, at, request, reading, use)
}

// at is where a member is as memberlist says, not valid if there is none.
func (m *Members) at(id wire.MemberID) netip.AddrPort {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.present[id].at
}

// addresses are where the other members are as memberlist says, in no order.
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
