package scale

import (
	"context"
	"math"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/transport"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/tests/scale/simnet"
)

// simulatedMembers is a membership for clusters whose memberlists do not fit into one machine: with
// 5,000 members the lists take 12 GiB at rest and three times that while the members find each other.
// It notifies every member of joins and leaves as a memberlist would, in the time of epidemic
// dissemination; messages go by the real transport. Unlike a memberlist it is never wrong: it costs no
// traffic and suspects no member.
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
	at        netip.AddrPort
	handler   members.Handler
	transport *transport.Transport
	killed    atomic.Bool   // ends without a leave message
	lost      atomic.Bool   // the others have given it up
	gone      chan struct{} // closed when the member has left or was killed
	announced chan struct{} // closed when all others know that it is there

	mu sync.Mutex // one event after the other
}

const (
	// dying is how long a memberlist of 5,000 takes to give a silent member up: until it
	// is probed, and then 4 · log10(n) seconds of suspicion.
	dying = 17 * time.Second
	// rejoin is how long after a heal the lost are found again at most.
	rejoin = 30 * time.Second

	// grain is the resolution of the times at which members are notified.
	grain = 50 * time.Millisecond

	gossipEvery = 200 * time.Millisecond
	gossipTo    = 3
)

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

// open makes a member, which joins in Run.
func (c *simulatedMembers) open(opts members.Options) (*simulatedMember, error) {
	s := &simulatedMember{
		members: c, at: netip.MustParseAddrPort(opts.Advertise), handler: opts.Handler,
		member: members.Member{ID: wire.MemberIDOf(opts.Node, opts.Boot, opts.Epoch), Member: cluster.Member{
			Name: opts.Node, Boot: opts.Boot, Epoch: opts.Epoch, Address: opts.Advertise, Packs: true,
		}},
		gone: make(chan struct{}), announced: make(chan struct{}),
	}
	var err error
	s.transport, err = transport.New(transport.Options{
		Log: opts.Log, ID: s.member.ID, Label: opts.Label, KeyFile: opts.KeyFile, Handler: opts.Handler, Sockets: opts.Sockets,
	})
	return s, err
}

// LeaveSoon takes no time here.
func (s *simulatedMember) LeaveSoon() {}

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
	return s.transport.Shutdown()
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
				if !o.left() && side(s.at) != side(o.at) {
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

// suspended has the others give a member up that is suspended, until it joins again.
func (c *simulatedMembers) suspended(s *simulatedMember) {
	c.done.Go(func() {
		others, rank := c.others(s)
		s.lost.Store(true)
		c.disseminate(others, rank, dying, func(o *simulatedMember) { o.handler.Left(s.member, false) })
	})
}

// Rejoin implements [gossip.Network].
func (s *simulatedMember) Rejoin() {
	if c := s.members; s.lost.Swap(false) {
		c.done.Go(func() {
			others, rank := c.others(s)
			c.disseminate(others, rank, 0, func(o *simulatedMember) { o.handler.Joined(s.member) })
		})
	}
}

// others are all members but one, and a random number.
func (c *simulatedMembers) others(s *simulatedMember) ([]*simulatedMember, uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(c.all), func(o *simulatedMember) bool { return o == s }), c.random.Uint64()
}

// address is where a member is.
func (s *simulatedMember) address(id wire.MemberID) (netip.AddrPort, error) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	if to := s.members.byID[id]; to != nil {
		return to.at, nil
	}
	return netip.AddrPort{}, members.ErrUnknownMember
}

// Send implements [gossip.Network].
func (s *simulatedMember) Send(id wire.MemberID, payload []byte) error {
	at, err := s.address(id)
	if err != nil {
		return err
	}
	return s.transport.Send(id, at, payload)
}

// Request implements [gossip.Network].
func (s *simulatedMember) Request(ctx context.Context, id wire.MemberID, request []byte, reading chan struct{}, use func([]byte) error) error {
	at, err := s.address(id)
	if err != nil {
		return err
	}
	return s.transport.Request(ctx, id, at, request, reading, use)
}

// Status implements [gossip.Network].
func (s *simulatedMember) Status() cluster.Status {
	return cluster.Status{Address: s.member.Address, Dropped: s.transport.Dropped()}
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// Cut implements [gossip.Network]. No question of the simulation depends on it.
func (s *simulatedMember) Cut() (from, until time.Time) { return from, until }
