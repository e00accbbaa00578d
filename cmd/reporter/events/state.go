// Package events decides which Events there should be of the conflicts that agents report, and when each is written.
//
// It is pure: it talks to nobody and takes the time as an argument. What is written is remembered by name: an Event's name
// follows from what it is about, so that a second writer, or the same one after a restart, finds it there.
package events

import (
	"maps"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

const (
	// maxKeys bounds the addresses in conflict, maxNodes the nodes.
	maxKeys, maxNodes = 8192, 16384
	// awayAfter is how long an agent may be away before its conflicts count as ended: longer than an upgrade takes.
	awayAfter = 5 * time.Minute
	// reportedAgain is within what time an agent reports again what it had reported before it was started again: longer than it verifies
	// that. What it does not, it does not know any more.
	reportedAgain = 2 * time.Minute
)

// state is what the agents have reported: open conflicts, and which nodes have findings of kinds that have Events.
type state struct {
	rules     merge.Rules
	conflicts map[detector.Key]*reported
	found     map[foundOn]bool
	seen      map[string]time.Time // when a node was alive, by NodeID
}

// foundOn is a kind of findings, and the node that has them: its NodeID, or its name if they are of a book of the API server.
type foundOn struct{ node, kind string }

// reported are the open conflicts of an address.
type reported struct {
	by    map[string]report // by NodeID
	since time.Time         // when the first of them came
}

// report is a conflict as a node reported it last, and the epoch of the agent that did so.
type report struct {
	document.Conflict
	epoch int64
}

// conflict takes a conflict as one node reports it, and reports whether there was room for it.
func (s *state) conflict(from cluster.Report, c document.Conflict, now time.Time) bool {
	key, node := c.Key(), from.Node
	if c.State != detector.Confirmed || c.Drill { // perhaps since its last report
		s.end(node, key)
		return true
	}
	if s.conflicts[key] == nil {
		if len(s.conflicts) >= maxKeys {
			return false
		}
		s.conflicts[key] = &reported{make(map[string]report), now}
	}
	s.conflicts[key].by[node] = report{c, from.Epoch}
	return true
}

// end forgets what a node has reported of an address.
func (s *state) end(node string, key detector.Key) {
	if r := s.conflicts[key]; r != nil {
		if delete(r.by, node); len(r.by) == 0 {
			delete(s.conflicts, key)
		}
	}
}

// merged are the open conflicts of an address: what several nodes report of the same holders is one.
func (s *state) merged(key detector.Key) []document.Conflict {
	if s.conflicts[key] == nil {
		return nil
	}
	var answers []document.Answer
	for node, r := range s.conflicts[key].by {
		answers = append(answers, document.Answer{Node: cluster.NodeName(node), BootID: cluster.BootID(node), Conflicts: []document.Conflict{r.Conflict}})
	}
	list, _ := merge.Conflicts(answers, s.rules)
	return list
}

// gone forgets the nodes that were not alive for long or were booted anew, and what an agent has not reported again that was started
// again. It returns the addresses of what it forgot. alive are the live agents, by NodeID.
func (s *state) gone(alive map[string]cluster.Member, now time.Time) (keys []detector.Key) {
	latest := make(map[string]cluster.Member) // by name
	for node, m := range alive {
		if s.seen[node] = now; !m.Known.Before(latest[m.Name].Known) {
			latest[m.Name] = m
		}
	}
	isGone := func(node string) bool {
		if s.seen[node].IsZero() { // it has reported, and was not alive since
			s.seen[node] = now
		}
		_, isAlive := alive[node]
		other, isThere := latest[cluster.NodeName(node)]
		return now.Sub(s.seen[node]) >= awayAfter || !isAlive && isThere && other.Follows(s.seen[node])
	}
	maps.DeleteFunc(s.found, func(on foundOn, _ bool) bool { return isGone(on.node) })
	for key, reports := range s.conflicts {
		for node, r := range reports.by {
			agent := alive[node]
			if isGone(node) || r.epoch < agent.Epoch && now.Sub(agent.Since) >= reportedAgain {
				keys = append(keys, key)
				s.end(node, key)
			}
		}
	}
	maps.DeleteFunc(s.seen, func(_ string, at time.Time) bool { return now.Sub(at) >= awayAfter })
	return keys
}
