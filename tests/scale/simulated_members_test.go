package scale

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// simulatedMembers is a membership for clusters whose memberlists do not fit into one machine: with
// 5,000 members the lists take 12 GiB at rest and three times that while the members find each other.
// It notifies every member of joins and leaves as a memberlist would, in the time of epidemic
// dissemination, and carries packets over the same network. Unlike a memberlist it is never wrong: it
// costs no traffic and suspects no member.
type simulatedMembers struct {
	network *simnet.Network
	start   time.Time
	random  *rand.Rand // guarded by mu

	mu   sync.Mutex
	all  []*simulatedMember // in order of arrival; those who left, too
	byID map[wire.MemberID]*simulatedMember

	stop chan struct{}
	done sync.WaitGroup
}

// simulatedMember is one member.
type simulatedMember struct {
	members   *simulatedMembers
	member    members.Member
	endpoint  *simnet.Endpoint
	handler   members.Handler
	killed    atomic.Bool   // ends without a leave message
	gone      chan struct{} // closed when the member has left or was killed
	announced chan struct{} // closed when all others know that it is there

	mu    sync.Mutex // one event after the other
	queue memberlist.TransmitLimitedQueue
	wake  chan struct{}
}

const (
	// dying is how long a memberlist of 5,000 takes to give a silent member up: until it
	// is probed, and then 4 · log10(n) seconds of suspicion.
	dying = 17 * time.Second
	// rejoin is how long after a heal the lost are found again at most.
	rejoin = 30 * time.Second

	// grain is the resolution of the times at which members are notified.
	grain = 50 * time.Millisecond

	// What a memberlist adds to a packet of ours: a label, a checksum and a type; and to
	// each message of a packet with several.
	overhead     = 2 + len(label) + 5 + 1
	messageExtra = 2 + 1
	largest      = 1400

	gossipEvery = 200 * time.Millisecond
	gossipTo    = 3
	retransmit  = 4

	label = "scale"
)

var errUnknown = errors.New("no member has that id")

func newSimulatedMembers(network *simnet.Network, seed uint64) *simulatedMembers {
	return &simulatedMembers{
		network: network,
		start:   time.Now(),
		random:  rand.New(rand.NewPCG(seed, 1)),
		byID:    make(map[wire.MemberID]*simulatedMember),
		stop:    make(chan struct{}),
	}
}

// close ends all goroutines and waits for them.
func (c *simulatedMembers) close() {
	close(c.stop)
	c.done.Wait()
}

// add makes a member, which joins in Run.
func (c *simulatedMembers) add(m cluster.Member, endpoint *simnet.Endpoint, h members.Handler) *simulatedMember {
	m.Address = endpoint.Addr().String()
	s := &simulatedMember{
		members: c, endpoint: endpoint,
		member:  members.Member{ID: wire.MemberIDOf(m.Name, m.Boot, m.Epoch), Member: m},
		handler: h, gone: make(chan struct{}), announced: make(chan struct{}), wake: make(chan struct{}, 1),
	}
	s.queue.RetransmitMult = retransmit
	s.queue.NumNodes = c.size
	return s
}

// Run takes part until ctx ends: it is notified of all members at once, as by a join, and they of it
// gradually. Then it leaves, unless it was killed.
func (s *simulatedMember) Run(ctx context.Context) error {
	c := s.members
	c.mu.Lock()
	others := c.all[:len(c.all):len(c.all)]
	c.all = append(c.all, s)
	c.byID[s.member.ID] = s
	come, leave := c.random.Uint64(), c.random.Uint64()
	c.mu.Unlock()

	s.mu.Lock()
	for _, o := range others {
		if !o.left() {
			s.handler.Joined(o.member)
		}
	}
	s.mu.Unlock()
	c.done.Go(s.receive)
	c.done.Go(s.gossip)
	c.done.Go(func() {
		defer close(s.announced)
		c.disseminate(others, come, 0, func(o *simulatedMember) { o.handler.Joined(s.member) })
	})

	<-ctx.Done()
	c.mu.Lock()
	others = c.all[:len(c.all):len(c.all)]
	close(s.gone)
	c.mu.Unlock()
	c.done.Go(func() {
		<-s.announced
		wait := time.Duration(0)
		if s.killed.Load() {
			wait = dying
		}
		c.disseminate(others, leave, wait, func(o *simulatedMember) { o.handler.Left(s.member, !s.killed.Load()) })
	})
	return s.endpoint.Shutdown()
}

func (s *simulatedMember) left() bool {
	select {
	case <-s.gone:
		return true
	default:
		return false
	}
}

// disseminationTime is how long a broadcast takes to reach all of n members: each member sends it to
// three others every 200 ms, so that after log4(n) times 200 ms about half of them have it, and after
// twice that nearly all.
func disseminationTime(n int) time.Duration {
	return max(10*grain, time.Duration(2*math.Log(float64(n))/math.Log(1+gossipTo)*float64(gossipEvery)))
}

// disseminate calls tell for each of the live members, in the order and at the pace of an epidemic:
// an S-shaped curve. The order is another one each time.
func (c *simulatedMembers) disseminate(to []*simulatedMember, random uint64, wait time.Duration, tell func(*simulatedMember)) {
	if len(to) == 0 {
		return
	}
	n := uint64(len(to))
	stride := random%n | 1
	for gcd(stride, n) != 1 {
		stride += 2
	}
	if !c.sleep(wait) {
		return
	}
	// All notifications come at the same moments: a member that is notified of ten others wakes up
	// once.
	if !c.sleep(grain - time.Since(c.start)%grain) {
		return
	}
	grains := int(disseminationTime(len(to)) / grain)
	told := uint64(0)
	for g := range grains {
		if !c.sleep(grain) {
			return
		}
		share := 1 / (1 + math.Exp(-12*(float64(g+1)/float64(grains)-0.5)))
		until := uint64(share * float64(n))
		if g == grains-1 {
			until = n
		}
		for ; told < until; told++ {
			s := to[(random>>32+told*stride)%n]
			if s.left() {
				continue
			}
			s.mu.Lock()
			tell(s)
			s.mu.Unlock()
		}
	}
}

// partition cuts the network in two for a while. Each side gives the other up, member by
// member, and finds it again after the heal.
func (c *simulatedMembers) partition(side func(netip.AddrPort) int, lasts time.Duration) {
	c.network.Partition(side)
	c.mu.Lock()
	all := c.all[:len(c.all):len(c.all)]
	rank := c.random.Uint64()
	c.mu.Unlock()
	across := func(tell func(s, o *simulatedMember)) func(*simulatedMember) {
		return func(s *simulatedMember) {
			for _, o := range all {
				if !o.left() && side(s.endpoint.Addr()) != side(o.endpoint.Addr()) {
					tell(s, o)
				}
			}
		}
	}
	c.disseminate(all, rank, dying, across(func(s, o *simulatedMember) { s.handler.Left(o.member, false) }))
	if !c.sleep(lasts - dying - disseminationTime(len(all))) {
		return
	}
	c.network.Partition(nil)
	c.disseminate(all, rank, rejoin/2, across(func(s, o *simulatedMember) { s.handler.Joined(o.member) }))
}

func (c *simulatedMembers) sleep(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	select {
	case <-time.After(d):
		return true
	case <-c.stop:
		return false
	}
}

func (c *simulatedMembers) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.byID)
}

// List is empty: simulated members all share one view.
func (s *simulatedMember) List() []members.Member { return nil }

// Status is empty.
func (s *simulatedMember) Status() members.Status { return members.Status{} }

// Send sends a packet to a member.
func (s *simulatedMember) Send(id wire.MemberID, packet []byte) error {
	s.members.mu.Lock()
	to := s.members.byID[id]
	s.members.mu.Unlock()
	if to == nil {
		return errUnknown
	}
	b := make([]byte, overhead, overhead+len(packet))
	_, err := s.endpoint.WriteTo(append(b, packet...), to.member.Address)
	return err
}

// Seek implements [gossip.Network]: there is no false suspicion, and all broadcasts arrive.
func (s *simulatedMember) Seek(wire.MemberID) {}

// Broadcast sends a message to all, as a memberlist does: again and again to a few.
func (s *simulatedMember) Broadcast(key string, payload []byte) {
	s.queue.QueueBroadcast(&broadcast{key, append([]byte(nil), payload...)})
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// broadcast is a broadcast.
type broadcast struct {
	name    string
	message []byte
}

func (n *broadcast) Invalidates(memberlist.Broadcast) bool { return false } // the queue goes by name
func (n *broadcast) Name() string                          { return n.name }
func (n *broadcast) Message() []byte                       { return n.message }
func (n *broadcast) Finished()                             {}

// gossip sends what is queued to three others at a time.
func (s *simulatedMember) gossip() {
	for {
		select {
		case <-s.wake:
		case <-s.gone:
			return
		case <-s.members.stop:
			return
		}
		for s.queue.NumQueued() > 0 && !s.left() && s.members.sleep(gossipEvery) {
			for range gossipTo {
				messages := s.queue.GetBroadcasts(messageExtra, largest-overhead)
				if len(messages) == 0 {
					break
				}
				b := make([]byte, overhead, largest)
				b[0] = 1
				for _, m := range messages {
					b = binary.BigEndian.AppendUint16(b, uint16(len(m)))
					b = append(append(b, 0), m...)
				}
				if to := s.members.randomMember(); to != s {
					_, _ = s.endpoint.WriteTo(b, to.member.Address)
				}
			}
		}
	}
}

func (c *simulatedMembers) randomMember() *simulatedMember {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		if s := c.all[c.random.IntN(len(c.all))]; !s.left() {
			return s
		}
	}
}

// receive hands packets over, of those that are there the newest first: memberlist has a
// stack where others have a queue.
func (s *simulatedMember) receive() {
	var waiting [][]byte
	for {
		select {
		case p := <-s.endpoint.PacketCh():
			waiting = append(waiting[:0], p.Buf)
		case <-s.gone:
			return
		case <-s.members.stop:
			return
		}
		for len(s.endpoint.PacketCh()) > 0 {
			waiting = append(waiting, (<-s.endpoint.PacketCh()).Buf)
		}
		for i := len(waiting) - 1; i >= 0; i-- {
			s.deliver(waiting[i])
		}
		clear(waiting)
	}
}

func (s *simulatedMember) deliver(b []byte) {
	if b[0] == 0 {
		s.handler.Packet(b[overhead:])
		return
	}
	for b = b[overhead:]; len(b) > 0; {
		n := messageExtra + int(binary.BigEndian.Uint16(b))
		s.handler.Packet(b[messageExtra:n])
		b = b[n:]
	}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
