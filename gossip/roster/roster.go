// Package roster knows which agents there are or were, as the membership tells: which
// boots of which nodes, the incarnation of the agent that runs there now, and the ring of
// those that are there, from which keepers are picked.
//
// It knows nothing of the network, of leases or of conflicts, and does nothing by itself.
package roster

import (
	"errors"
	"slices"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/rank"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxNodes bounds the nodes and their former incarnations: far more than a cluster has,
	// and little enough to keep.
	maxNodes = 20000
	// keepGone is how long nodes that are gone and former incarnations are remembered:
	// longer than any lease of theirs lives.
	keepGone = 10 * time.Minute
	// makeRoom is how many nodes that are gone make room at once for others.
	makeRoom = maxNodes / 16
)

// The reasons not to take in a member.
var (
	// ErrFull: there are too many nodes to know one more.
	ErrFull = errors.New("too many nodes")
	// ErrName: its name would be another one as part of a NodeID.
	ErrName = errors.New("impossible node name")
)

// Node is one boot of a node. Its fields change only by calls of the [Roster].
type Node struct {
	// ID is the cluster.NodeID.
	ID         string
	Name, Boot string
	Seed       rank.Seed

	// Member, Epoch and Address are those of the present incarnation of its agent.
	Member  wire.MemberID
	Epoch   int64
	Address string
	// Alive: that incarnation is there, or suspected not to be.
	Alive bool
	// Since is when Alive changed last.
	Since time.Time

	sibling *Node // the next one of the same name
}

// Namesake returns a node of the same name and another boot that is alive, or nil.
func (r *Roster) Namesake(n *Node) *Node {
	for s := r.byName[n.Name]; s != nil; s = s.sibling {
		if s != n && s.Alive {
			return s
		}
	}
	return nil
}

// BootedAnew says that the boot of a node with a cluster.NodeID is not there any more, known
// or not, but another one of the same name is.
func (r *Roster) BootedAnew(nodeID string) bool {
	there := false
	for n := r.byName[cluster.NodeName(nodeID)]; n != nil; n = n.sibling {
		if n.Alive && n.ID == nodeID {
			return false
		}
		there = there || n.Alive
	}
	return there
}

// Change says what a call changed for those who keep, or have leases kept.
type Change uint8

// The changes.
const (
	// Nothing: the ring is as it was.
	Nothing Change = iota
	// Came: the node is in the ring now and was not before.
	Came
	// Renewed: the node's agent is another incarnation, which knows nothing of the former's.
	Renewed
	// Went: the node is in the ring no more.
	Went
)

// Roster is all nodes. It is not safe for concurrent use.
type Roster struct {
	// Ring has the nodes that are alive; it is to be read only.
	Ring rank.Ring[*Node]

	self     *Node
	byMember map[wire.MemberID]*Node // former incarnations, too
	byName   map[string]*Node        // the first of a list
	nodes    int
	former   []formerly
	nextTidy time.Time
	evicted  []*Node // since the last Tidy
}

// formerly is an incarnation that was replaced by another of the same boot.
type formerly struct {
	member wire.MemberID
	until  time.Time
}

// New returns a roster that knows this node only.
func New(id wire.MemberID, self cluster.Member, now time.Time) *Roster {
	r := &Roster{byMember: make(map[wire.MemberID]*Node), byName: make(map[string]*Node)}
	n, _, _ := r.Join(id, self, now)
	r.self = n
	return r
}

// Self is this node.
func (r *Roster) Self() *Node { return r.self }

// Len returns the number of nodes known, gone ones included.
func (r *Roster) Len() int { return r.nodes }

// Sender returns the node whose present incarnation has an id, or nil. Former ones have
// nothing more to say.
func (r *Roster) Sender(id wire.MemberID) *Node {
	if n := r.byMember[id]; n != nil && n.Member == id {
		return n
	}
	return nil
}

// Node returns the node of an incarnation, present or former, or nil.
func (r *Roster) Node(id wire.MemberID) *Node { return r.byMember[id] }

// ByID returns the node with a cluster.NodeID, or nil.
func (r *Roster) ByID(nodeID string) *Node {
	for n := r.byName[cluster.NodeName(nodeID)]; n != nil; n = n.sibling {
		if n.ID == nodeID {
			return n
		}
	}
	return nil
}

// Join takes in that an incarnation is there. Of those of one boot it is the latest that
// counts, as long as that is there. It fails with [ErrFull] or [ErrName].
func (r *Roster) Join(id wire.MemberID, m cluster.Member, now time.Time) (*Node, Change, error) {
	if cluster.NodeName(m.NodeID()) != m.Name {
		return nil, Nothing, ErrName
	}
	n := r.ByID(m.NodeID())
	if n == nil {
		if r.nodes >= maxNodes && !r.evict() {
			return nil, Nothing, ErrFull
		}
		n = &Node{ID: m.NodeID(), Boot: m.Boot, sibling: r.byName[m.Name], Seed: rank.SeedOf(m.Name, m.Boot)}
		n.Name = n.ID[:len(m.Name)]
		r.byName[n.Name] = n
		r.nodes++
		return n, r.take(n, id, m, now), nil
	}
	switch {
	case n == r.self && n.Member != id:
		// Somebody else's news of a former incarnation of ours.
		r.remember(id, n, now)
		return n, Nothing, nil
	case n.Alive && m.Epoch < n.Epoch, m.Epoch == n.Epoch && id != n.Member:
		r.remember(id, n, now)
		return n, Nothing, nil
	case id != n.Member:
		r.remember(n.Member, n, now)
		return n, r.take(n, id, m, now), nil
	default:
		return n, r.take(n, id, m, now), nil
	}
}

// take makes an incarnation the present one of its node, alive.
func (r *Roster) take(n *Node, id wire.MemberID, m cluster.Member, now time.Time) Change {
	change := Nothing
	switch {
	case !n.Alive:
		change = Came
		n.Alive, n.Since = true, now
		r.Ring.Add(n, n.Seed)
	case n.Member != id:
		change = Renewed
		n.Since = now
	}
	n.Member, n.Epoch, n.Address = id, m.Epoch, m.Address
	r.byMember[id] = n
	return change
}

// remember keeps for a while whose incarnation an id was. The oldest make room.
func (r *Roster) remember(id wire.MemberID, n *Node, now time.Time) {
	if r.byMember[id] != nil && id != n.Member {
		return // it is
	}
	if len(r.former) >= maxNodes {
		r.forgetFormer(1)
	}
	r.byMember[id] = n
	r.former = append(r.former, formerly{id, now.Add(keepGone)})
}

// forgetFormer forgets the n oldest former incarnations.
func (r *Roster) forgetFormer(n int) {
	for _, f := range r.former[:n] {
		// It may be the present one again, if somebody told of them in the wrong order.
		if r.Sender(f.member) == nil {
			delete(r.byMember, f.member)
		}
	}
	r.former = r.former[n:]
}

// evict forgets the nodes that are gone for the longest, and says whether there were any:
// nobody is kept out by those that are not there any more.
func (r *Roster) evict() bool {
	var gone []*Node
	for id, n := range r.byMember {
		if !n.Alive && id == n.Member {
			gone = append(gone, n)
		}
	}
	slices.SortFunc(gone, func(a, b *Node) int { return a.Since.Compare(b.Since) })
	gone = gone[:min(len(gone), makeRoom)]
	for _, n := range gone {
		r.unlink(n)
		delete(r.byMember, n.Member)
	}
	// Those of their former incarnations stay for a while and are nobody's.
	r.evicted = append(r.evicted, gone...)
	return len(gone) > 0
}

// Leave takes in that an incarnation is not there any more. This node never leaves.
func (r *Roster) Leave(id wire.MemberID, now time.Time) (*Node, Change) {
	n := r.Sender(id)
	if n == nil || n == r.self || !n.Alive {
		return n, Nothing
	}
	n.Alive, n.Since = false, now
	r.Ring.Remove(n)
	return n, Went
}

// Tidy forgets what is gone for long. It does so at most once a minute, and returns the
// nodes that were forgotten since the last call.
func (r *Roster) Tidy(now time.Time) []*Node {
	forgotten := r.evicted
	r.evicted = nil
	if now.Before(r.nextTidy) {
		return forgotten
	}
	r.nextTidy = now.Add(time.Minute)
	expired := 0
	for expired < len(r.former) && !now.Before(r.former[expired].until) {
		expired++
	}
	r.forgetFormer(expired)
	r.former = append(r.former[:0:0], r.former...)
	if r.Ring.Len() == r.nodes {
		return forgotten
	}
	for id, n := range r.byMember {
		if n.Alive || now.Sub(n.Since) < keepGone {
			continue
		}
		delete(r.byMember, id)
		if id == n.Member {
			r.unlink(n)
			forgotten = append(forgotten, n)
		}
	}
	return forgotten
}

func (r *Roster) unlink(n *Node) {
	r.nodes--
	first := r.byName[n.Name]
	if first == n {
		delete(r.byName, n.Name) // the key is a part of the node that goes
		if n.sibling != nil {
			r.byName[n.sibling.Name] = n.sibling
		}
		return
	}
	for first.sibling != n {
		first = first.sibling
	}
	first.sibling = n.sibling
}
