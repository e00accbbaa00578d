package judge

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

const (
	n1, n2, n3 = "node1", "node2", "node3"
	ms         = time.Millisecond
)

var (
	ip = netip.MustParseAddr("10.244.1.5")
	a  = Holder{n1, "a"}
	b  = Holder{n2, "b"}
	c  = Holder{n3, "c"}
	h2 = Holder{n2, "host"}
	h3 = Holder{n3, "host"}
)

// stretch is a time in which a holder has the address.
type stretch struct {
	holder      Holder
	from, until time.Duration
	maybe, deaf bool
}

// report is a time in which an agent has a conflict.
type report struct {
	node        string
	from, until time.Duration
	holders     []Holder
	suspected   bool
	id          string
	mute        bool   // it is in polls only
	kind        string // of the event, if it is not of the state
}

// play takes snapshots and polls every 250 ms; a snapshot takes 10 ms. New reports of agents are also
// events.
type play struct {
	length    time.Duration
	has       []stretch
	reports   []report
	down      []stretch // by the holder's node
	stallFrom time.Duration
	stall     time.Duration // there are no snapshots for this long from then on
	slow      time.Duration // agents answer polls so late, with what they have then
}

func (p play) judge() (map[Kind]int, *Judge, []Finding) {
	j := New(DefaultLimits())
	var all []Finding
	var away []string
	last := time.Duration(0)
	for now := time.Duration(0); now <= p.length; now += 250 * ms {
		if now > p.stallFrom && now < p.stallFrom+p.stall {
			continue
		}
		if now-last > 500*ms {
			j.Stalled(last+250*ms, now)
		}
		for _, d := range p.down {
			if d.from > last && d.from <= now {
				j.Down(d.holder.Node, d.from)
				away = append(away, d.holder.Node)
			}
			if d.until > last && d.until <= now {
				j.Up(d.holder.Node, d.until)
				away = slices.DeleteFunc(away, func(n string) bool { return n == d.holder.Node })
			}
		}
		for _, h := range []Holder{a, b, c, h2, h3} {
			look := Snapshot{Holder: h, From: now, To: now + 10*ms}
			for _, s := range p.has {
				switch {
				case s.holder != h || now < s.from || now >= s.until:
				case s.maybe:
					look.Maybe = append(look.Maybe, ip)
				default:
					look.Has, look.Deaf = append(look.Has, ip), s.deaf
				}
			}
			j.AddSnapshot(look)
		}
		for _, s := range p.reports {
			if s.from > last && s.from <= now && !s.mute {
				e := Event{Node: s.node, At: s.from, Kind: "confirmed", Conflict: s.conflict()}
				if s.suspected {
					e.Kind = "suspected"
				}
				e.Kind = cmp.Or(s.kind, e.Kind)
				j.AddEvent(e)
			}
		}
		all = append(all, j.Advance(now)...)
		for _, node := range []string{n1, n2, n3} {
			if slices.Contains(away, node) {
				continue
			}
			open := Open{Node: node, From: now + 20*ms, To: now + 20*ms + p.slow}
			for _, s := range p.reports {
				if s.node == node && s.from <= open.To && open.To < s.until {
					open.Conflicts = append(open.Conflicts, s.conflict())
				}
			}
			j.AddPoll(open)
		}
		last = now
	}
	return j.Tally().Findings, j, all
}

func (s report) conflict() Conflict {
	id := s.id
	if id == "" {
		id = "5f3a9b21-1"
	}
	return Conflict{ID: id, IP: ip, Confirmed: !s.suspected, Holders: s.holders}
}

// both are claims of the same at two nodes.
func both(from, until time.Duration, holders ...Holder) []report {
	return []report{
		{node: n1, from: from, until: until, holders: holders},
		{node: n2, from: from, until: until, holders: holders},
	}
}

// polledOnly are reports that are in polls only.
func polledOnly(claims []report) []report {
	for i := range claims {
		claims[i].mute = true
	}
	return claims
}
