package detector

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/internal/schedule"
)

// forwarderTests have holders that forward an address before they really take it.
var forwarderTests = []scriptTest{
	{
		name: "a forwarder takes the address and announces it",
		script: `0s a announces
			10s r spoofs
			20s r announces`,
		want: `10s suspected a r
			11s faded a r
			20s suspected a r
			21s confirmed a r`,
	},
	{
		name: "a forwarder takes the address silently and answers the agent",
		script: `0s a announces
			10s r spoofs
			20s r takes
			20s r answers`,
		want: `10s suspected a r
			11s faded a r
			20s suspected a r
			21s confirmed a r`,
	},
	{
		name: "a forwarder takes the address silently and only sends: found when its suppression ends",
		script: `0s a announces
			10s r spoofs
			20s r takes
			30s r sends
			310s r sends
			312s r sends`,
		want: `10s suspected a r
			11s faded a r
			5m12s suspected a r
			5m13s confirmed a r`,
	},
	{
		name: "a proxy takes the address that it answered for",
		script: `0s p proxies
			0s a announces
			10s p spoofs
			20s p announces`,
		want: `10s suspected a p
			10s faded a p
			20s suspected a p
			21s confirmed a p`,
	},
	{
		name: "a proxy that announced the address takes it",
		script: `0s p proxies
			0s a announces
			10s p forges
			20s p announces`,
		want: `10s suspected a p
			11s faded a p
			20s suspected a p
			21s confirmed a p`,
	},
	{
		name: "a forwarder on another node takes the address",
		script: `0s a announces
			0s b@n2 proxies
			10s b@n2 spoofs
			20s b@n2 announces`,
		want: `10s suspected a b@n2
			10s faded a b@n2
			20s suspected a b@n2
			21s confirmed a b@n2`,
	},
	{
		name: "a forwarder takes the address of a conflict",
		script: `0s a announces
			0s b announces
			10s r spoofs
			20s r announces`,
		want: `0s suspected a b
			1s confirmed a b
			21s changed a b r`,
	},
}

const pause = 4 * time.Second

// A conflict does not end when one or all of its holders pause for 4 s, as virtual machines do that are
// saved or migrated. The pause may begin at any time.
func TestPauseInAConflict(t *testing.T) {
	for _, paused := range [][]string{{"a"}, {"b"}, {"a", "b"}, {"c@n2"}, {"a", "b", "c@n2"}} {
		for at := 1500 * time.Millisecond; at < 100*time.Second; at += 370 * time.Millisecond {
			w := newWorld(t, Options{})
			w.play("0s a announces\n0s b announces\n0s c@n2 announces", 0)
			w.run(w.start.Add(at))
			for _, name := range paused {
				w.do("0s " + name + " mute")
			}
			w.run(w.now.Add(pause))
			for _, name := range paused {
				w.do("0s " + name + " unmute")
			}
			w.run(w.now.Add(40 * time.Second))
			want := []string{"0s suspected a b", "0s changed a b c@n2", "1s confirmed a b c@n2"}
			if diff := cmp.Diff(want, w.log()); diff != "" {
				t.Fatalf("%v pause at %v: events (-want +got):\n%s", paused, at, diff)
			}
		}
	}
}

// A holder that pauses for 4 s while others join the conflict stays one of its holders.
func TestPauseWhileOthersJoin(t *testing.T) {
	for _, paused := range []string{"a", "b"} {
		for at := 25 * time.Second; at < 36*time.Second; at += 330 * time.Millisecond {
			w := newWorld(t, Options{})
			w.play("0s a announces\n0s b announces\n"+timeline{
				{30 * time.Second, "c announces"},
				{31500 * time.Millisecond, "d announces"},
				{33200 * time.Millisecond, "e announces"},
				{at, paused + " mute"},
				{at + pause, paused + " unmute"},
			}.script(), 20*time.Second)
			if got := w.among("a", "b", "c", "d", "e"); got != "" {
				t.Errorf("%s pauses at %v: %s\n%s", paused, at, got, strings.Join(w.log(), "\n"))
			}
			for _, e := range w.events {
				if e.Kind != EventSuspected && len(e.Conflict.Holders) < 2 || e.Kind == EventResolved {
					t.Errorf("%s pauses at %v: %s", paused, at, strings.Join(w.log(), "\n"))
				}
			}
		}
	}
}

// among returns a difference unless the only conflict is confirmed with just these holders.
func (w *world) among(names ...string) string {
	open := w.d.Conflicts(false)
	if len(open) != 1 || open[0].State != Confirmed {
		return fmt.Sprintf("open: %+v", open)
	}
	var got []string
	for _, h := range open[0].Holders {
		got = append(got, h.Holder.NetnsName)
	}
	slices.Sort(got)
	return cmp.Diff(names, got)
}

// A holder pauses for 4 s when another one arrives, and sends when it goes on. The conflict is found.
func TestPauseWhenTheOtherComes(t *testing.T) {
	for _, verb := range []string{"announces", "sends", "answers"} {
		for before := time.Duration(0); before <= pause; before += 270 * time.Millisecond {
			for after := 50 * time.Millisecond; after < 2*time.Second; after += 610 * time.Millisecond {
				w := newWorld(t, Options{})
				came := 30 * time.Second
				goesOn := came - before + pause
				w.play("0s b announces\n"+timeline{
					{came - before, "b mute"},
					{came, "a announces"},
					{goesOn, "b unmute"},
					{goesOn + after, "b " + verb},
					{goesOn + after + 2*time.Second, "b " + verb},
				}.script(), 5*time.Second)
				if got := w.among("a", "b"); got != "" {
					t.Errorf("b pauses %v before a comes, and %s %v after it goes on: %s\n%s", before, verb, after, got, strings.Join(w.log(), "\n"))
				}
			}
		}
	}
}

// One probe in twenty is lost while a third holder joins a conflict. The third holder is found in time,
// and no holder is removed.
func TestNewcomersUnderLoss(t *testing.T) {
	const all = 400
	late := 0
	for seed := range uint64(all) {
		w := newWorld(t, Options{})
		r := rand.New(rand.NewPCG(seed, 5))
		w.play("0s a announces\n0s b announces", 10*time.Second)
		w.lose = func() bool { return r.IntN(20) == 0 }
		w.run(w.now.Add(time.Duration(r.IntN(5000)) * time.Millisecond))
		joined := w.now
		w.do("0s c announces")
		w.run(w.now.Add(time.Minute))
		if got := w.among("a", "b", "c"); got != "" {
			t.Errorf("seed %d: %s\n%s", seed, got, strings.Join(w.log(), "\n"))
		}
		if took := w.together("a", "c").Sub(joined); took < time.Second || took > 2*time.Second {
			late++
		}
		if len(w.log()) != 3 {
			t.Errorf("seed %d: %s", seed, strings.Join(w.log(), "\n"))
		}
	}
	if late > all/50 {
		t.Errorf("%d of %d were late", late, all)
	}
}

// As [TestNewcomersUnderLoss] between nodes: requests and replies are lost.
func TestNewcomersUnderLossBetweenNodes(t *testing.T) {
	var slowest time.Duration
	for seed := range uint64(20) {
		n := newNetwork(t, 3, seed, 0.05)
		n.do(1, "a announces")
		n.do(2, "b announces")
		n.run(10*time.Second + time.Duration(n.random.IntN(5000))*time.Millisecond)
		n.conflicts(2, 1, 2)
		joined := n.now
		n.do(3, "c announces")
		for n.together() < 3 && n.now.Sub(joined) < time.Minute {
			n.run(50 * time.Millisecond)
		}
		slowest = max(slowest, n.now.Sub(joined))
		n.run(10 * time.Second)
		n.conflicts(3, 1, 2, 3)
		for _, w := range n.worlds {
			if w.d.Counts().Resolved > 0 {
				t.Errorf("seed %d: the conflict ended on a node", seed)
			}
		}
		n.logOnFailure()
	}
	if slowest > 6*time.Second {
		t.Errorf("the slowest took %v", slowest)
	}
}

// together counts the confirmed conflicts that have as many holders as there are nodes.
func (n *network) together() (count int) {
	for _, w := range n.worlds {
		for _, c := range w.d.Conflicts(false) {
			if c.State == Confirmed && len(c.Holders) == len(n.worlds) {
				count++
			}
		}
	}
	return count
}

// All nodes were given one range, and each has a pod with each of its addresses. Every node finds every
// conflict.
func TestOneRangeOnAllNodes(t *testing.T) {
	const nodes, addresses = 4, 10
	for seed := range uint64(3) {
		n := newNetwork(t, nodes, seed, 0.02)
		for _, k := range n.random.Perm(nodes * addresses) {
			n.do(k%nodes+1, fmt.Sprintf("p%d announces %s", k, ipv4(k/nodes)))
			n.run(time.Duration(n.random.IntN(30)) * time.Millisecond)
		}
		last := n.now
		for n.together() < nodes*addresses && n.now.Sub(last) < time.Minute {
			n.run(100 * time.Millisecond)
		}
		if took := n.now.Sub(last); took > 5*time.Second {
			t.Errorf("seed %d: %d of %d found after %v", seed, n.together(), nodes*addresses, took)
		}
		ids := map[string]int{}
		for _, w := range n.worlds {
			for _, c := range w.d.Conflicts(false) {
				ids[c.ID]++
			}
			if w.d.Counts().Resolved > 0 {
				t.Errorf("seed %d: a conflict ended", seed)
			}
		}
		if len(ids) != addresses {
			t.Errorf("seed %d: %d ids for %d addresses", seed, len(ids), addresses)
		}
	}
}

// After a restart of the agent its conflict stays listed with its id and times, so that an alert about
// it does not end and fire again. Meanwhile its holders are seen again late, pause, or leave some
// probes unanswered.
func TestRestartKeepsAConflictListed(t *testing.T) {
	for _, names := range [][2]string{{"a", "b"}, {"a", "b@n2"}} {
		for seed := range uint64(150) {
			r := rand.New(rand.NewPCG(seed, 9))
			w := newWorld(t, Options{})
			w.play(fmt.Sprintf("0s %s announces\n0s %s announces", names[0], names[1]), 2*time.Second)
			w.run(w.now.Add(time.Duration(r.IntN(90_000)) * time.Millisecond))
			before := w.d.Conflicts(false)[0]
			w.lose = func() bool { return r.IntN(20) == 0 }
			events := len(w.events)
			w.do("0s agent restarts")
			var l timeline
			for i, name := range names {
				within := 20_000
				if strings.Contains(name, "@") {
					within = 80_000
				}
				back := time.Duration(r.IntN(within)) * time.Millisecond
				l = append(l, happening{back, name + " " + []string{"announces", "sends", "answers"}[r.IntN(3)]})
				if within > 20_000 && back < 20*time.Second {
					l = append(l, happening{20 * time.Second, name + " announces"}) // keepers name it as soon as the local one is leased
				}
				if i == r.IntN(2) {
					pauses := max(back-time.Duration(r.IntN(3000))*time.Millisecond, 0)
					l = append(l, happening{pauses, name + " mute"}, happening{pauses + pause, name + " unmute"})
				}
			}
			restarted := w.now
			for line := range lines(l.script()) {
				at, _ := time.ParseDuration(strings.Fields(line)[0])
				for w.now.Before(restarted.Add(at)) {
					w.run(schedule.Later(w.now, schedule.Earlier(w.now.Add(500*time.Millisecond), restarted.Add(at))))
					w.listed(before)
				}
				w.do(line)
				w.listed(before)
			}
			for range 80 {
				w.run(w.now.Add(500 * time.Millisecond))
				w.listed(before)
			}
			if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed || !c[0].ConfirmedAt.Equal(before.ConfirmedAt) {
				t.Errorf("seed %d: in the end %+v\n%s", seed, c, l.script())
			}
			for _, e := range w.events[events:] {
				if e.Kind != EventChanged && (e.Kind != EventConfirmed || !e.Restored) {
					t.Errorf("seed %d: %s: %s\n%s", seed, e.Kind, e.Reason, l.script())
				}
			}
			if t.Failed() {
				w.history(t)
				return
			}
		}
	}
}

// listed fails the test unless the conflict is listed unchanged.
func (w *world) listed(before Conflict) {
	w.t.Helper()
	c := w.d.Conflicts(false)
	if len(c) != 1 || c[0].ID != before.ID || !c[0].SuspectedAt.Equal(before.SuspectedAt) || len(c[0].Holders) < 2 {
		w.t.Errorf("%s: %+v is listed", w.since(w.now), c)
	}
}
