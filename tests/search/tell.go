package search

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/judge"
)

// telling is how a liar lies to commands: of its own holders the first, then of others' and of books. "any" is another one for each holder.
var telling = []string{"given", "byhand", "old", "new", "stopped", "forgotten", "host", "like", "gone", "others", "books"}

// tell changes what the agent of a liar answers to a command. It knows what the others answer, and has all their conflicts, too.
func (l *liar) tell(answer *document.Answer, others []document.Answer) {
	now := answer.At
	how := func() string {
		if l.tells == "any" {
			return telling[l.w.random.IntN(len(telling))]
		}
		return l.tells
	}
	for _, o := range others {
		shift := now.Sub(o.At)
		for _, c := range o.Conflicts {
			if c.State == detector.Resolved {
				continue
			}
			c.Holders = append([]document.Binding(nil), c.Holders...)
			for n := range c.Holders {
				c.Holders[n].FirstSeen = c.Holders[n].FirstSeen.Add(shift)
			}
			c.SuspectedAt, c.ConfirmedAt, c.SecondSeen = c.SuspectedAt.Add(shift), c.ConfirmedAt.Add(shift), c.SecondSeen.Add(shift)
			if c.State = detector.Confirmed; c.ConfirmedAt.IsZero() || l.w.chance(0.5) {
				c.ConfirmedAt = now
			}
			own := document.NewBinding(detector.Binding{Key: c.Key(), Evidence: detector.Announced, FirstSeen: now.Add(-time.Hour), LastSeen: now, Holder: detector.Holder{
				ID: detector.HolderID{Node: l.id(), Netns: l.invented()}, NetnsName: "told", Pod: detector.Pod{Namespace: "search", Name: "told", UID: "told"},
			}})
			c.Holders = append(c.Holders, own)
			answer.Conflicts = append(answer.Conflicts, c)
		}
	}
	for i := range answer.Conflicts {
		c := &answer.Conflicts[i]
		for n := range c.Holders {
			h := how()
			if own := c.Holders[n].NodeID() == l.id(); own || h == "others" || h == "gone" {
				l.describe(&c.Holders[n], h, c.Holders[0], now)
			}
		}
		if how() == "books" {
			l.book(c)
		}
	}
}

// describe says something of a holder.
func (l *liar) describe(b *document.Binding, how string, other document.Binding, now time.Time) {
	b.Facts = &document.Facts{Behind: document.BehindRunning, CNINetwork: "pods"}
	old := func() {
		b.FirstSeen, b.Pod = now.Add(-1000*time.Hour), &document.Pod{Namespace: "search", Name: "old", UID: "old", CreatedAt: now.Add(-2000 * time.Hour)}
	}
	switch how {
	case "given":
		old()
		b.Given = detector.GivenYes
	case "byhand":
		b.Given, b.FirstSeen = detector.GivenNo, now.Add(-1000*time.Hour)
	case "old":
		old()
	case "new":
		b.FirstSeen, b.Given = now, detector.GivenYes
	case "stopped":
		b.Facts.Behind = document.BehindStopped
	case "forgotten":
		b.Facts.Behind = document.BehindForgotten
	case "host":
		b.Evidence, b.Facts.Machine = detector.Host, &document.Machine{
			Device: "eth0", Prefix: netip.PrefixFrom(b.IP, 24), Dynamic: l.w.chance(0.5), Since: now.Add(-time.Hour),
		}
	case "like":
		b.Pod, b.Given = other.Pod, detector.GivenYes
	case "gone":
		b.Gone, b.Unreachable, b.LastSeen = true, true, now.Add(-time.Minute)
	case "others": // only their own node may say so
		b.Given, b.Facts.Behind, b.FirstSeen = detector.GivenNo, []document.Behind{document.BehindStopped, document.BehindForgotten, document.BehindAlive}[l.w.random.IntN(3)], now
		b.Facts.GivenOthers, b.Listing = []netip.Addr{netip.MustParseAddr("10.9.9.9")}, &document.Listing{Pod: document.PodUnlisted, NodeDeleted: now.Add(-time.Hour)}
		b.Facts.Machine = &document.Machine{Device: "eth0", Prefix: netip.PrefixFrom(b.IP, 24)}
		b.Pod = &document.Pod{Namespace: "search", Name: "other", UID: "other", Sandbox: "other"}
	}
}

// book has books of each holder's node, and one of the cluster, which have the address reserved for the liar's holder.
func (l *liar) book(c *document.Conflict) {
	mine := &document.Reservation{Sandbox: "old", Pod: &document.Pod{Namespace: "search", Name: "old", UID: "old"}}
	c.Books = []document.Book{{Kind: "calico", Covers: true, Reservation: mine}}
	for _, b := range c.Holders {
		c.Books = append(c.Books, document.Book{
			Node: cluster.NodeName(b.NodeID()), BootID: b.BootID, Kind: "host-local", CNINetwork: "pods", Covers: true, Reservation: mine,
		})
	}
}

// judgesBy checks that no agent's words remove a holder of another node that lives, unless the judgement says who says so; and nothing where
// two live members have the holder's node's name.
func (t *truth) judgesBy(asking *agent, c document.Conflict, made *document.Judgement, told []document.Answer, ctx judge.Context) {
	if t.w.liars() == 0 {
		return
	}
	honest, removed := c, make(map[detector.HolderID]bool) // by what others say of their own
	honest.Holders = slices.DeleteFunc(slices.Clone(c.Holders), func(b document.Binding) bool { return t.w.isLiars(b.NodeID()) })
	for n, b := range honest.Holders {
		if !slices.ContainsFunc(told, func(a document.Answer) bool { return a.NodeID() == b.NodeID() }) {
			honest.Holders[n].Facts = nil // its own node has said nothing
		}
	}
	honest.Books = slices.DeleteFunc(slices.Clone(c.Books), func(b document.Book) bool { return t.liarNamed(b.Node) })
	if j := judge.Of(honest, ctx); j != nil {
		for _, v := range j.Holders {
			removed[honest.Holders[v.Holder].ID()] = v.Verdict == document.Remove
		}
	}
	for _, v := range made.Holders {
		b := c.Holders[v.Holder]
		l := t.life(b.ID(), c.Key())
		if l == nil || v.Verdict != document.Remove || v.Reason == document.ReasonGone {
			continue
		}
		if t.namesakes(asking, b.Node) {
			t.broke("names", "%s of %s is to be removed, because it is %q, and two live members are called %s", l, c.IP, v.Reason, b.Node)
		}
		if !removed[b.ID()] && (!t.liarNamed(v.By) || made.Confidence == document.Certain) {
			t.broke("by", "%s of %s is to be removed, because it is %q by %q (%s), and only a liar says so", l, c.IP, v.Reason, v.By, made.Confidence)
		}
	}
}

// life is the present one of a holder, nil if it has the address no more.
func (t *truth) life(id detector.HolderID, key detector.Key) *life {
	for _, l := range t.holders(key) {
		if l.is(id) {
			return l
		}
	}
	return nil
}

// liarNamed reports whether a machine that lies has that node name.
func (t *truth) liarNamed(name string) bool {
	for _, m := range t.w.machines {
		if m.liar != nil && m.name == name {
			return true
		}
	}
	return false
}

// namesakes reports whether an agent knows two live members of one node name, or is one.
func (t *truth) namesakes(asking *agent, name string) bool {
	n := 0
	for _, o := range t.w.agents() {
		if o.m.name == name && (o == asking || t.w.members.knows(asking, o)) {
			n++
		}
	}
	return n > 1
}
