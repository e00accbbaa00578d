// Package roster knows which members there are or were, as the membership reports: which boots of which nodes, the
// incarnations of the agent that run there now, and which agents keep an address.
//
// It knows nothing of the network, of leases or of conflicts, and does nothing by itself.
package roster

import (
	"cmp"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// maxNodes bounds the nodes: far more than a cluster has, and little enough to keep. maxRuns bounds the
	// incarnations of one node that are there.
	maxNodes = 20000
	maxRuns  = 8
	// keepGone is how long nodes that are gone are remembered: longer than any lease of theirs lives.
	keepGone = 10 * time.Minute
	// awayAfter is how long a node must be gone for its return to be worth a word.
	awayAfter = time.Minute
)

// ErrFull says that there are too many nodes to know one more.
var ErrFull = errors.New("too many nodes")

// Node is one boot of a node. Its fields change only by calls of the [Roster].
type Node struct {
	ID   string // the NodeID
	seed uint64 // what its scores are made from, see seed
	home uint64 // the seed of its first agent: others of its boot count only while none is there
	// Known is when it joined for the first time, as far as this node remembers.
	Known time.Time
	*Run  // the present one of its agent, or the last. State is Alive, Dead or Left.

	runs []*Run // those that are there, in the order of their epochs
}

// Run is one incarnation of an agent, and what it said of itself.
type Run struct {
	Incarnation wire.MemberID
	cluster.Member
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
	self        *Node
	agents      []*Node                 // those that are alive
	byMember    map[wire.MemberID]*Node // incarnations that are there
	byName      map[string][]*Node
	replaced    map[wire.MemberID]cluster.Member // that another boot has replaced, and that have not left
	nodes       int
	nextCleanup time.Time
	forgotten   []*Node // since the last Cleanup
}

// New returns a roster that knows this node only.
func New(id wire.MemberID, self cluster.Member, now time.Time) *Roster {
	r := &Roster{byMember: make(map[wire.MemberID]*Node), byName: make(map[string][]*Node), replaced: make(map[wire.MemberID]cluster.Member)}
	r.Join(id, self, now) //nolint:errcheck // there is room for one
	r.self = r.byMember[id]
	r.self.Self = true
	return r
}

// SetAddress notes where this node is. Call it before any member joins.
func (r *Roster) SetAddress(address string) {
	r.self.Address = address
	r.self.seed = seed(r.self.Member)
	r.self.home = r.self.seed
}

// Self is this node.
func (r *Roster) Self() *Node { return r.self }

// Sender returns the node whose present incarnation has an id and is alive, or nil. Former ones have nothing more to
// say.
func (r *Roster) Sender(id wire.MemberID) *Node {
	if n := r.byMember[id]; n != nil && n.Incarnation == id {
		return n
	}
	return nil
}

// ByID returns the node with a NodeID, or nil.
func (r *Roster) ByID(nodeID string) *Node {
	for _, n := range r.byName[cluster.NodeName(nodeID)] {
		if n.ID == nodeID {
			return n
		}
	}
	return nil
}

// All are all nodes, in no order.
func (r *Roster) All() func(yield func(*Node) bool) {
	return func(yield func(*Node) bool) {
		for _, nodes := range r.byName {
			for _, n := range nodes {
				if !yield(n) {
					return
				}
			}
		}
	}
}

// Reporters returns the members that are alive and have the role reporter, in the order of their names.
func (r *Roster) Reporters() (list []*Node) {
	for n := range r.All() {
		if n.Role == cluster.Reporter && n.Alive() {
			list = append(list, n)
		}
	}
	slices.SortFunc(list, func(a, b *Node) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot)) })
	return list
}

// HasNamesake reports whether a node of the same name and another boot is alive.
func (r *Roster) HasNamesake(n *Node) bool {
	return slices.ContainsFunc(r.byName[n.Name], func(s *Node) bool { return s != n && s.Alive() })
}

// BootedAnew reports that the boot of a node with a NodeID is not there any more, known or not, but a later one of the same name is.
func (r *Roster) BootedAnew(nodeID string) bool {
	n := r.ByID(nodeID)
	return (n == nil || !n.Alive()) && slices.ContainsFunc(r.byName[cluster.NodeName(nodeID)], func(s *Node) bool {
		return s.Alive() && (n == nil || s.Follows(n.Since))
	})
}

// Keepers returns the k agents with the highest scores for the hash of a key, the highest first; fewer if there are
// fewer. Of agents with one score, which have one IP, the first by its NodeID counts.
func (r *Roster) Keepers(key uint64, k int) []*Node {
	nodes, scores := make([]*Node, 0, k+1), make([]uint64, 0, k+1)
	for _, n := range r.agents {
		score, at := n.Score(key), len(nodes)
		for at > 0 && scores[at-1] < score {
			at--
		}
		if at > 0 && scores[at-1] == score {
			if n.ID < nodes[at-1].ID {
				nodes[at-1] = n
			}
		} else if at < k {
			nodes, scores = slices.Insert(nodes, at, n), slices.Insert(scores, at, score)
			nodes, scores = nodes[:min(len(nodes), k)], scores[:min(len(nodes), k)]
		}
	}
	return nodes
}

// Join notes that an incarnation is there, or says something else of itself. Of those of one boot the ones at its first IP
// come before others, and of these the latest counts; at this node it is this one. An incarnation has answered at its
// address, so another boot of its name that had that address is there no more. It fails with [ErrFull].
func (r *Roster) Join(id wire.MemberID, m cluster.Member, now time.Time) ([]Change, error) {
	changes, err := r.join(id, m, now)
	if n := r.byMember[id]; n != nil && len(changes) > 0 {
		changes = append(r.replace(n, now), changes...)
	}
	return changes, err
}

// Heard notes that an incarnation which was replaced sends something: it is there all the same.
func (r *Roster) Heard(id wire.MemberID, now time.Time) []Change {
	m, ok := r.replaced[id]
	if !ok {
		return nil
	}
	delete(r.replaced, id)
	changes, _ := r.join(id, m, now) //nolint:errcheck // then it stays unknown
	return changes
}

// replace has a node take the place of other boots of its name at its address.
func (r *Roster) replace(n *Node, now time.Time) (changes []Change) {
	for _, s := range r.byName[n.Name] {
		if s != n && s != r.self && s.Alive() && s.Address == n.Address {
			for _, o := range s.runs {
				delete(r.byMember, o.Incarnation)
				r.replaced[o.Incarnation] = o.Member
			}
			s.runs = nil
			changes = append(changes, r.settle(s, cluster.Dead, now)...)
		}
	}
	return changes
}

func (r *Roster) join(id wire.MemberID, m cluster.Member, now time.Time) ([]Change, error) {
	m.State, m.Since, m.Heard = cluster.Alive, now, time.Time{}
	n := r.ByID(m.NodeID())
	switch {
	case r.self != nil && n != r.self && m.Address == r.self.Address:
		return nil, nil // the agent that was here before the node was booted
	case n == nil:
		if r.nodes >= maxNodes {
			r.forget(now) // nobody is kept out by those that are not there any more
		}
		if r.nodes >= maxNodes {
			return nil, ErrFull
		}
		n = &Node{ID: m.NodeID(), seed: seed(m), home: seed(m), Known: now, Run: &Run{Member: cluster.Member{Name: m.Name, Boot: m.Boot}}}
		r.byName[m.Name] = append(r.byName[m.Name], n)
		r.nodes++
	}
	m.Known = n.Known
	if i := slices.IndexFunc(n.runs, func(o *Run) bool { return o.Incarnation == id }); i >= 0 {
		n.runs[i].Version, n.runs[i].Address = m.Version, m.Address
		return nil, nil
	}
	n.runs = append(n.runs, &Run{id, m})
	r.byMember[id] = n
	slices.SortFunc(n.runs, func(a, b *Run) int { return cmp.Compare(a.Epoch, b.Epoch) })
	if len(n.runs) > maxRuns {
		i := slices.IndexFunc(n.runs, func(o *Run) bool { return o != n.Run && seed(o.Member) != n.home })
		if i < 0 && n == r.self && n.runs[0] == n.Run {
			i = 1
		}
		i = max(i, 0)
		delete(r.byMember, n.runs[i].Incarnation)
		n.runs = slices.Delete(n.runs, i, i+1)
	}
	return r.settle(n, cluster.Left, now), nil
}

// Leave notes that an incarnation is not there any more. This node never leaves.
func (r *Roster) Leave(id wire.MemberID, gracefully bool, now time.Time) []Change {
	delete(r.replaced, id)
	n := r.byMember[id]
	if n == nil || id == r.self.Incarnation {
		return nil
	}
	delete(r.byMember, id)
	n.runs = slices.DeleteFunc(n.runs, func(o *Run) bool { return o.Incarnation == id })
	if gracefully {
		return r.settle(n, cluster.Left, now)
	}
	return r.settle(n, cluster.Dead, now)
}

// settle makes the latest incarnation that is there at home, or else anywhere, the present one of its node. Without one the node is gone, and for
// a moment if its role or its scores change.
func (r *Roster) settle(n *Node, gone cluster.State, now time.Time) (changes []Change) {
	var latest *Run
	for _, o := range n.runs {
		if latest == nil || seed(latest.Member) != n.home || seed(o.Member) == n.home {
			latest = o
		}
	}
	if n == r.self || n.Alive() && n.Run == latest {
		return nil
	}
	if n.Alive() && (latest == nil || latest.Role != n.Role || seed(latest.Member) != n.seed) {
		n.State, n.Since = gone, now
		r.agents = slices.DeleteFunc(r.agents, func(a *Node) bool { return a == n })
		changes = append(changes, Change{Node: n, Kind: Went})
	}
	if latest == nil {
		return changes
	}
	change := Change{n, Renewed, n.Incarnation == latest.Incarnation}
	if !n.Alive() {
		change.Kind = Came
		if latest.Role == cluster.Agent {
			r.agents = append(r.agents, n)
		}
	}
	if change.Kind == Came && !n.Since.IsZero() && now.Sub(n.Since) >= awayAfter {
		latest.AwayFrom, latest.AwayUntil = n.Since, now
	}
	n.Run, n.seed, latest.State = latest, seed(latest.Member), cluster.Alive
	return append(changes, change)
}

// Cleanup forgets what is gone for long. It does so at most once a minute, and returns the nodes that were
// forgotten since the last call.
func (r *Roster) Cleanup(now time.Time) []*Node {
	if !now.Before(r.nextCleanup) {
		r.nextCleanup = now.Add(time.Minute)
		r.forget(now.Add(-keepGone))
	}
	forgotten := r.forgotten
	r.forgotten = nil
	return forgotten
}

// forget forgets the nodes that were gone at a time.
func (r *Roster) forget(at time.Time) {
	for name, nodes := range r.byName {
		nodes = slices.DeleteFunc(nodes, func(n *Node) bool {
			gone := !n.Alive() && !n.Since.After(at)
			if gone {
				r.forgotten = append(r.forgotten, n)
				r.nodes--
			}
			return gone
		})
		if r.byName[name] = nodes; len(nodes) == 0 {
			delete(r.byName, name)
		}
	}
}

// Members are the agents that are there or were recently, in no order; of a node whose agent was started again the
// present one, and others that are there although they should not be.
func (r *Roster) Members(now time.Time) iter.Seq2[*Node, cluster.Member] {
	return func(yield func(*Node, cluster.Member) bool) {
		for n := range r.All() {
			if !n.IsAgent() {
				continue
			}
			if !n.Alive() && !yield(n, n.Member) { // it has no runs
				return
			}
			for _, o := range n.runs {
				m := o.Member
				m.Namesake, m.Doubled = beside(r.byName[n.Name], o, now)
				if (m.Namesake || o == n.Run) && !yield(n, m) {
					return
				}
			}
		}
	}
}

// beside reports whether another agent of the same node name is there at another address, and whether it is a namesake: there for long.
func beside(nodes []*Node, o *Run, now time.Time) (namesake, doubled bool) {
	for _, n := range nodes {
		for _, other := range n.runs {
			if other.Address != o.Address {
				doubled = true
				namesake = namesake || min(now.Sub(other.Since), now.Sub(o.Since)) >= cluster.NamesakesAfter
			}
		}
	}
	return namesake, doubled
}
