package detector

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// scriptTest plays a script in a [world]. Names begin with the number of the scenario in
// tests/scenarios that has the same sightings: D is a duplicate, Q must raise no alarm.
type scriptTest struct {
	name    string
	script  string
	more    time.Duration // how long it goes on after the last line; 20 s if zero
	want    string        // the events
	verdict string        // part of the verdict; empty for any
}

// foundTests have real duplicates, and how they end.
var foundTests = []scriptTest{
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
		name: "D5 the older holder is silent, the newer one sends",
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
		name: "three holders, one of which answers a little later, make one event",
		script: `0s c slow
			0s a announces
			0s b announces
			0s c announces`,
		want: `0s suspected a b
			0s changed c a b
			1.1s confirmed c a b`,
	},
	{
		name: "a third joins between the rounds and delays nothing",
		script: `0s a announces
			0s b announces
			0.5s c announces`,
		want: `0s suspected a b
			500ms changed a b c
			1s confirmed a b
			1.5s changed a b c`,
	},
	{
		name: "a third that never answers delays nothing",
		script: `0s a announces
			0s b announces
			0.9s c forges`,
		want: `0s suspected a b
			900ms changed a b c
			1s confirmed a b`,
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
			0s c forges`,
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
			1.5s confirmed a c`,
	},
	{
		name: "D9 a pod has the node's own address",
		script: `0s host1 announces
			3s a announces`,
		want: `3s suspected host1 a
			4s confirmed host1 a`,
	},
	{
		name: "a claim against a holder",
		script: `0s a announces
			3s b claims
			40s b loses`,
		want: `3s suspected a b
			4s confirmed a b
			43s resolved a b`,
	},
	{
		name: "a claim against the node's own address",
		script: `0s host1 announces
			3s a claims`,
		want: `3s suspected host1 a
			4s confirmed host1 a`,
	},
	{
		name: "two claims are never a conflict",
		script: `0s a claims
			3s b claims`,
		verdict: "two holders claim it and have it on other devices: not a conflict",
	},
	{
		name: "two claims and a holder are",
		script: `0s a claims
			0s b claims
			3s c announces
			10s c gone`,
		want: `3s suspected a b c
			4s confirmed a b c
			13s resolved a b c`,
	},
	{
		name: "a claim ends the suppression of a holder that had sent only data",
		script: `0s a announces
			3s b spoofs
			20s b claims`,
		want: `3s suspected a b
			4s faded a b
			20s suspected a b
			21s confirmed a b`,
	},
	{
		name: "a claim without an answer is suppressed",
		script: `0s a announces
			3s b forges-a-claim
			30s b forges-a-claim`,
		want: `3s suspected a b
			4s faded a b
			30s suspected a b
			31s faded a b`,
	},
	{
		name: "two nodes' own addresses are never a conflict",
		script: `0s host1 announces
			3s host2 announces`,
		verdict: "two nodes have it as their own address, and not on one segment as far as is known: not a conflict",
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
			11s b changes-interface
			11s b announces`,
		want: `0s suspected a b
			1s confirmed a b`,
		verdict: "a conflict",
	},
	{
		name: "a holder is gone twice, and comes back once",
		script: `0s a announces
			0s b announces
			10s b gone
			11s b changes-interface
			11s b announces
			30s b gone`,
		want: `0s suspected a b
			1s confirmed a b
			33s resolved a b`,
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
			10.9s b unmute`,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "one misses a single re-check again and again",
		script: `0s a announces
			0s b announces
			5.5s b mute
			10.9s b unmute
			15.5s b mute
			20.9s b unmute`,
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
		name: "one stops answering in a conflict that has been open for long: rounds come more often again",
		script: `0s a announces
			0s b announces
			121.5s b drops`,
		more: time.Minute,
		want: `0s suspected a b
			1s confirmed a b
			2m40s resolved a b`,
	},
	{
		name: "both holders are gone",
		script: `0s a announces
			0s b announces
			7s b gone
			7s a gone`,
		want: `0s suspected a b
			1s confirmed a b
			10s resolved a b`,
		verdict: "no live holder: not a conflict; the last conflict is resolved",
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

func TestScripts(t *testing.T) {
	for _, tt := range slices.Concat(
		foundTests, configuredTests, quietTests, postponedTests, restoredTests, sharedTests, newcomerTests, remoteTests, forwarderTests, deafTests,
	) {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			more := tt.more
			if more == 0 {
				more = 20 * time.Second
			}
			w.play(tt.script, more)
			if diff := cmp.Diff(linesOf(tt.want), w.log()); diff != "" {
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
