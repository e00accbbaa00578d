package detector

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// Addresses that two nodes have for themselves: when that is a conflict, and when it is told without one.
func TestTwins(t *testing.T) {
	const both = `0s uplink announces
		100s uplink@n2 announces`
	const mute = "0s uplink announces\n0s uplink@n2 mute\n100s uplink@n2 announces"
	const notHeard = `1m40s suspected uplink uplink@n2
		1m41s faded uplink uplink@n2
		1m42s suspected uplink uplink@n2
		1m43s faded uplink uplink@n2
		1m45s suspected uplink uplink@n2
		1m46s faded uplink uplink@n2
		1m50s suspected uplink uplink@n2
		1m51s faded uplink uplink@n2`
	for name, tt := range map[string]struct {
		script, want string
		more         time.Duration
		twins        string // the other holders
		verdict      string
	}{
		"on both and heard": {
			script: both, want: `1m40s suspected uplink uplink@n2
				1m50s confirmed uplink uplink@n2`,
			verdict: "two live holders answered both rounds 10.0 s apart: a conflict",
		},
		"a fail-over that overlaps": {
			script: both + "\n108s uplink loses", want: `1m40s suspected uplink uplink@n2
				1m48s faded uplink uplink@n2`,
		},
		"the other one is not heard: asked again, less and less often": {
			script: mute, want: notHeard, twins: "uplink@n2",
			verdict: "one live holder: not a conflict; the last suspicion faded because uplink@n2 on node n2 was not heard on the segment of this node; also that of a holder that does not answer, uplink@n2 on node n2: not counted",
		},
		"not heard at first": {
			script: mute + "\n112s uplink@n2 unmute\n120s uplink answers", want: notHeard + `
				1m59s suspected uplink uplink@n2
				2m9s confirmed uplink uplink@n2`,
		},
		"not heard, and gone": {
			script: mute + "\n112s uplink@n2 gone", want: notHeard,
		},
		"not heard, and then a pod here has it": {
			script: mute + "\n103.5s a announces\n103.5s uplink loses", want: `1m40s suspected uplink uplink@n2
				1m41s faded uplink uplink@n2
				1m42s suspected uplink uplink@n2
				1m43s faded uplink uplink@n2
				1m43.5s suspected uplink uplink@n2 a
				1m43.5s changed uplink@n2 a
				1m44.5s faded uplink@n2 a`,
		},
		"elsewhere on one of them":  {script: "0s uplink announces\n100s host@n2 announces"},
		"elsewhere":                 {script: "0s host announces\n100s host@n2 announces"},
		"both gateways of pods":     {script: "0s bridge announces\n100s bridge@n2 announces", twins: "bridge@n2"},
		"the other one a gateway":   {script: "0s host announces\n100s bridge@n2 announces", twins: "bridge@n2"},
		"this one a gateway":        {script: "0s bridge announces\n100s host@n2 announces", twins: "host@n2"},
		"a gateway and gone":        {script: "0s bridge announces\n100s host@n2 announces\n117s host@n2 gone"},
		"a gateway that passes on":  {script: "0s bridge announces\n100s host@n2 forwards"},
		"a gateway that is shared":  {script: "0s bridge announces\n100s host@n2 announces\n101s agent shares"},
		"a gateway for 5 s":         {script: "0s bridge announces\n100s host@n2 announces\n105s agent unshares", more: -14 * time.Second},
		"two others on the segment": {script: "0s bridge announces\n100s uplink@n2 announces\n100s uplink@n3 announces", twins: "uplink@n2 uplink@n3"},
		"a pod and two nodes": {
			script: both + "\n102s a announces", want: `1m40s suspected uplink uplink@n2
				1m42s changed uplink uplink@n2 a
				1m43.02s confirmed uplink uplink@n2 a`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.play(tt.script, 18*time.Second+tt.more)
			if diff := cmp.Diff(linesOf(tt.want), w.log()); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			var twins []string
			for _, twin := range w.d.Twins(w.now) {
				twins = append(twins, twin.Other.Holder.NetnsName)
			}
			if got := strings.Join(twins, " "); got != tt.twins {
				t.Errorf("twins %q, want %q", got, tt.twins)
			}
			if got := w.d.Explain(defaultIP)[0].Verdict; !strings.Contains(got, tt.verdict) {
				t.Errorf("verdict %q, want %q", got, tt.verdict)
			}
		})
	}
}
