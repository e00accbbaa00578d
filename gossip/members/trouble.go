package members

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

const (
	// unheardAfter is how many pings by UDP must fail in a row until it is not taken for
	// loss any more: at 5% loss, every tenth fails.
	unheardAfter = 8
	// A member that answered by TCP alone was pinged by UDP through three others, too. It
	// counts as tcpWeight pings; blindAfter of them in a row, whoever they are, say that
	// the trouble is here.
	tcpWeight  = 2
	blindAfter = 4
	// silentAfter pings in a row, by whatever way and whoever was pinged, say that this node
	// is cut off, for silentFor. It is long until memberlist takes all others for dead: a
	// member that hears nobody pings one in 8 s.
	silentAfter = 3
	silentFor   = time.Minute
	// unheardFor is how long that is believed: a large cluster pings a member seldom.
	unheardFor = 10 * time.Minute
	maxTrouble = 256
	maxNamed   = 3 // problems of one kind that are told one by one
)

// trouble is which members do not answer by UDP, though they are there: other members or
// TCP still reach them, so that memberlist is content. Packets do not arrive, though. Only
// memberlist's log lines say so.
type trouble struct {
	mu      sync.Mutex
	unheard map[wire.MemberID]unheard
	blind   unheard // of all members
	silent  unheard // of all members, by TCP too
}

type unheard struct {
	failed int
	at     time.Time
}

// hear takes a line of memberlist's.
func (t *trouble) hear(line string, now time.Time) {
	if _, ok := between(line, "memberlist: Suspect ", " has failed, no acks received"); ok {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.silent = unheard{t.silent.failed + 1, now}
		return
	}
	weight := 1
	name, ok := between(line, "memberlist: Failed UDP ping: ", " (timeout reached)")
	if !ok {
		weight = tcpWeight
		name, ok = between(line, "memberlist: Was able to connect to ", " over TCP")
	}
	id, good := nameID(name)
	if !ok || !good {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if weight == tcpWeight {
		t.blind = unheard{t.blind.failed + 1, now}
		t.silent.failed = 0
	}
	if t.unheard == nil {
		t.unheard = map[wire.MemberID]unheard{}
	}
	u, known := t.unheard[id]
	if !known && len(t.unheard) >= maxTrouble {
		maps.DeleteFunc(t.unheard, func(_ wire.MemberID, u unheard) bool { return now.Sub(u.at) > unheardFor })
		if len(t.unheard) >= maxTrouble {
			return
		}
	}
	t.unheard[id] = unheard{u.failed + weight, now}
}

func between(line, before, after string) (string, bool) {
	rest, ok := strings.CutPrefix(line, before)
	if !ok {
		return "", false
	}
	name, _, ok := strings.Cut(rest, after)
	return name, ok
}

// answered notes that a member answers by UDP.
func (t *trouble) answered(id wire.MemberID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.blind.failed, t.silent.failed = 0, 0
	delete(t.unheard, id)
}

// forget notes that a member is gone.
func (t *trouble) forget(id wire.MemberID) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.unheard, id)
}

// problems are clauses for people about members that are alive.
func (t *trouble) problems(members []Member, own string, now time.Time) (all []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.silent.failed >= silentAfter && now.Sub(t.silent.at) <= silentFor {
		return []string{fmt.Sprintf("none of the last %d nodes that were pinged answers: this node, %s, is cut off from the others", t.silent.failed, own)}
	}
	if t.blind.failed >= blindAfter && now.Sub(t.blind.at) <= unheardFor {
		return []string{fmt.Sprintf("other nodes answer by TCP, but none by UDP: allow UDP to and from %s", own)}
	}
	more := 0
	for _, m := range members {
		u := t.unheard[m.ID]
		if u.failed < unheardAfter || now.Sub(u.at) > unheardFor || m.State != cluster.Alive {
			continue
		}
		if len(all) == maxNamed {
			more++
			continue
		}
		all = append(all, fmt.Sprintf("node %s answers by TCP, but not by UDP: allow UDP between %s and %s", m.Name, own, m.Address))
	}
	if more > 0 {
		all = append(all, fmt.Sprintf("%d more nodes do not answer by UDP", more))
	}
	return all
}
