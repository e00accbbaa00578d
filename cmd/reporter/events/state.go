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
)

// state is what the agents have reported: open conflicts, and which nodes have addresses that nobody has reserved.
type state struct {
	rules      merge.Rules
	conflicts  map[detector.Key]*reported
	unreserved map[string]bool      // by NodeID
	seen       map[string]time.Time // when a node was alive, by NodeID
}

// reported are the open conflicts of an address.
type reported struct {
	by    map[string]document.Conflict // by NodeID
	since time.Time                    // when the first of them came
}

// conflict takes a conflict as one node reports it, and reports whether there was room for it.
func (s *state) conflict(node string, c document.Conflict, now time.Time) bool {
	key := c.Key()
	if c.State != detector.Confirmed || c.Drill { // perhaps since its last report
		s.end(node, key)
		return true
	}
	if s.conflicts[key] == nil {
		if len(s.conflicts) >= maxKeys {
			return false
		}
		s.conflicts[key] = &reported{make(map[string]document.Conflict), now}
	}
	s.conflicts[key].by[node] = c
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
	for node, c := range s.conflicts[key].by {
		answers = append(answers, document.Answer{Node: cluster.NodeName(node), BootID: cluster.BootID(node), Conflicts: []document.Conflict{c}})
	}
	list, _ := merge.Conflicts(answers, s.rules)
	return list
}

// gone forgets the nodes that were not alive for long, and returns the addresses they had reported.
func (s *state) gone(alive map[string]bool, now time.Time) (keys []detector.Key) {
	for node := range alive {
		s.seen[node] = now
	}
	isGone := func(node string) bool {
		if s.seen[node].IsZero() { // it has reported, and was not alive since
			s.seen[node] = now
		}
		return now.Sub(s.seen[node]) >= awayAfter
	}
	maps.DeleteFunc(s.unreserved, func(node string, _ bool) bool { return isGone(node) })
	for key, reports := range s.conflicts {
		for node := range reports.by {
			if isGone(node) {
				keys = append(keys, key)
				s.end(node, key)
			}
		}
	}
	maps.DeleteFunc(s.seen, func(_ string, at time.Time) bool { return now.Sub(at) >= awayAfter })
	return keys
}
