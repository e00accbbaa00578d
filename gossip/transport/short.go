package transport

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"

	"golang.org/x/time/rate"
)

// All nodes of a cluster may start at once and join the same few. If each of these answered with its whole list, one would send as many
// lists as there are nodes, each as long as there are nodes: 21 MB with 500. So most get a short list, and then the whole one of
// somebody on it.
const (
	// A node gives its whole list to wholeBurst others that join at once, and to wholeRate more a second.
	wholeRate, wholeBurst = 1, 16
	// shortList is how many members are on a short list, besides the node that gives it. One of up to neverCut, 11 kB, is not cut.
	shortList, neverCut = 16, 64
	// shortHeader begins a short list. Memberlist skips the field Short, as it does not know it.
	shortHeader = "\x06\x84\xa5Nodes%c\xacUserStateLen\x00\xa4Join\xc3\xa5Short\xc3"
)

// stateAlive is memberlist's StateAlive.
const stateAlive = 0

// newWhole bounds the whole lists for those that join.
func newWhole() *rate.Limiter { return rate.NewLimiter(wholeRate, wholeBurst) }

// TookShort reports whether a list that this node got when it joined was a short one, since TookShort was called last.
func (t *Transport) TookShort() bool { return t.short.Swap(false) }

// Write implements net.Conn. Memberlist writes a list as one.
func (s *screened) Write(p []byte) (int, error) {
	b := p
	if s.joins {
		var err error
		if b, err = s.t.forJoining(p); err != nil {
			return 0, err
		}
	}
	if _, err := s.Conn.Write(b); err != nil {
		return 0, err
	}
	return len(p), nil
}

// forJoining is what somebody who joins gets instead of memberlist's answer.
func (t *Transport) forJoining(list []byte) ([]byte, error) {
	if len(list) == 0 || list[0] != msgPushPull {
		return list, nil
	}
	rest := bytes.NewReader(list[1:])
	m, nodes := msgpack{in: rest}, uint64(0)
	if err := m.readMap(func(name string, value uint64) bool {
		if name == "Nodes" {
			nodes = value
		}
		return true
	}); err != nil {
		return nil, fmt.Errorf("reading the own list of members: %w", err)
	}
	if nodes <= neverCut || t.whole.Allow() {
		return list, nil
	}
	t.add(dropShort)
	var self []byte
	var others [][]byte
	for range nodes {
		entry, state, id := list[len(list)-rest.Len():], uint64(stateAlive), t.ID-1
		m.b = m.b[:0]
		if err := m.readMap(func(name string, value uint64) bool {
			switch name {
			case "Name":
				id, _ = t.MemberID(string(m.text))
			case "State":
				state = value
			}
			return true
		}); err != nil {
			return nil, fmt.Errorf("reading the own list of members: %w", err)
		}
		entry = entry[:len(entry)-rest.Len()]
		if id == t.ID {
			self = entry
		} else if state == stateAlive {
			others = append(others, entry)
		}
	}
	if self == nil {
		return nil, errors.New("the own list of members has not this node")
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	others = append(others[:min(shortList, len(others))], self)
	return append(fmt.Appendf(nil, shortHeader, len(others)), bytes.Join(others, nil)...), nil
}
