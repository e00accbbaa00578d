package gossip

import (
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// foreignFor is how long a node is said to speak another version after it was heard to:
// longer than leases wait to be refreshed.
const foreignFor = 5 * time.Minute

// genuineFor is how long one who was understood is not taken for speaking another version:
// without a key anybody can say so, and would have a problem come and go in the log.
const genuineFor = 5 * time.Minute

// heardForeign takes in that a packet of another version came in the name of a member.
func (g *Gossip) heardForeign(sender wire.MemberID, now time.Time) {
	n := g.roster.Sender(sender)
	if n == nil || n == g.roster.Self() {
		return
	}
	if p := g.peer(n); p.heard.IsZero() || now.Sub(p.heard) >= genuineFor {
		p.foreign = now
	}
}

// speaksForeign says whether the last that was heard of a peer was of another version.
func (p *peer) speaksForeign(now time.Time) bool {
	return p != nil && !p.foreign.IsZero() && now.Sub(p.foreign) < foreignFor
}

// foreignProblem is a clause for people, or none. Its first part is always the same, so
// that it is logged once, not for every node.
func (g *Gossip) foreignProblem(now time.Time) []string {
	var names []string
	for n, p := range g.peers {
		if n.Alive && p.speaksForeign(now) {
			names = append(names, n.Name)
		}
	}
	if names == nil {
		return nil
	}
	slices.Sort(names)
	return []string{fmt.Sprintf(
		"addresses are not compared with nodes whose agents have another version of gossip: finish the upgrade of dupip on %s",
		some(slices.Compact(names)))}
}
