package members

import (
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// maxNamed bounds the names that one problem lists.
const maxNamed = 3

// Status returns the state of the membership: address, label, what was dropped and problems.
func (m *Members) Status() cluster.Status {
	now := time.Now()
	m.mu.Lock()
	others, answered, full := len(m.present), m.answered, len(m.proofs) >= maxMembers
	m.mu.Unlock()
	problems := slices.Concat(m.joins.problems(others), m.blocked(others, answered, now), m.transport.Problems(now), m.unproved())
	if full {
		problems = append(problems, fmt.Sprintf("this node has %d other members and accepts no more: duplicates on further nodes are not found; "+
			"give each part of the nodes a --cluster of its own", maxMembers))
	}
	m.known.mu.Lock()
	defer m.known.mu.Unlock()
	if m.known.err != nil {
		problems = append(problems, m.known.err.Error())
	}
	return cluster.Status{
		Address: m.self.Address, Label: m.opts.Label, Encrypted: m.opts.KeyFile != "", Dropped: m.transport.Dropped(), Problems: problems,
	}
}

// problems are clauses for people about joining.
func (j *joins) problems(others int) (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.targets {
		if t.err != nil {
			all = append(all, t.err.Error())
		}
	}
	if more := len(all) - maxNamed; more > 0 {
		all = append(all[:maxNamed], fmt.Sprintf("%d more names of nodes to join lead nowhere", more))
	}
	switch {
	case others > 0:
	case j.err != nil:
		all = append(all, fmt.Sprintf("this node is alone: %v", j.err))
	case len(j.away) > 0: // nobody else was tried yet
		all = append(all, fmt.Sprintf("this node is alone: none of %d other nodes answers any more; check its network", len(j.away)))
	}
	return all
}

// cutAfter is how long nobody must have answered for the node to have been cut off: others may have given it up.
const cutAfter = time.Minute

// Cut is when nobody answered this node for a minute or more the last time; zero if that never was. Such a node notices of one
// other after another that it does not answer, which takes hours for thousands.
func (m *Members) Cut() (from, until time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cut.from, m.cut.until
}

// blockedFor is how long no ping may be answered: memberlist sends one each second, and five in a row do
// not fail by loss alone.
const blockedFor = 5*time.Second + 500*time.Millisecond

// blocked are clauses for people. Besides exchanges of the whole list, memberlist dials members that do not answer by
// UDP.
func (m *Members) blocked(others int, answered, now time.Time) []string {
	own := m.self.Address
	if others == 0 || now.Sub(answered) < blockedFor {
		return nil
	}
	if now.Sub(m.transport.Dialed()) < blockedFor {
		return []string{fmt.Sprintf("other nodes answer by TCP, but none by UDP: allow UDP to and from %s", own)}
	}
	return []string{fmt.Sprintf("no other node answers: this node, %s, is cut off from the others", own)}
}
