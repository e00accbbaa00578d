// Package events decides which Events there should be of the conflicts that agents report, and when each is written.
//
// It is pure: it talks to nobody and takes the time as an argument. What is written is remembered by name: an Event's name
// follows from what it is about, so that a second writer, or the same one after a restart, finds it there.
package events

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/report/merge"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
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
	conflicts  map[detector.Key]map[string]detector.Conflict // by NodeID
	unreserved map[string]bool                               // by NodeID
	away       map[string]time.Time                          // of nodes with reports, by NodeID: since when
}

func newState(rules merge.Rules) state {
	return state{rules, make(map[detector.Key]map[string]detector.Conflict), make(map[string]bool), make(map[string]time.Time)}
}

// conflict takes a conflict as one node reports it, and reports whether there was room for it.
func (s *state) conflict(node string, c detector.Conflict) bool {
	if c.State != detector.Confirmed {
		if delete(s.conflicts[c.Key], node); len(s.conflicts[c.Key]) == 0 {
			delete(s.conflicts, c.Key)
		}
		return true
	}
	if s.conflicts[c.Key] == nil {
		if len(s.conflicts) >= maxKeys {
			return false
		}
		s.conflicts[c.Key] = make(map[string]detector.Conflict)
	}
	s.conflicts[c.Key][node] = c
	return true
}

// merged are the open conflicts of an address: what several nodes report of the same holders is one.
func (s *state) merged(key detector.Key) []detector.Conflict {
	var answers []cluster.Answer
	for node, c := range s.conflicts[key] {
		answers = append(answers, cluster.Answer{
			Member:   cluster.Member{Name: cluster.NodeName(node), Boot: cluster.BootID(node)},
			Document: cluster.Document{Conflicts: []detector.Conflict{c}},
		})
	}
	slices.SortFunc(answers, func(a, b cluster.Answer) int {
		return cmp.Or(strings.Compare(a.Member.Name, b.Member.Name), strings.Compare(a.Member.Boot, b.Member.Boot))
	})
	list, _ := merge.Conflicts(answers, s.rules)
	return list
}

// gone forgets the nodes that were not alive for long, and returns the addresses they had reported.
func (s *state) gone(alive map[string]bool, now time.Time) (keys []detector.Key) {
	nodes := make(map[string]bool)
	for _, reports := range s.conflicts {
		for node := range reports {
			nodes[node] = true
		}
	}
	for node := range s.unreserved {
		nodes[node] = true
	}
	for node := range nodes {
		if alive[node] {
			delete(s.away, node)
		} else if _, known := s.away[node]; !known {
			s.away[node] = now
		}
	}
	for node, since := range s.away {
		if nodes[node] && now.Sub(since) < awayAfter {
			continue
		}
		delete(s.away, node)
		delete(s.unreserved, node)
		for key, reports := range s.conflicts {
			if _, there := reports[node]; there {
				keys = append(keys, key)
				s.conflict(node, detector.Conflict{Key: key, State: detector.Resolved})
			}
		}
	}
	return keys
}
