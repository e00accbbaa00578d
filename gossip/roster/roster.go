// Package roster knows which agents there are or were, as the membership reports: which boots of which
// nodes, the incarnation of the agent that runs there now, and the ring of those that are alive, from which
// keepers are chosen.
//
// It knows nothing of the network, of leases or of conflicts, and does nothing by itself.
package roster

import (
	"cmp"
	"errors"
	"slices"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/rank"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxNodes bounds the nodes and their former incarnations: far more than a cluster has, and little
	// enough to keep.
	maxNodes = 20000
	// keepGone is how long nodes that are gone and former incarnations are remembered: longer than any
	// lease of theirs lives.
	keepGone = 10 * time.Minute
	// makeRoom is how many nodes that are gone make room at once for others.
	makeRoom = maxNodes / 16
	// replacedAfter is how long a node must have been there to be replaced by another boot of the same
	// name at the same address. Of two that were first heard of together, nobody knows which is there.
	replacedAfter = 5 * time.Second
	// namesakesAfter is how long two agents of one name must be there together to be namesakes: one that
	// was cut off or started again is found dead before.
	namesakesAfter = 30 * time.Second
)

// The reasons to refuse a member.
var (
	// ErrFull: there are too many nodes to know one more.
	ErrFull = errors.New("too many nodes")
	// ErrName: its name would be another one as part of a NodeID.
	ErrName = errors.New("impossible node name")
)

// Node is one boot of a node. Its fields change only by calls of the [Roster].
type Node struct {
	ID   string // the NodeID
	Seed rank.Seed
	// Incarnation is the present one of its agent, and Member what it said. State is Alive, Dead or Left.
	Incarnation wire.MemberID
	cluster.Member

	joined  time.Time
	others  []incarnation // earlier ones that are there, too
	sibling *Node         // the next one of the same name
}

// incarnation is one run of an agent.
type incarnation struct {
	id     wire.MemberID
	member cluster.Member
	joined time.Time
}

// Alive reports whether the node's agent is there.
func (n *Node) Alive() bool { return n.State == cluster.Alive }

// IsAgent reports whether the member is an agent, which keeps leases.
func (n *Node) IsAgent() bool { return n.Role == cluster.Agent }

// Kind is what changed for those who keep leases or have leases kept.
type Kind uint8

// The kinds of changes.
const (
	Came    Kind = iota + 1 // the node is there and was not before
	Renewed                 // its agent is another incarnation, which does not know what the former one knew
	Went                    // the node is not there any more
)

// Change is a change of one node.
type Change struct {
	Node *Node
	Kind Kind
	// Again: the same incarnation came that was there before.
	Again bool
}

// Roster is all nodes. It is not safe for concurrent use.
type Roster struct {
	// Ring has the agents that are alive; it is to be read only.
	Ring rank.Ring[*Node]

	self        *Node
	byMember    map[wire.MemberID]*Node // former incarnations, too
	byName      map[string]*Node        // the first of a list
	nodes       int
	former      []formerly
	nextCleanup time.Time
	evicted     []*Node // since the last Cleanup
}

// formerly is an incarnation that was replaced by another of the same boot.
type formerly struct {
	id    wire.MemberID
	until time.Time
}

// New returns a roster that knows this node only.
func New(id wire.MemberID, self cluster.Member, now time.Time) *Roster {
	r := &Roster{byMember: make(map[wire.MemberID]*Node), byName: make(map[string]*Node)}
	r.Join(id, self, now) //nolint:errcheck // the caller has checked the name
	r.self = r.byMember[id]
	r.self.Self = true
	return r
}

// Self is this node.
func (r *Roster) Self() *Node { return r.self }

// Len returns the number of nodes known, gone ones included.
func (r *Roster) Len() int { return r.nodes }

// Sender returns the node whose present incarnation has an id, or nil. Former ones have nothing more to say.
func (r *Roster) Sender(id wire.MemberID) *Node {
	if n := r.byMember[id]; n != nil && n.Incarnation == id {
		return n
	}
	return nil
}

// Node returns the node of an incarnation, present or former, or nil.
func (r *Roster) Node(id wire.MemberID) *Node { return r.byMember[id] }

// ByID returns the node with a NodeID, or nil.
func (r *Roster) ByID(nodeID string) *Node {
	for n := range r.named(cluster.NodeName(nodeID)) {
		if n.ID == nodeID {
			return n
		}
	}
	return nil
}

// named are the nodes of a name.
func (r *Roster) named(name string) func(yield func(*Node) bool) {
	return func(yield func(*Node) bool) {
		for n := r.byName[name]; n != nil; n = n.sibling {
			if !yield(n) {
				return
			}
		}
	}
}

// All are all nodes, in no order.
func (r *Roster) All() func(yield func(*Node) bool) {
	return func(yield func(*Node) bool) {
		for id, n := range r.byMember {
			if id == n.Incarnation && !yield(n) {
				return
			}
		}
	}
}

// Namesake returns a node of the same name and another boot that is alive, or nil.
func (r *Roster) Namesake(n *Node) *Node {
	for s := range r.named(n.Name) {
		if s != n && s.Alive() {
			return s
		}
	}
	return nil
}

// BootedAnew reports that the boot of a node with a NodeID is not there any more, known or not, but another
// one of the same name is.
func (r *Roster) BootedAnew(nodeID string) bool {
	there := false
	for n := range r.named(cluster.NodeName(nodeID)) {
		if n.Alive() && n.ID == nodeID {
			return false
		}
		there = there || n.Alive()
	}
	return there
}

// Join notes that an incarnation is there, or says something else of itself. Of those of one boot the latest
// counts, as long as it is there. It fails with [ErrFull] or [ErrName].
func (r *Roster) Join(id wire.MemberID, m cluster.Member, now time.Time) ([]Change, error) {
	if cluster.NodeName(m.NodeID()) != m.Name {
		return nil, ErrName
	}
	m.State, m.Since, m.LastReceived = cluster.Alive, now, time.Time{}
	n := r.ByID(m.NodeID())
	switch {
	case r.self != nil && (n == r.self || m.Address == r.self.Address):
		// A former incarnation of this agent, or of the agent that was here before the node was booted.
		if n != nil && n.Incarnation != id {
			r.remember(id, n, now)
		}
		return nil, nil
	case n == nil:
		if r.nodes >= maxNodes && !r.evict() {
			return nil, ErrFull
		}
		n = &Node{ID: m.NodeID(), sibling: r.byName[m.Name], Seed: rank.SeedOf(m.Name, m.Boot)}
		// The parts of the NodeID, so that nothing else is kept.
		m.Name, m.Boot = cluster.NodeName(n.ID), cluster.BootID(n.ID)
		r.byName[m.Name] = n
		r.nodes++
	case id == n.Incarnation && n.Alive():
		n.Version, n.Address = m.Version, m.Address
		return nil, nil
	case n.Alive() && (m.Epoch < n.Epoch || m.Epoch == n.Epoch && id != n.Incarnation):
		r.remember(id, n, now)
		n.others = append(n.others[max(0, len(n.others)-7):], incarnation{id, m, now})
		return nil, nil
	case n.Alive():
		n.others = append(n.others[max(0, len(n.others)-7):], incarnation{n.Incarnation, n.Member, n.joined})
	}
	return append(r.replaced(n, m, now), r.begin(n, id, m, now)), nil
}

// replaced ends nodes whose address another boot has now.
func (r *Roster) replaced(by *Node, m cluster.Member, now time.Time) (changes []Change) {
	for s := range r.named(m.Name) {
		if s != by && s != r.self && s.Alive() && s.Address == m.Address && now.Sub(s.joined) >= replacedAfter {
			s.others = nil
			changes = append(changes, r.end(s, cluster.Dead, now))
		}
	}
	return changes
}

// begin makes an incarnation the present one of its node.
func (r *Roster) begin(n *Node, id wire.MemberID, m cluster.Member, now time.Time) Change {
	kind := Renewed
	if !n.Alive() {
		kind = Came
		if m.Role == cluster.Agent {
			r.Ring.Add(n, n.Seed)
		}
	}
	if n.Incarnation != id && n.Incarnation != 0 {
		r.remember(n.Incarnation, n, now)
	}
	again := n.Incarnation == id
	n.Incarnation, n.Member, n.joined = id, m, now
	r.byMember[id] = n
	return Change{n, kind, again}
}

// remember keeps for a while whose incarnation an id was. The oldest make room.
func (r *Roster) remember(id wire.MemberID, n *Node, now time.Time) {
	if len(r.former) >= maxNodes {
		r.forgetFormer(1)
	}
	r.byMember[id] = n
	r.former = append(r.former, formerly{id, now.Add(keepGone)})
}

// forgetFormer forgets the n oldest former incarnations.
func (r *Roster) forgetFormer(n int) {
	for _, f := range r.former[:n] {
		// It may be the present one again, if somebody reported them in the wrong order.
		if r.Sender(f.id) == nil {
			delete(r.byMember, f.id)
		}
	}
	r.former = r.former[n:]
}

// evict forgets the nodes that are gone for the longest, and reports whether there were any: nobody is kept
// out by those that are not there any more.
func (r *Roster) evict() bool {
	var gone []*Node
	for n := range r.All() {
		if !n.Alive() {
			gone = append(gone, n)
		}
	}
	slices.SortFunc(gone, func(a, b *Node) int { return a.Since.Compare(b.Since) })
	gone = gone[:min(len(gone), makeRoom)]
	for _, n := range gone {
		r.unlink(n)
		delete(r.byMember, n.Incarnation)
	}
	// Those of their former incarnations stay for a while and are nobody's.
	r.evicted = append(r.evicted, gone...)
	return len(gone) > 0
}

// Leave notes that an incarnation is not there any more. This node never leaves.
func (r *Roster) Leave(id wire.MemberID, gracefully bool, now time.Time) []Change {
	n := r.byMember[id]
	if n == nil || n == r.self {
		return nil
	}
	n.others = slices.DeleteFunc(n.others, func(i incarnation) bool { return i.id == id })
	switch {
	case n.Incarnation != id || !n.Alive():
		return nil
	case len(n.others) > 0:
		i := slices.IndexFunc(n.others, func(i incarnation) bool {
			return !slices.ContainsFunc(n.others, func(o incarnation) bool { return o.member.Epoch > i.member.Epoch })
		})
		before := n.others[i]
		n.others = slices.Delete(n.others, i, i+1)
		return []Change{r.begin(n, before.id, before.member, now)}
	case gracefully:
		return []Change{r.end(n, cluster.Left, now)}
	}
	return []Change{r.end(n, cluster.Dead, now)}
}

func (r *Roster) end(n *Node, state cluster.State, now time.Time) Change {
	n.State, n.Since = state, now
	r.Ring.Remove(n)
	return Change{Node: n, Kind: Went}
}

// Cleanup forgets what is gone for long. It does so at most once a minute, and returns the nodes that were
// forgotten since the last call.
func (r *Roster) Cleanup(now time.Time) []*Node {
	forgotten := r.evicted
	r.evicted = nil
	if now.Before(r.nextCleanup) {
		return forgotten
	}
	r.nextCleanup = now.Add(time.Minute)
	expired := 0
	for expired < len(r.former) && !now.Before(r.former[expired].until) {
		expired++
	}
	r.forgetFormer(expired)
	r.former = slices.Clone(r.former)
	for id, n := range r.byMember {
		if n.Alive() || now.Sub(n.Since) < keepGone {
			continue
		}
		delete(r.byMember, id)
		if id == n.Incarnation {
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

// Members returns the agents that are there or were recently, by node name; of a node whose agent was started
// again the present one, and others that are there although they should not be.
func (r *Roster) Members(now time.Time) []cluster.Member {
	all := make([]cluster.Member, 0, r.nodes)
	for n := range r.All() {
		m, live := n.Member, 0
		for s := range r.named(n.Name) {
			if s.Alive() && now.Sub(s.joined) >= namesakesAfter && (s == n || s.Address != n.Address) {
				live++
			}
		}
		for _, o := range n.others {
			if now.Sub(o.joined) >= namesakesAfter && o.member.Address != n.Address {
				o.member.Namesake = true
				all = append(all, o.member)
				live++
			}
		}
		m.Namesake = live > 1 && m.State == cluster.Alive && now.Sub(n.joined) >= namesakesAfter
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b cluster.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Epoch, b.Epoch))
	})
	return all
}

// Namesakes are the members that are namesakes, by node name.
func (r *Roster) Namesakes(now time.Time) []cluster.Member {
	for n := range r.All() {
		if n.sibling != nil || len(n.others) > 0 {
			return slices.DeleteFunc(r.Members(now), func(m cluster.Member) bool { return !m.Namesake })
		}
	}
	return nil
}

// Counts counts the members by state.
func (r *Roster) Counts() map[cluster.State]int {
	counts := map[cluster.State]int{cluster.Alive: 0, cluster.Suspect: 0, cluster.Dead: 0, cluster.Left: 0}
	for n := range r.All() {
		counts[n.State]++
	}
	return counts
}
