package search

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// The limits of what must hold.
const (
	overlap = time.Second // the detector's default
	// foundWithin is from when two holders can be found until all nodes with a holder have confirmed it; settledWithin from the last
	// fault.
	foundWithin, settledWithin = 3 * time.Second, 10 * time.Second
	// endedWithin is from the end of the last but one holder until nobody lists the conflict any more, unsaidWithin the same if nobody
	// says that it ended.
	endedWithin, unsaidWithin = 8 * time.Second, 50 * time.Second
	// restoredWithin is how long a conflict waits for holders after a restart, forgottenWithin for those of a node without an agent.
	restoredWithin, forgottenWithin = 100 * time.Second, 5*time.Minute + 20*time.Second
	// migratesWithin is how much later two pods of one virtual machine on two nodes must be found, unnamedWithin the same of such a pod and one
	// without a name.
	migratesWithin, unnamedWithin = 62 * time.Second, 12 * time.Second
	// leftWithin is how long the holders of an agent that ended in order are listed by others.
	leftWithin = 100 * time.Second
	// answersWithin is what a holder may take that must be found. One that answers after slowFrom must not; both depend on packets
	// between these.
	answersWithin, slowFrom = 900 * time.Millisecond, 1100 * time.Millisecond
	// penaltyTime is the longest that a holder is not believed which left probes unanswered.
	penaltyTime = 80 * time.Second
	// maxSuspicions is how often an address may be suspected at a node while nothing changes.
	maxSuspicions = 12
	// maxRemote is how many holders of an address on other nodes the detector has at most, maxRemoteOfNode those of one node.
	maxRemote, maxRemoteOfNode = 16, 4
)

// mustFind checks that two holders are found.
func (t *truth) mustFind(a, b *life) {
	since := max(a.from, b.from)
	slower := max(a.slow, b.slow)
	if slower > answersWithin {
		return
	}
	var check func()
	check = func() {
		if a.to != 0 || b.to != 0 || a.m.agent == nil || b.m.agent == nil {
			return // the start of an agent is a fault, after which this is checked again
		}
		calm := max(t.calmAt[a.m], t.calmAt[b.m]) + time.Second
		if a.m != b.m {
			calm = max(calm, t.calm)
		}
		due := max(since+foundWithin+2*slower, calm+settledWithin, a.clear, b.clear) + mayMigrate(a, b)
		if !t.few(a.key) { // then it is enough that each is listed with one that may be found later
			due = max(due, since+settledWithin)
		}
		if due > t.w.now {
			t.w.at(min(due, t.w.now+time.Minute), check)
			return
		}
		for _, m := range slices.Compact([]*machine{a.m, b.m}) {
			c := m.agent.confirmed(a.key)
			if c == nil || t.few(a.key) && (!lists(c, a) || !lists(c, b)) {
				t.broke("found", "%s does not list %s and %s of %s; they can be found since %s", m.label, a, b, a.key.IP, seconds(since))
			}
		}
	}
	t.w.at(since+foundWithin+2*slower, check)
}

// mayMigrate returns how long two holders may be taken for one virtual machine that migrates.
func mayMigrate(a, b *life) time.Duration {
	switch {
	case a.m == b.m || a.vm == "" && b.vm == "":
		return 0
	case a.vm == b.vm:
		return migratesWithin
	}
	return unnamedWithin
}

// few reports whether the holders of an address are so few that each node with one is notified of all others: on at most 8 nodes
// (gossip/keeper), and 4 on each (the detector).
func (t *truth) few(key detector.Key) bool {
	nodes, most := make(map[string]int), 0
	for _, l := range t.lives {
		if l.key == key && l.until(t.w.now)+forgottenWithin > t.w.now {
			nodes[l.node]++
			most = max(most, nodes[l.node])
		}
	}
	return len(nodes)+t.w.liars() <= 8 && most <= 4
}

// again checks all that there is once more after an agent's start.
func (t *truth) again(m *machine) {
	for i, a := range t.lives {
		for _, b := range t.lives[:i] {
			if a.key == b.key && a.to == 0 && b.to == 0 && (a.m == m || b.m == m) {
				t.mustFind(a, b)
			}
		}
	}
}

// mustEnd checks that the conflicts of an address end.
func (t *truth) mustEnd(key detector.Key, since time.Duration) {
	var check func()
	check = func() {
		if t.lastTwo(key) > since {
			return // a later end has a check of its own
		}
		due := since + endedWithin
		for _, l := range t.lives {
			if l.key == key && l.to != 0 && !l.told {
				due = max(due, max(l.to, t.calm)+unsaidWithin)
			}
		}
		due = max(due, t.calm+settledWithin)
		for _, m := range t.w.machines {
			if m.role != cluster.Agent {
				continue
			}
			if m.agent == nil {
				due = max(due, t.w.now+10*time.Second)
			}
			if k := t.known[m]; k != nil && k.restored {
				due = max(due, k.started+restoredWithin)
			}
		}
		if due > t.w.now {
			t.w.at(due, check)
			return
		}
		waits := false
		for _, a := range t.w.agents() {
			switch c := a.confirmed(key); {
			case c == nil:
			case a.m.liar != nil:
			case t.lied(a, c):
				waits = true
			case t.forgets(c):
				waits = true
			default:
				t.broke("ended", "%s lists %s of %s as %s; it ended at %s", a.m.label, c.ID, key.IP, c.State, seconds(since))
			}
		}
		if waits {
			t.w.after(10*time.Second, check)
		}
	}
	t.w.at(since+endedWithin, check)
}

// lied reports whether a conflict of an agent may be open because a liar says that it has the address: as long as a pod of the agent has it,
// too.
func (t *truth) lied(a *agent, c *detector.Conflict) bool {
	return slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return t.w.isLiars(b.Holder.ID.Node) }) &&
		slices.ContainsFunc(t.lives, func(l *life) bool {
			within := endedWithin
			if !l.told {
				within = unsaidWithin
			}
			return l.m == a.m && l.key == c.Key && (l.to == 0 || max(l.to, t.calm)+within > t.w.now)
		})
}

// lastTwo is when an address had two holders last.
func (t *truth) lastTwo(key detector.Key) (last time.Duration) {
	for i, l := range t.lives {
		for _, o := range t.lives[:i] {
			if l.key != key || o.key != key {
				continue
			}
			if both := min(l.until(t.w.now), o.until(t.w.now)); both >= max(l.from, o.from) {
				last = max(last, both)
			}
		}
	}
	return last
}

// forgets reports whether a conflict waits for a node that is not there any more: its boot is over, or its agent does not run.
func (t *truth) forgets(c *detector.Conflict) bool {
	return slices.ContainsFunc(c.Holders, func(b detector.Binding) bool {
		return !slices.ContainsFunc(t.w.agents(), func(o *agent) bool { return o.m.id() == b.Holder.ID.Node })
	}) && t.w.now < t.calm+forgottenWithin
}

// mustLeave checks that the holders of an agent that ended in order, and did not begin again, keep no conflict open for long.
func (t *truth) mustLeave(gone *agent) {
	id, life, at := gone.m.id(), gone.m.life, t.w.now
	calm := t.calm <= at && len(t.w.network.cuts) == 0 && t.w.network.loss == 0
	t.w.after(leftWithin, func() {
		if gone.m.life != life || gone.m.id() != id || !calm || t.calm > at+20*time.Second {
			return
		}
		for _, a := range t.w.agents() {
			for _, c := range a.Detector.Conflicts(false) {
				if i := slices.IndexFunc(c.Holders, func(b detector.Binding) bool { return b.Holder.ID.Node == id }); i >= 0 {
					t.broke("left", "%s lists %s for %s, whose agent ended in order at %s", a.m.label, c.Holders[i].Holder.NetnsName, c.Key.IP, seconds(at))
				}
			}
		}
	})
}

// event checks one step of a conflict.
func (t *truth) event(a *agent, e detector.Event) {
	k, c := t.known[a.m], &e.Conflict
	step := fmt.Sprintf("%8.3f %s %s %s: %s", t.w.now.Seconds(), a.m.label, c.Key.IP, e.Kind, e.Reason)
	if t.w.trace != nil {
		t.w.trace("%s", step)
	}
	t.note("%s", step)
	if a.m.liar != nil {
		return
	}
	switch e.Kind {
	case detector.EventSuspected:
		t.suspicions++
		of := suspicionOf{a, c.Key}
		if t.suspected[of]++; t.changed[c.Key] > t.w.now-time.Minute || t.calm > t.w.now-time.Minute {
			t.suspected[of] = 0
		}
		if t.suspected[of] > maxSuspicions && t.w.liars() == 0 { // one that invents holders has an address suspected again and again
			t.broke("quiet", "%s suspects %s for the %dth time while nothing changes", a.m.label, c.Key.IP, t.suspected[of])
		}
	case detector.EventConfirmed:
		t.confirmations++
		t.mustJudge()
		if !e.Restored {
			if k.ids[c.ID] {
				t.broke("ids", "%s confirms %s a second time", a.m.label, c.ID)
			}
			if k.open[c.Key] {
				t.broke("restart", "%s confirms %s, which it had confirmed and not resolved, as %s", a.m.label, c.Key.IP, c.ID)
			}
		}
		k.ids[c.ID], k.open[c.Key] = true, true
		if !slices.ContainsFunc(c.Holders, func(b detector.Binding) bool { return b.Holder.ID.Node == a.m.id() && t.had(b.Holder.ID, c.Key, a.m) }) {
			t.broke("own", "%s confirms %s, which no holder of its own had for %v", a.m.label, c.Key.IP, overlap)
		}
		t.overlapped(a, c)
		t.migrated(a, c)
	case detector.EventChanged:
		if c.State == detector.Confirmed {
			t.overlapped(a, c)
			t.mustJudge()
		}
	case detector.EventResolved, detector.EventFaded:
		delete(k.open, c.Key)
		before := t.listed[suspicionOf{a, c.Key}]
		delete(t.listed, suspicionOf{a, c.Key})
		if e.Kind == detector.EventResolved {
			t.rightlyResolved(a, &e, before)
		}
	}
}

// migrated checks that a virtual machine that migrates for the first time, while nothing else happens, is no conflict for a minute.
func (t *truth) migrated(a *agent, c *detector.Conflict) {
	of := func(vm string) (pods []*life) {
		for _, l := range t.lives {
			if l.key == c.Key || vm != "" && l.vm == vm {
				pods = append(pods, l)
			}
		}
		return pods
	}
	if pods := of(""); len(pods) != 2 || pods[0].vm == "" || pods[1].vm != pods[0].vm || pods[0].m == pods[1].m || len(of(pods[0].vm)) != 2 || t.w.liars() > 0 {
		return
	} else if began := max(pods[0].from, pods[1].from); t.calm < began && t.w.now < began+time.Minute {
		t.broke("migration", "%s confirms %s, which %s and %s of one virtual machine have since %s", a.m.label, c.Key.IP, pods[0], pods[1], seconds(began))
	}
}

// overlapped checks that each holder of a confirmed conflict had the address together with another one for long enough.
func (t *truth) overlapped(a *agent, c *detector.Conflict) {
	of := suspicionOf{a, c.Key}
	before := t.listed[of]
	t.listed[of] = nil
	for _, b := range c.Holders {
		t.listed[of] = append(t.listed[of], b.Holder.ID)
		if slices.Contains(before, b.Holder.ID) || t.w.isLiars(b.Holder.ID.Node) { // the others of its proof may have gone since
			continue
		}
		if !slices.ContainsFunc(c.Holders, func(o detector.Binding) bool {
			return t.together(b.Holder.ID, o.Holder.ID, c.Key, a.m) || t.w.isLiars(o.Holder.ID.Node) && t.had(b.Holder.ID, c.Key, a.m)
		}) {
			t.broke("overlap", "%s lists %s for %s, which had it together with no other holder for %v", a.m.label, b.Holder.NetnsName, c.Key.IP, overlap)
		}
	}
}

// together reports whether two holders had an address at one time, for long enough, and lately, as far as a machine can know: one that was
// suspended learns then what was before.
func (t *truth) together(x, y detector.HolderID, key detector.Key, at *machine) bool {
	return x != y && t.both(x, y, key, at)
}

// had reports the same of one holder.
func (t *truth) had(x detector.HolderID, key detector.Key, at *machine) bool {
	return t.both(x, x, key, at)
}

func (t *truth) both(x, y detector.HolderID, key detector.Key, at *machine) bool {
	lately := min(t.w.now, t.calm)
	if at.thawed > 0 && t.w.now < at.thawed+settledWithin {
		lately = min(lately, at.froze)
	}
	for _, l := range t.lives {
		for _, o := range t.lives {
			until := min(l.until(t.w.now), o.until(t.w.now))
			if l.is(x) && o.is(y) && l.key == key && o.key == key && until-max(l.from, o.from) >= overlap && until+endedWithin >= lately {
				return true
			}
		}
	}
	return false
}

// bounded checks again and again what a liar may not make grow: at an agent, the addresses are those of its pods, and the holders of one on
// other nodes are few.
func (t *truth) bounded() {
	for _, a := range t.w.agents() {
		if a.m.role != cluster.Agent || a.m.liar != nil {
			continue
		}
		of := make(map[string]int)
		for _, b := range a.Detector.Bindings(nil) {
			if key := b.Key.IP.String(); b.Holder.ID.Node != a.m.id() {
				of[key]++
				of[key+" at "+b.Holder.ID.Node]++
			}
		}
		for what, n := range of {
			if n > maxRemote || n > maxRemoteOfNode && strings.Contains(what, " at ") {
				t.broke("bounded", "%s has %d holders of %s", a.m.label, n, what)
			}
		}
		own := make(map[detector.Key]bool)
		for _, l := range t.lives {
			if l.m == a.m {
				own[l.key] = true
			}
		}
		if n := a.Detector.Counts().Keys; n > len(own) {
			t.broke("bounded", "%s has %d addresses", a.m.label, n)
		}
		if n := len(a.gossip.Members()); n > 4*len(t.w.machines) {
			t.broke("bounded", "%s has %d members", a.m.label, n)
		}
	}
	if t.w.now < t.w.plan.length()+settle && t.w.chance(0.2) {
		t.judge() // what a liar says may change while no conflict does
	}
	t.w.after(5*time.Second, t.bounded)
}

// isForgotten reports whether an agent ended in order so long ago that others may not list its pods, and that another one began may not be
// known yet.
func (t *truth) isForgotten(m *machine) bool {
	k := t.known[m]
	return k != nil && k.left > 0 && t.w.now > k.left+leftWithin-10*time.Second && t.w.now < k.started+anew+10*time.Second
}

// rightlyResolved checks that a conflict that ends has at most one holder that answers, of those that it had before. That the agent of
// another one was started again is no excuse.
func (t *truth) rightlyResolved(a *agent, e *detector.Event, before []detector.HolderID) {
	live, local := 0, false
	for _, l := range t.holders(e.Conflict.Key) {
		calm := t.calmAt[a.m]
		if l.m != a.m {
			calm = max(calm, t.fine)
		}
		if l.m.agent != nil && calm+15*time.Second < t.w.now && l.clear < t.w.now && l.from+15*time.Second < t.w.now && l.slow <= answersWithin && slices.ContainsFunc(before, l.is) && !t.isForgotten(l.m) {
			live, local = live+1, local || l.m == a.m
		}
	}
	if live >= 2 && local { // else it is not its own any more
		t.broke("kept", "%s resolves %s of %s, which %d holders have: %s", a.m.label, e.Conflict.ID, e.Conflict.Key.IP, live, e.Reason)
	}
}
