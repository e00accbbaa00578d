package agent

import (
	"maps"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// maxTold bounds the nodes that this one shares addresses with, as told to all.
	maxTold = 256
	// pairsEvery is how often they are counted while conflicts come and go.
	pairsEvery = time.Second
)

// clusterWide says whether the other nodes are told of a network's addresses.
func (l *loop) clusterWide(network string) bool {
	return l.cluster != nil && l.config.Scope(network) == config.Cluster
}

// lease tells the keepers what has changed among this node's bindings, and looks after those
// that have ended.
func (l *loop) lease() {
	for _, change := range l.detector.TakeChanges() {
		b := change.Binding
		if change.Ended {
			l.wantAgain(b.Key, b.Holder.ID, time.Now())
		}
		switch {
		case l.cluster == nil:
		case change.Ended:
			// Whatever the network is now: when it was leased it may have been another.
			l.cluster.Withdraw(b.Key, b.Holder.ID, change.Rivals)
		case l.clusterWide(b.Key.Network):
			l.cluster.Lease(cluster.Lease{Key: b.Key, Claim: claim(b, change.Episodes)})
		}
	}
}

// claim is a binding as the other nodes are told of it.
func claim(b detector.Binding, episodes int) cluster.Claim {
	return cluster.Claim{
		Holder: b.Holder, Evidence: b.Evidence, FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, Episodes: episodes,
		FoundAtStart: b.FoundAtStart,
	}
}

// claims are this node's own holders of an address.
func (l *loop) claims(key detector.Key) []cluster.Claim {
	episodes := l.detector.Episodes(key)
	var own []cluster.Claim
	for _, b := range l.detector.Claims(key) {
		own = append(own, claim(b, episodes))
	}
	return own
}

// rescope follows networks whose reach a new configuration has changed.
func (l *loop) rescope(before *config.Config, now time.Time) {
	if l.cluster == nil {
		return
	}
	for _, b := range l.detector.Bindings(nil) {
		was, is := before.Scope(b.Key.Network) == config.Cluster, l.clusterWide(b.Key.Network)
		own := b.Holder.ID.Node == l.node.ID()
		switch {
		case was == is:
		case !own && !is:
			l.apply(l.detector.Withdraw(b.Key, b.Holder.ID, "network "+b.Key.Network+" is each node's own now", now))
		case own && is && l.detector.Heard(b.Key, b.Holder.ID) && !l.config.Shared(b.Key.IP):
			l.cluster.Lease(cluster.Lease{Key: b.Key, Claim: claim(b, l.detector.Episodes(b.Key))})
		case own && !is:
			l.cluster.Withdraw(b.Key, b.Holder.ID, nil)
		}
	}
}

// heard takes in what another node tells or asks.
func (l *loop) heard(message cluster.Message) {
	now := time.Now()
	switch m := message.(type) {
	case cluster.Rival:
		l.meet(m.Key, m.Claims, now)
	case cluster.Question:
		l.meet(m.Key, m.Claims, now)
		l.examine(m, now)
	case cluster.Testimony:
		l.testified(m, now)
	case cluster.Returned:
		l.apply(l.detector.Returned(m.Node, now))
	case cluster.Query:
		if l.ready { // before, no answer is better than an empty one
			l.reply(m)
		}
	}
}

// meet lets the detector know of holders on other nodes.
func (l *loop) meet(key detector.Key, claims []cluster.Claim, now time.Time) {
	if !l.clusterWide(key.Network) {
		return
	}
	for _, c := range claims {
		if c.Holder.ID.Node != l.node.ID() {
			l.apply(l.detector.Observe(sightingOf(key, c, false, c.LastSeen), now))
		}
	}
}

// sightingOf is a claim of another node as the detector takes it.
func sightingOf(key detector.Key, c cluster.Claim, answer bool, at time.Time) detector.Sighting {
	return detector.Sighting{
		Key: key, Holder: c.Holder, Evidence: c.Evidence, Answer: answer, At: at,
		FirstSeen: c.FirstSeen, FoundAtStart: c.FoundAtStart, Episodes: c.Episodes,
	}
}

// askNode asks the node of a holder.
func (l *loop) askNode(s detector.Solicitation, now time.Time) {
	if !l.clusterWide(s.Key.Network) {
		l.apply(l.detector.Withdraw(s.Key, s.Holder, "network "+s.Key.Network+" is each node's own", now))
		return
	}
	l.solicited[s.Purpose]++
	l.cluster.Ask(s, l.claims(s.Key))
}

// testified hands the answer of another node to the detector.
func (l *loop) testified(t cluster.Testimony, now time.Time) {
	s := t.Solicitation
	if s.Holder.Node == l.node.ID() {
		return // only the node of a holder speaks for it
	}
	node := "node " + cluster.NodeName(s.Holder.Node)
	if t.Claim.Holder.ID == s.Holder {
		l.detector.DescribeAt(s.Key, s.Holder, func(h *detector.Holder) { *h = t.Claim.Holder })
	}
	switch t.Outcome {
	case cluster.Answered:
		l.apply(l.detector.Observe(sightingOf(s.Key, t.Claim, true, t.At), now))
	case cluster.Unanswered, cluster.Forwards:
		l.apply(l.detector.Unanswered(s, t.Outcome == cluster.Forwards, now))
	case cluster.Gone:
		if s.Purpose == 0 { // unasked, and so perhaps old news
			l.apply(l.detector.Doubt(s.Key, s.Holder, now))
			return
		}
		reason := t.Reason
		if reason == "" {
			reason = "it is gone"
		}
		l.apply(l.detector.Withdraw(s.Key, s.Holder, node+" says "+reason, now))
	case cluster.Refused:
		l.apply(l.detector.NotSolicited(s, node+" says "+t.Reason, t.RetryAt, now))
	case cluster.Unreachable:
		l.apply(l.detector.Unreachable(s, node+" does not answer", now))
	}
}

// countPairs tells all nodes how many addresses this one shares with others. Of two nodes
// the lesser one tells.
func (l *loop) countPairs() {
	l.pairsAt = time.Time{}
	self := l.node.ID()
	present := make(map[string]cluster.Pair)
	for _, c := range l.detector.Conflicts(false) {
		if c.State != detector.Confirmed {
			continue
		}
		for _, other := range otherNodes(c, self) {
			pair, known := present[other]
			if other < self || !known && len(present) == maxTold {
				continue
			}
			if !known || c.ConfirmedAt.Before(pair.Since) {
				pair.Since = c.ConfirmedAt
			}
			pair.A, pair.B = self, other
			pair.Addresses++
			if len(pair.Examples) < 3 {
				pair.Examples = append(pair.Examples, c.Key)
			}
			present[other] = pair
		}
	}
	for other := range l.told {
		if _, still := present[other]; !still {
			l.cluster.Pair(cluster.Pair{A: self, B: other})
		}
	}
	for other, pair := range present {
		if l.told[other] != pair.Addresses {
			l.cluster.Pair(pair)
		}
	}
	clear(l.told)
	for other, pair := range present {
		l.told[other] = pair.Addresses
	}
}

// otherNodes are the nodes of a conflict's holders but for one.
func otherNodes(c detector.Conflict, self string) []string {
	nodes := make(map[string]bool)
	for _, h := range c.Holders {
		if h.Holder.ID.Node != self {
			nodes[h.Holder.ID.Node] = true
		}
	}
	return slices.Sorted(maps.Keys(nodes))
}
