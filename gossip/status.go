package gossip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// maxNamed bounds the names that one problem lists.
const maxNamed = 3

// Members returns the agents that are alive or were recently, ordered by node name.
func (g *Gossip) Members() []cluster.Member {
	now := time.Now()
	g.state.Lock()
	defer g.state.Unlock()
	_, unacked, suspect := g.unacked(now)
	list := g.roster.Members(now)
	for i := range list {
		m := &list[i]
		n := g.roster.Sender(wire.MemberIDOf(m.Name, m.Boot, m.Epoch))
		if n == nil {
			continue
		}
		m.Unacked = unacked[n]
		if suspect[n] && m.State == cluster.Alive {
			m.State = cluster.Suspect
		}
	}
	return list
}

// Status returns the state of gossip at this node.
func (g *Gossip) Status() cluster.Status {
	n := g.network.Status()
	s := cluster.Status{Address: n.Address, Label: n.Label, Encrypted: n.Encrypted, Problems: slices.Clone(n.Problems)}
	s.Dropped, s.Sent, s.Received = g.count.read()
	for reason, count := range n.Dropped {
		s.Dropped[reason] += count
	}

	now := time.Now()
	g.state.Lock()
	defer g.state.Unlock()
	if n := g.kept.Overfull; n > 0 {
		s.Dropped[dropHolders] = n
	}
	s.Leases, s.Kept = g.leases.Len(), g.kept.Len()
	unacked, late, suspect := g.unacked(now)
	s.Unacked, s.Members = unacked, g.roster.Counts()
	for n := range suspect {
		if n.Alive() {
			s.Members[cluster.Alive]--
			s.Members[cluster.Suspect]++
		}
	}
	s.Problems = append(s.Problems, namesakeProblems(g.roster.Namesakes(now))...)
	var names []string
	for keeper := range late {
		names = append(names, keeper.Name)
	}
	if len(names) > 0 {
		slices.Sort(names)
		s.Problems = append(s.Problems, fmt.Sprintf(
			"%d leases are not acknowledged by %s: check the agents and the network there", unacked, some(slices.Compact(names))))
	}
	if g.leases.Full() {
		s.Problems = append(s.Problems, fmt.Sprintf(
			"this node has more than %d addresses: the others are not compared with those of other nodes", s.Leases))
	}
	return s
}

// some lists a few of many names.
func some(names []string) string {
	if more := len(names) - maxNamed; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNamed], ", "), more)
	}
	return strings.Join(names, ", ")
}

// namesakeProblems are clauses about agents of one node name, one for each name; the members are ordered by name.
func namesakeProblems(members []cluster.Member) (all []string) {
	for len(members) > 0 && len(all) < maxNamed {
		end := slices.IndexFunc(members, func(m cluster.Member) bool { return m.Name != members[0].Name })
		if end < 0 {
			end = len(members)
		}
		same := members[:end]
		members = members[end:]
		var at []string
		boots := make(map[string]bool)
		for _, m := range same {
			at = append(at, m.Address)
			boots[m.Boot] = true
		}
		if len(boots) == 1 {
			all = append(all, fmt.Sprintf("%d agents of node %s run on one machine (%s): stop all but one", len(same), same[0].Name, some(at)))
			continue
		}
		all = append(all, fmt.Sprintf("%d live nodes have the name %s (%s): a machine that was replaced and still runs, or some made from one image; "+
			"shut the old one down, or give each a --node-name of its own", len(same), same[0].Name, some(at)))
	}
	return all
}
