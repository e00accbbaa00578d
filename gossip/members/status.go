package members

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

const (
	// namesakesAfter is how long two of one name must be there together to be called
	// namesakes: a node that was cut off or started again is found dead before.
	namesakesAfter = 30 * time.Second
	// stateAge is how old the knowledge of who is suspect may be.
	stateAge = time.Second
)

// Status is how the membership is doing.
type Status struct {
	// Address is where others reach this agent. Encrypted says that a key is in use.
	Address   string
	Label     string
	Encrypted bool
	// Members counts them by state, this one too.
	Members map[cluster.State]int
	// Health is 0 when this agent takes part in time, and grows to 7 when it does not.
	Health int
	// JoinsFailed counts addresses that could not be joined; JoinError is the last error
	// of one who is alone.
	JoinsFailed uint64
	JoinError   error
	// Dropped counts what was not taken in or not sent, by reason; all reasons are there.
	Dropped map[string]uint64
	// Problems are clauses for people that say what is wrong and what to do.
	Problems []string
}

// List is who is there and who was in the last ten minutes, by node name, this agent too;
// of a node whose agent was started again the latest.
// It takes some milliseconds in a large cluster; it must not be called by a [Handler].
func (m *Members) List() []Member {
	m.refresh(stateAge)
	return m.table.members(time.Now())
}

// Status is how the membership is doing. Like List, it must not be called by a Handler.
func (m *Members) Status() Status {
	members := m.List()
	s := Status{
		Label: m.label, Encrypted: m.keys != nil,
		Members: map[cluster.State]int{cluster.Alive: 0, cluster.Suspect: 0, cluster.Dead: 0, cluster.Left: 0},
		Health:  m.list.GetHealthScore(),
		Dropped: m.drops.counts(),
	}
	for _, member := range members {
		s.Members[member.State]++
		if member.Self {
			s.Address = member.Address
		}
	}
	m.joins.mu.Lock()
	s.JoinsFailed, s.JoinError = m.joins.failed, m.joins.err
	m.joins.mu.Unlock()
	now := time.Now()
	s.Problems = slices.Concat(
		m.joins.problems(s.Members), m.keyProblems(), m.peers.problems(),
		nameProblems(members), m.trouble.problems(members, s.Address, now), m.noise.problems(now),
	)
	return s
}

func (m *Members) keyProblems() []string {
	if m.keys == nil {
		return nil
	}
	return m.keys.problems()
}

// problems are clauses for people about joining; counts are the members by state.
func (j *joins) problems(counts map[cluster.State]int) (all []string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, t := range j.targets {
		if err := j.unread[t.host]; err != nil && len(all) < maxNamed {
			all = append(all, err.Error())
		}
	}
	switch dead := counts[cluster.Dead]; {
	case j.err != nil:
		all = append(all, fmt.Sprintf("this node is alone: %v", j.err))
	case dead > 0 && counts[cluster.Alive]+counts[cluster.Suspect] == 1:
		// Nobody else was tried yet.
		all = append(all, fmt.Sprintf("this node is alone: none of %d other nodes answers any more; check its network", dead))
	}
	return all
}

// nameProblems are clauses for people about nodes of one name, one for each name.
func nameProblems(members []Member) (all []string) {
	same := make(map[string][]Member)
	var names []string
	for _, m := range members {
		if !m.Namesake {
			continue
		}
		if same[m.Name] == nil {
			names = append(names, m.Name)
		}
		same[m.Name] = append(same[m.Name], m)
	}
	for _, name := range names[:min(len(names), maxNamed)] {
		all = append(all, nameProblem(name, same[name]))
	}
	return all
}

func nameProblem(name string, same []Member) string {
	var at []string
	for _, m := range same[:min(len(same), maxNamed)] {
		at = append(at, m.Address)
	}
	if len(same) > maxNamed {
		at = append(at, "…")
	}
	where := strings.Join(at, ", ")
	if !slices.ContainsFunc(same, func(m Member) bool { return m.Boot != same[0].Boot }) {
		return fmt.Sprintf("%d agents of node %s run on one machine (%s): stop all but one", len(same), name, where)
	}
	return fmt.Sprintf("%d live nodes have the name %s (%s): a machine that was replaced and still runs, or some made from one image; "+
		"shut the old one down, or give each a --node-name of its own", len(same), name, where)
}

// members are the latest agents of all nodes, with this one.
func (t *table) members(now time.Time) []Member {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]Member, 0, len(t.entries)+1)
	all = append(all, t.self)
	for _, e := range t.entries {
		all = append(all, e.Member)
	}
	slices.SortFunc(all, func(a, b Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Epoch, b.Epoch))
	})
	all = latest(all)
	for i := 0; i < len(all); {
		same := all[i:]
		if end := slices.IndexFunc(same, func(m Member) bool { return m.Name != all[i].Name }); end >= 0 {
			same = same[:end]
		}
		flagNamesakes(same, now)
		i += len(same)
	}
	return all
}

// latest leaves out, of members in order, agents that are gone of nodes that have one that is
// there, or a later one: after an upgrade nobody is missing.
func latest(all []Member) []Member {
	gone := func(m Member) bool { return !m.Self && (m.State == cluster.Dead || m.State == cluster.Left) }
	kept := all[:0]
	for len(all) > 0 {
		end := slices.IndexFunc(all, func(m Member) bool { return m.NodeID() != all[0].NodeID() })
		if end < 0 {
			end = len(all)
		}
		same := all[:end]
		all = all[end:]
		if !slices.ContainsFunc(same, func(m Member) bool { return !gone(m) }) {
			kept = append(kept, same[len(same)-1])
			continue
		}
		for _, m := range same {
			if !gone(m) {
				kept = append(kept, m)
			}
		}
	}
	return kept
}

// flagNamesakes marks those of one name that are alive together, and have been there for a
// while: another boot, or a later agent on this very kernel.
func flagNamesakes(same []Member, now time.Time) {
	long := func(m *Member) bool { return m.State == cluster.Alive && now.Sub(m.joined) >= namesakesAfter }
	count := 0
	for i := range same {
		if long(&same[i]) {
			count++
		}
	}
	for i := range same {
		same[i].Namesake = count > 1 && long(&same[i])
	}
}
