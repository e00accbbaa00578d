package gossip

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// maxNamed bounds the names that one problem lists.
const maxNamed = 3

// Members returns the agents that are alive or were recently, ordered by node name.
func (g *Gossip) Members() []cluster.Member {
	known := g.network.List()
	g.state.Lock()
	defer g.state.Unlock()
	_, unacked := g.leases.Unacked(time.Now())
	list := make([]cluster.Member, 0, len(known))
	for _, k := range known {
		m := k.Member
		if n := g.roster.Sender(k.ID); n != nil {
			m.Unacked = unacked[n]
			if p := g.peers[n]; p != nil && p.heard.After(m.LastReceived) {
				m.LastReceived = p.heard
			}
		}
		list = append(list, m)
	}
	return list
}

// Status returns the state of gossip at this node.
func (g *Gossip) Status() cluster.Status {
	n := g.network.Status()
	s := cluster.Status{
		Address: n.Address, Label: n.Label, Encrypted: n.Encrypted, Members: n.Members,
		Problems: slices.Clone(n.Problems),
	}
	s.Dropped, s.Sent, s.Received = g.count.read()
	for reason, count := range n.Dropped {
		s.Dropped[reason] += count
	}

	g.state.Lock()
	defer g.state.Unlock()
	if n := g.kept.Overfull; n > 0 {
		s.Dropped[dropHolders] = n
	}
	s.Leases, s.Kept = g.leases.Len(), g.kept.Len()
	now := time.Now()
	s.Problems = append(s.Problems, g.foreignProblem(now)...)
	unacked, late := g.leases.Unacked(now)
	s.Unacked = unacked
	var names []string
	for keeper := range late {
		if !g.peers[keeper].speaksForeign(now) { // that is said already
			names = append(names, keeper.Name)
		}
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
