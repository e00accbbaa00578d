package gossip

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/roster"
)

// Members returns the agents that are alive or were recently, ordered by node name.
func (g *Gossip) Members() []cluster.Member {
	g.state.Lock()
	defer g.state.Unlock()
	members, _ := g.members(g.now())
	return slices.SortedFunc(members, compareMembers)
}

func compareMembers(a, b cluster.Member) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Epoch, b.Epoch))
}

// members are those, in no order, and how many leases are not acknowledged. Call it with the state's lock.
func (g *Gossip) members(now time.Time) (members iter.Seq[cluster.Member], late int) {
	late, unacked, suspect := g.post.unacked(g.roster.Self(), now)
	from, until := g.network.Cut()
	return func(yield func(cluster.Member) bool) {
		for n, m := range g.roster.Members(now) {
			if m.Unacked = unacked[n]; suspect[n] {
				m.State = cluster.Suspect
			}
			if from.After(m.AwayUntil) && n.Known.Before(from) && !m.Self {
				m.AwayFrom, m.AwayUntil = from, until
			}
			if !yield(m) {
				return
			}
		}
	}, late
}

// Status returns the state of gossip at this node.
func (g *Gossip) Status() cluster.Status {
	s := g.network.Status()
	dropped, sent, received := g.count.read()
	maps.Copy(dropped, s.Dropped)
	s.Dropped, s.Sent, s.Received = dropped, sent, received

	g.state.Lock()
	defer g.state.Unlock()
	members, late := g.members(g.now())
	s.Leases, s.Kept, s.Unacked = g.holders.leases.Len(), g.holders.kept.Len(), late
	s.Members = map[cluster.State]int{cluster.Alive: 0, cluster.Suspect: 0, cluster.Dead: 0, cluster.Left: 0}
	var silent []string
	var namesakes []cluster.Member
	for m := range members {
		if s.Members[m.State]++; m.Unacked > 0 {
			silent = append(silent, m.Name)
		}
		if m.Namesake {
			namesakes = append(namesakes, m)
		}
	}
	if slices.Sort(silent); len(silent) > 0 {
		s.Problems = append(s.Problems, fmt.Sprintf(
			"%d leases are not acknowledged by %s: check the agents and the network there", late, detector.List(slices.Compact(silent))))
	}
	for _, n := range g.roster.Reporters() {
		s.Reporters = append(s.Reporters, n.Member)
	}
	slices.SortFunc(namesakes, compareMembers)
	s.Problems = append(s.Problems, namesakeProblems(namesakes)...)
	if s.Leases >= lease.MaxLeases {
		s.Problems = append(s.Problems, fmt.Sprintf(
			"this node has %d addresses: no more are compared with those of other nodes", s.Leases))
	}
	return s
}

// namesakeProblems are clauses about agents of one node name, one for each name; the members are ordered by name.
func namesakeProblems(members []cluster.Member) (all []string) {
	for len(members) > 0 && len(all) < maxNamed {
		var at, boots []string
		name := members[0].Name
		for ; len(members) > 0 && members[0].Name == name; members = members[1:] {
			at, boots = append(at, members[0].Address), append(boots, members[0].Boot)
		}
		if len(slices.Compact(boots)) == 1 {
			all = append(all, fmt.Sprintf("%d agents of node %s run on one machine (%s): stop all but one", len(at), name, detector.List(at)))
			continue
		}
		all = append(all, fmt.Sprintf("%d live nodes have the name %s (%s): a machine that was replaced and still runs, or some made from one image; "+
			"shut the old one down, or give each a --node-name of its own", len(at), name, detector.List(at)))
	}
	return all
}

// log logs the change of a member: in a quiet cluster each is worth a line, a thousand nodes that start are not.
func (m *memberLines) log(log *slog.Logger, change roster.Change, now time.Time) {
	n, level, what, leftOut := change.Node, slog.LevelInfo, "a node joined", &m.joined
	switch {
	case change.Kind != roster.Went:
	case n.State == cluster.Dead:
		level, what, leftOut = slog.LevelWarn, "a node does not answer any more; check its agent, and the network to it", &m.dead
	default:
		what, leftOut = "a node left", &m.left
	}
	if !m.limit.AllowN(now, 1) {
		if level = slog.LevelDebug; !log.Enabled(context.Background(), level) {
			*leftOut++
			return
		}
	}
	log.Log(context.Background(), level, what, "node", n.Name, "address", n.Address, "version", n.Version)
}

// memberLines bounds the lines about changes of members, and counts those that were left out since that was logged.
type memberLines struct {
	limit              *rate.Limiter
	joined, left, dead int
}

// logLeftOut logs how many lines about members were left out.
func (g *Gossip) logLeftOut() {
	g.state.Lock()
	m := g.memberLines
	g.memberLines = memberLines{limit: m.limit}
	g.state.Unlock()
	level := slog.LevelInfo
	if m.dead > 0 {
		level = slog.LevelWarn
	}
	if m.joined+m.left+m.dead > 0 {
		g.log.Log(context.Background(), level, "log lines about nodes left out; \"dupip nodes\" lists all nodes",
			"joined", m.joined, "left", m.left, "dead", m.dead)
	}
}

const (
	// maxNamed bounds the problems about names.
	maxNamed = 3
	// lookEvery is how often problems are looked for. One that is there at a single look is not worth a line.
	lookEvery = 10 * time.Second
	// restsFor is how long a problem that was logged must be away to be logged as a new one.
	restsFor = 10 * time.Minute
)

// problemLog has problems, for those who read nothing but the log, by gist: when each was there last, and whether it was
// logged.
type problemLog map[string]struct {
	seen   time.Time
	logged bool
}

// logProblems logs the problems of [Gossip.Status] as they come and go, until ctx ends.
func (g *Gossip) logProblems(ctx context.Context) {
	known, open := make(problemLog), false
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		g.logLeftOut()
		problems := g.Status().Problems
		for _, problem := range known.look(problems, time.Now()) {
			open = true
			g.log.Warn("gossip: " + problem)
		}
		if open && len(problems) == 0 {
			open = false
			g.log.Info("gossip: all logged problems are over")
		}
	}
}

// look notes the problems that there are now, and returns those to log.
func (known problemLog) look(problems []string, now time.Time) (began []string) {
	for _, problem := range problems {
		k, again := known[gist(problem)]
		if again && !k.logged {
			began = append(began, problem)
		}
		k.seen, k.logged = now, again
		known[gist(problem)] = k
	}
	for g, k := range known {
		if away := now.Sub(k.seen); away >= restsFor || away > 0 && !k.logged {
			delete(known, g)
		}
	}
	return began
}

// gist is a problem without its figures and without the reason behind the colon: both change from one look to the next.
func gist(problem string) string {
	problem, _, _ = strings.Cut(problem, ": ")
	return strings.Join(slices.DeleteFunc(strings.Fields(problem), func(word string) bool {
		return !strings.ContainsFunc(word, unicode.IsLetter)
	}), " ")
}
