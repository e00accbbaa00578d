package detector

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The numbers are those of the labelled situations of the scenario suite: D must be
// found, Q must stay quiet. Here each is reduced to what the detector sees of it.
var stories = []struct {
	name    string
	script  string
	more    time.Duration // after the last line; 20 s unless told
	want    string
	verdict string // part of it
}{
	{
		name:   "one holder",
		script: `0s a announces`,
		more:   4 * time.Minute, verdict: "one live holder: not a conflict",
	},
	{
		name: "D1 two pods, one address",
		script: `0s a announces
			10s b announces`,
		want: `10s suspected a b
			11s confirmed a b`,
		verdict: "two live holders answered both rounds 1.0 s apart: a conflict",
	},
	{
		name: "D5 the elder is silent, the newcomer talks",
		script: `0s a takes
			0s a answers
			100s b sends`,
		want: `1m40s suspected a b
			1m41s confirmed a b`,
	},
	{
		name: "D6 both are silent and answer only",
		script: `0s a takes
			0s a answers
			5s b takes
			5s b answers`,
		want: `5s suspected a b
			6s confirmed a b`,
	},
	{
		name: "D7 three holders at once",
		script: `0s a announces
			0s b announces
			0s c announces`,
		want: `0s suspected a b
			0s changed a b c
			1s confirmed a b c`,
		verdict: "3 live holders",
	},
	{
		name: "a third joins between the rounds and holds nobody up",
		script: `0s a announces
			0s b announces
			0.5s c announces`,
		want: `0s suspected a b
			500ms changed a b c
			1s confirmed a b
			1.5s changed a b c`,
	},
	{
		name: "a third joins a conflict and is verified",
		script: `0s a announces
			0s b announces
			30s c announces
			40s d spoofs`,
		want: `0s suspected a b
			1s confirmed a b
			31s changed a b c`,
	},
	{
		name: "one of three does not answer",
		script: `0s a announces
			0s b announces
			0s c boasts`,
		want: `0s suspected a b
			0s changed a b c
			1s changed a b
			1s confirmed a b`,
	},
	{
		name: "the first two are not enough, the third is",
		script: `0s a announces
			0s b announces
			0.5s c announces
			0.6s b drops`,
		want: `0s suspected a b
			500ms changed a b c
			2s changed a c
			2s confirmed a c`,
	},
	{
		name: "D9 a pod has the node's own address",
		script: `0s host1 announces
			3s a announces`,
		want: `3s suspected host1 a
			4s confirmed host1 a`,
	},
	{
		name: "two nodes' own addresses are never a conflict",
		script: `0s host1 announces
			3s host2 announces`,
		verdict: "2 nodes' own addresses: not a conflict",
	},
	{
		name: "two nodes and a pod are",
		script: `0s host1 announces
			0s host2 announces
			3s a announces
			10s a gone`,
		want: `3s suspected host1 host2 a
			4s confirmed host1 host2 a
			13s resolved host1 host2 a`,
	},
	{
		name: "D10 a terminating pod still lives",
		script: `0s old announces
			60s new announces
			90s old gone`,
		want: `1m0s suspected old new
			1m1s confirmed old new
			1m33s resolved old new`,
		verdict: "one live holder: not a conflict; the last conflict is resolved",
	},
	{
		name: "D11 ten at once",
		script: tenTimes("0s a takes 10.1.0.%") + tenTimes("0s a answers 10.1.0.%") +
			tenTimes("20s b announces 10.1.0.%"),
		want: tenTimes("20s suspected a b") + tenTimes("21s confirmed a b"),
	},
	{
		name: "D15 the address is added to a running pod",
		script: `0s a announces
			0s b announces 10.0.0.2
			20s b sends`,
		want: `20s suspected a b
			21s confirmed a b`,
	},
	{
		name: "D16 it ends, returns and ends again",
		script: `0s a announces
			0s b announces
			10s b gone
			20s c announces
			30s a loses`,
		want: `0s suspected a b
			1s confirmed a b
			13s resolved a b
			20s suspected a c
			21s confirmed a c
			33s resolved a c`,
	},
	{
		name: "it is gone for less than 3 s and goes on",
		script: `0s a announces
			0s b announces
			10s b gone
			11s b port
			11s b announces`,
		want: `0s suspected a b
			1s confirmed a b`,
		verdict: "a conflict",
	},
	{
		name: "another takes the place of the one that is gone",
		script: `0s a announces
			0s b announces
			10s b gone
			12.5s c announces`,
		want: `0s suspected a b
			1s confirmed a b
			13.5s changed a c`,
	},
	{
		name: "one misses a single re-check",
		script: `0s a announces
			0s b announces
			5.5s b mute
			10.9s b speaks`,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "one stops answering",
		script: `0s a announces
			0s b announces
			7s b drops`,
		want: `0s suspected a b
			1s confirmed a b
			20s resolved a b`,
	},
	{
		name: "nobody lives any more",
		script: `0s a announces
			0s b announces
			7s b gone
			7s a gone`,
		want: `0s suspected a b
			1s confirmed a b
			10s resolved a b`,
		verdict: "no live holder: not a conflict; the last conflict is resolved",
	},

	{
		name: "Q1 the address goes to the next pod at once",
		script: `0s a announces
			60s a gone
			60s b announces
			120s b gone
			120.1s c announces
			180s c gone
			185s d announces`,
	},
	{
		name: "Q1 the news of the old one's end comes late",
		script: `0s a announces
			60s a drops
			60s b announces
			60.3s a gone`,
		want: `1m0s suspected a b
			1m0.3s faded a b`,
	},
	{
		name: "the old one is dead and nobody says so",
		script: `0s a announces
			60s a drops
			60s b announces`,
		want: `1m0s suspected a b
			1m1s faded a b`,
		verdict: "because a did not answer: ordinary reuse of an address",
	},
	{
		name: "Q2 ten sandboxes in a row",
		script: `0s a announces
			5s a drops
			5s a netns
			5s a port
			5s a announces
			10s a gone
			10s a netns
			10s a port
			10s a announces`,
		want: `5s suspected a a
			6s faded a a`,
	},
	{
		name: "Q5 a router emits another pod's address",
		script: `0s a announces
			10s r forwards
			11s r forwards`,
		verdict: "one live holder: not a conflict; also forwarded by r: not counted",
	},
	{
		name:    "Q5 a router alone",
		script:  `0s r forwards`,
		verdict: "known only as forwarded by r: not counted",
	},
	{
		name: "Q5 a router that cannot be looked into, within the TTL",
		script: `0s a announces
			10s r spoofs
			20s r spoofs
			150s a announces
			200s r spoofs
			309s r spoofs`,
		want: `10s suspected a r
			11s faded a r`,
		verdict: "also forwarded by r: not counted",
	},
	{
		name: "Q5 … and after the TTL",
		script: `0s a announces
			10s r spoofs
			200s r spoofs
			312s r spoofs`,
		want: `10s suspected a r
			11s faded a r
			5m12s suspected a r
			5m13s faded a r`,
	},
	{
		name: "a router announces after it was found forwarding",
		script: `0s a announces
			10s r spoofs
			20s r announces`,
		want: `10s suspected a r
			11s faded a r
			20s suspected a r
			21s confirmed a r`,
	},
	{
		name: "Q25 a pod answers for what it does not have",
		script: `0s p proxies
			0s a announces
			10s p spoofs`,
		want: `10s suspected a p
			10s faded a p`,
		verdict: "p answers for an address it does not have",
	},
	{
		name: "Q25 … and announced it before it could be looked into",
		script: `0s p proxies
			0s a announces
			10s p boasts`,
		want: `10s suspected a p
			11s faded a p`,
	},
	{
		name: "Q10 a virtual address moves between two pods",
		script: `0s a announces
			30s a drops
			30s b announces
			60s b drops
			60s a announces
			90s a loses
			90s b announces`,
		want: `30s suspected a b
			31s faded a b
			1m0s suspected b a
			1m1s faded b a`,
	},
	{
		name: "Q11 hand-over with an overlap below the least",
		script: `0s a announces
			60s b announces
			60.9s a drops`,
		want: `1m0s suspected a b
			1m2s faded a b`,
	},
	{
		name: "a forwarded sighting does not weaken what was announced",
		script: `0s a announces
			10s a forwards
			20s b announces`,
		want: `20s suspected a b
			21s confirmed a b`,
	},
	{
		name: "Q14 one pod, two interfaces, one address",
		script: `0s a announces
			1s a port
			1s a announces
			2s a sends`,
	},
	{
		name: "Q15 a pod changes its address, another takes the old one",
		script: `0s a announces
			10s a loses
			10s a announces 10.0.0.2
			10s b announces`,
	},
	{
		name: "Q21 netns inode and ifindex are reused",
		script: `0s a announces
			10s a gone
			10.001s a netns
			10.001s a announces`,
	},
	{
		name: "the MAC of a holder changes",
		script: `0s a announces
			10s a mac
			10s a announces`,
	},

	{
		name: "one cannot be solicited",
		script: `0s a speaks
			0s b refused solicit is off
			0s a announces
			0s b announces
			120s b announces`,
		more:    60 * time.Second,
		want:    `0s suspected a b`,
		verdict: "two holders, one cannot be solicited (solicit is off): suspected, not confirmed",
	},
	{
		name: "one cannot be solicited and the other goes",
		script: `0s a speaks
			0s b refused solicit is off
			0s a announces
			0s b announces
			40s a drops`,
		more: 60 * time.Second,
		want: `0s suspected a b
			1m1s faded a b`,
	},
	{
		name: "one cannot be solicited, then it can",
		script: `0s a speaks
			0s b refused no link-local address
			0s a announces
			0s b announces
			40s b allowed`,
		more: 30 * time.Second,
		want: `0s suspected a b
			1m1s confirmed a b`,
	},
	{
		name: "… and something new is seen of it",
		script: `0s a speaks
			0s b refused no link-local address
			0s a announces
			0s b announces
			40s b allowed
			40s b announces`,
		want: `0s suspected a b
			41s confirmed a b`,
	},
	{
		name: "one is postponed",
		script: `0s a speaks
			0s b refused 10s it is probing the address itself
			0s a announces
			0s b sends`,
		want: `0s suspected a b
			11s confirmed a b`,
	},
	{
		name: "one is postponed in the second round",
		script: `0s a announces
			0s b announces
			0.5s b refused 10s rate
			5s a sends`,
		want: `0s suspected a b
			10.5s confirmed a b`,
	},
	{
		name: "one is postponed in a re-check",
		script: `0s a announces
			0s b announces
			4s b refused 30s rate`,
		more: 60 * time.Second,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "solicitations are lost for a while",
		script: `0s a speaks
			0s b unreachable
			0s a announces
			0s b announces
			12s b reachable`,
		want: `0s suspected a b
			16s confirmed a b`,
	},
	{
		name: "solicitations are lost in a conflict",
		script: `0s a announces
			0s b announces
			4s b unreachable`,
		more: 60 * time.Second,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "it announces, never answers, again and again",
		script: `0s a announces` + repeat(`
			%s b boasts`, 10*time.Second, 100*time.Second, 2*time.Second),
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			14s suspected a b
			15s faded a b
			24s suspected a b
			25s faded a b
			42s suspected a b
			43s faded a b
			1m16s suspected a b
			1m17s faded a b`,
	},
	{
		name: "… but truly has it in the end",
		script: `0s a announces` + repeat(`
			%s b boasts`, 10*time.Second, 16*time.Second, 2*time.Second) + `
			17s b takes
			17s b answers`,
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			14s suspected a b
			15s faded a b
			17s suspected a b
			18s confirmed a b`,
	},
}

func tenTimes(line string) string {
	var s strings.Builder
	for i := range 10 {
		s.WriteString(strings.ReplaceAll(line, "%", string(rune('0'+i))) + "\n")
	}
	return s.String()
}

func repeat(line string, from, to, every time.Duration) string {
	var s strings.Builder
	for at := from; at <= to; at += every {
		s.WriteString(strings.ReplaceAll(line, "%s", at.String()))
	}
	return s.String()
}

func TestStories(t *testing.T) {
	for _, tt := range stories {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			more := tt.more
			if more == 0 {
				more = 20 * time.Second
			}
			w.play(tt.script, more)
			if diff := cmp.Diff(linesOf(tt.want), w.log); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			if tt.verdict != "" && !strings.Contains(w.verdict(), tt.verdict) {
				t.Errorf("verdict %q, want %q", w.verdict(), tt.verdict)
			}
			if t.Failed() {
				w.history(t)
			}
		})
	}
}
