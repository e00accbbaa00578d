package judge

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// tolerance is how far two times may be off: between nodes because of transport delays, on one node because its agent sees many
// things at once.
const tolerance = time.Second

// namesakes returns the nodes of holders that have one name, or whose name another live node has. What a command says of such a name
// may hit the other one.
func (j *judging) namesakes(ctx Context) (ids []string) {
	for _, b := range j.c.Holders {
		// One that does not answer was probably the machine's own last boot.
		twice := ctx.Namesakes[b.Node] && !j.over || !b.Unreachable && slices.ContainsFunc(j.c.Holders, func(o document.Binding) bool {
			return o.Node == b.Node && o.BootID != b.BootID && !j.gone(o) && !o.Unreachable
		})
		if twice && !j.gone(b) && !slices.Contains(ids, b.NodeID()) {
			ids = append(ids, b.NodeID())
		}
	}
	return ids
}

// doubled returns the nodes of holders whose name another live member has now: a machine that was booted anew at another address, a
// namesake, or somebody who only says so. By such a name nothing is removed.
func (j *judging) doubled(ctx Context) []string {
	return j.nodes(j.open(), func(b document.Binding) bool { return ctx.Doubled[b.Node] && !j.over })
}

// gone reports whether a holder has gone; all of those of a conflict that is over have.
func (j *judging) gone(b document.Binding) bool { return b.Gone && !j.over }

// dead removes what nothing is alive behind: that hurts nobody, whatever else is known.
func (j *judging) dead() {
	for n, b := range j.c.Holders {
		switch {
		case j.gone(b):
			j.remove(n, document.ReasonGone)
		case behind(b) == document.BehindStopped:
			j.remove(n, document.ReasonStopped)
		case behind(b) == document.BehindForgotten:
			j.remove(n, document.ReasonForgotten)
		}
	}
}

// leftOver is the end of a judgement of at most one live holder.
func (j *judging) leftOver() string {
	for _, n := range j.open() {
		if b := j.c.Holders[n]; lives(b) && (j.over || !b.Unreachable) {
			j.all[n].Verdict, j.all[n].Reason = document.Keep, document.ReasonLast
		}
	}
	if slices.ContainsFunc(j.all, func(v document.Judged) bool { return v.Verdict == document.Remove && v.Reason != document.ReasonGone }) {
		return document.CauseLeftOver
	}
	return document.CauseEnding
}

// clones returns the nodes that run one pod: the API server gives a pod to one node. Age does not tell which: the original may have been
// restarted after cloning.
func (j *judging) clones(live []int) (ids []string) {
	return j.nodes(live, func(b document.Binding) bool {
		return j.has(live, func(o document.Binding) bool {
			return sameName(b, o) && b.NodeID() != o.NodeID() && b.Pod.UID == o.Pod.UID && b.Pod.UID != ""
		})
	})
}

// mayBeClones reports whether nodes may run one pod, because a name is not known yet.
func (j *judging) mayBeClones(live []int) bool {
	isPod := func(b document.Binding) bool { return !isHost(b) && behind(b) != document.BehindAlive }
	return !j.over && j.has(live, func(b document.Binding) bool {
		return isPod(b) && pod(b).UID == "" && j.has(live, func(o document.Binding) bool { return isPod(o) && o.NodeID() != b.NodeID() })
	})
}

// told reports whether a holder's own node has told of it. What another node says of a holder may be invented, and removes nothing. Of what
// is over it may explain.
func (j *judging) told(n int) bool { return j.over || j.c.Holders[n].Facts != nil }

// notGiven removes the holders that no network plugin gave the address, if another live one was given it.
func (j *judging) notGiven() (cause string) {
	given := slices.DeleteFunc(j.open(), func(n int) bool { return !isGiven(j.c.Holders[n]) || !runs(j.c.Holders[n]) })
	for _, n := range j.open() {
		if len(given) > 0 && j.told(n) && wasNotGiven(j.c.Holders[n]) {
			j.removeBy(n, given, document.ReasonNotGiven)
			cause = document.CauseByHand
		}
	}
	return cause
}

// twiceGiven removes pods that were given the address, and whose node's book has it reserved for another one there that was given it, too:
// the address of its successor is another one, and nothing frees the other's reservation. All others must have been given it, because one
// of which that is not known may be the one that has to go. If one on another node was given it, too, the two nodes probably share a range,
// and a successor may collide again: then only a sandbox goes that has its successor already.
func (j *judging) twiceGiven() (cause string) {
	open := j.open()
	if j.has(open, func(b document.Binding) bool { return !isGiven(b) && !isHost(b) }) {
		return ""
	}
	for _, n := range open {
		for _, other := range open {
			b, o := j.c.Holders[n], j.c.Holders[other]
			if n == other || b.NodeID() != o.NodeID() || !j.told(n) || !runs(o) || !j.reservedFor(b, o) {
				continue
			}
			switch {
			case sameName(b, o):
				j.remove(n, document.ReasonReplaced)
				cause = document.CauseLeftOver
			case !j.has(open, func(far document.Binding) bool { return !isHost(far) && far.NodeID() != b.NodeID() }):
				j.remove(n, document.ReasonNotReserved)
				cause = document.CauseLost
			}
		}
	}
	return cause
}

// reservedFor reports whether the book of the network that b and o are in has the address reserved for o, and no book of their node for b.
// One that cannot be read may have it reserved for b, and one that has it for nobody may give it to the successor of b.
func (j *judging) reservedFor(b, o document.Binding) bool {
	network := facts(b).CNINetwork
	if network != facts(o).CNINetwork { // a book has a network's name, so one that is not known is none's
		return false
	}
	found := false
	for _, book := range j.c.Books {
		switch r := book.Reservation; {
		case book.NodeID() != b.NodeID():
		case pod(b).Sandbox == "", book.Error != "", r == nil && book.Covers, isFor(r, b):
			return false
		case isFor(r, o) && book.CNINetwork == network:
			found = true
		}
	}
	return found
}

// isFor reports whether an address is reserved for a holder, or may be: an earlier sandbox may have it, too.
func isFor(r *document.Reservation, b document.Binding) bool {
	id := pod(b).Sandbox
	return r != nil && id != "" && (r.Sandbox == id || slices.Contains(r.Sandboxes, id))
}

// byHand removes the newest ones of holders that all have taken the address by hand.
func (j *judging) byHand() string {
	open := j.open()
	if len(open) < 2 || j.has(open, func(b document.Binding) bool { return !wasNotGiven(b) || !runs(b) }) {
		return ""
	}
	slices.SortStableFunc(open, func(x, y int) int { return j.c.Holders[x].FirstSeen.Compare(j.c.Holders[y].FirstSeen) })
	for i, n := range open[1:] {
		if b, before := j.c.Holders[n], j.c.Holders[open[i]]; b.FoundAtStart || b.FirstSeen.Sub(before.FirstSeen) <= tolerance {
			return ""
		}
	}
	for i, n := range open[1:] {
		j.removeBy(n, open[:i+1], document.ReasonNewer)
	}
	return document.CauseByHand
}

// machine decides between an address of a node itself and pods. A permanent one is the node's, and so is one that is older than the
// pods: then the book of the pods is wrong. So is one that no network plugin gave to the pods. One with a lifetime that came after a pod
// that was given it is not.
func (j *judging) machine() string {
	open := j.open()
	hosts := slices.DeleteFunc(slices.Clone(open), func(n int) bool { return !isHost(j.c.Holders[n]) })
	pods := slices.DeleteFunc(slices.Clone(open), func(n int) bool { return isHost(j.c.Holders[n]) })
	if len(hosts) != 1 || len(pods) == 0 {
		return ""
	}
	m, stays, goes := facts(j.c.Holders[hosts[0]]).Machine, 0, 0
	if m == nil {
		return ""
	}
	for _, n := range pods {
		b := j.c.Holders[n]
		made := pod(b).CreatedAt
		switch {
		case !j.told(n):
		case !m.Dynamic, wasNotGiven(b), !m.Since.IsZero() && m.Since.Before(made.Add(-tolerance)):
			stays++
		case isGiven(b) && runs(b) && !made.IsZero() && m.Since.After(made.Add(tolerance)):
			goes++
		}
	}
	switch len(pods) {
	case stays:
		for _, n := range pods {
			j.removeBy(n, hosts, document.ReasonOnNode)
		}
	case goes:
		j.removeBy(hosts[0], pods, document.ReasonLifetime)
	default:
		return ""
	}
	return document.CauseNodeAddress
}

// keep keeps the only holder that is left of several live ones: others go only if it is known to be alive.
func (j *judging) keep(n int) {
	b := j.c.Holders[n]
	reason := document.ReasonLast
	switch {
	case isHost(b):
		reason = document.ReasonNode
	case isGiven(b) && slices.ContainsFunc(j.c.Books, func(book document.Book) bool {
		return book.NodeID() == b.NodeID() && isFor(book.Reservation, b) || book.Node == "" && book.Reservation != nil && j.owns(book.Reservation, n)
	}):
		reason = document.ReasonReserved
	case isGiven(b):
		reason = document.ReasonGiven
	case wasNotGiven(b):
		reason = document.ReasonOlder
	}
	j.all[n].Verdict, j.all[n].Reason = document.Keep, reason
}

// sharedRange returns the nodes that give out the addresses of one range, by their books: several, or one for several networks.
func (j *judging) sharedRange(left []int) []string {
	networks := make(map[[2]string]bool) // by node and name
	ids := j.nodes(left, func(b document.Binding) (covers bool) {
		for _, book := range j.c.Books {
			if book.Covers && book.NodeID() == b.NodeID() {
				networks[[2]string{book.NodeID(), book.CNINetwork}], covers = true, true
			}
		}
		return covers
	})
	if len(networks) > 1 {
		return ids
	}
	return nil
}

// sharesMany returns the nodes of the holders if they share many addresses.
func (j *judging) sharesMany(left []int) []string {
	if all := j.nodes(left, func(document.Binding) bool { return true }); j.c.Shared > document.FewShared && len(all) > 1 {
		return all
	}
	return nil
}

// noticedWithin is how long after a node was lost memberlist takes it for dead.
const noticedWithin = time.Minute

// away returns when the nodes of the newest holder and of an elder one had lost each other as the newest came: the control plane may
// have given the elder's node up, and made the newer pod in place of its own.
func (j *judging) away(left []int, away map[string][]Away) *document.Away {
	left = slices.DeleteFunc(slices.Clone(left), func(n int) bool { return isHost(j.c.Holders[n]) })
	if len(left) < 2 {
		return nil
	}
	newest := slices.MaxFunc(left, func(x, y int) int { return came(j.c.Holders[x]).Compare(came(j.c.Holders[y])) })
	b := j.c.Holders[newest]
	for _, n := range left {
		elder := j.c.Holders[n]
		if elder.NodeID() == b.NodeID() {
			continue
		}
		for _, node := range []string{elder.NodeID(), b.NodeID()} {
			for _, lost := range away[node] {
				if at := came(b); at.After(lost.From.Add(-noticedWithin)) && at.Before(lost.Until) {
					return &document.Away{
						Elder: n, Newer: newest, Nodes: []string{elder.NodeID(), b.NodeID()}, From: lost.From.Round(0), Until: lost.Until.Round(0),
					}
				}
			}
		}
	}
	return nil
}

// came is when a holder came, as far as is known.
func came(b document.Binding) time.Time {
	if at := pod(b).CreatedAt; !at.IsZero() {
		return at
	}
	return b.FirstSeen
}

func isHost(b document.Binding) bool { return b.Evidence == detector.Host }

func isGiven(b document.Binding) bool { return b.Given == detector.GivenYes }

// wasNotGiven reports whether no network plugin gave a holder the address: by CNI's result of its interface.
func wasNotGiven(b document.Binding) bool {
	return b.Given == detector.GivenNo || b.Given == detector.GivenUnknown && len(facts(b).GivenOthers) > 0
}

// facts and pod are those of a holder, the zero value if they are not known.
func facts(b document.Binding) document.Facts { return *cmp.Or(b.Facts, new(document.Facts)) }
func pod(b document.Binding) document.Pod     { return *cmp.Or(b.Pod, new(document.Pod)) }

func behind(b document.Binding) document.Behind { return facts(b).Behind }

// runs reports whether a pod is known to be alive.
func runs(b document.Binding) bool {
	return behind(b) == document.BehindRunning || behind(b) == document.BehindAlive
}

// lives reports whether a holder is known to be alive; a node whose agent answers is.
func lives(b document.Binding) bool { return isHost(b) || runs(b) }

func sameName(a, b document.Binding) bool {
	return pod(a).Name != "" && pod(a).Name == pod(b).Name && pod(a).Namespace == pod(b).Namespace && pod(a).Engine == pod(b).Engine
}
