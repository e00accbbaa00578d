package detector

import "time"

// postponedTests have holders that cannot be probed, or only later.
var postponedTests = []scriptTest{
	{
		name: "one cannot be probed",
		script: `0s a unmute
			0s b guarded solicit is off
			0s a announces
			0s b announces
			120s b announces`,
		more:    60 * time.Second,
		want:    `0s suspected a b`,
		verdict: "two holders, one cannot be probed (solicit is off): suspected, not confirmed",
	},
	{
		name: "one cannot be probed and the other goes",
		script: `0s a unmute
			0s b guarded solicit is off
			0s a announces
			0s b announces
			40s a drops`,
		more: 60 * time.Second,
		want: `0s suspected a b
			1m1s faded a b`,
	},
	{
		name: "one cannot be probed, then it can",
		script: `0s a unmute
			0s b guarded no link-local address
			0s a announces
			0s b announces
			40s b unguarded`,
		more: 30 * time.Second,
		want: `0s suspected a b
			1m1s confirmed a b`,
	},
	{
		name: "one cannot be probed, then the agent sees it again",
		script: `0s a unmute
			0s b guarded no link-local address
			0s a announces
			0s b announces
			40s b unguarded
			40s b announces`,
		want: `0s suspected a b
			41s confirmed a b`,
	},
	{
		name: "one is postponed",
		script: `0s a unmute
			0s b guarded 10s it is probing the address itself
			0s a announces
			0s b sends`,
		want: `0s suspected a b
			11s confirmed a b`,
	},
	{
		name: "one is postponed in the second round",
		script: `0s a announces
			0s b announces
			0.5s b guarded 10s rate
			5s a sends`,
		want: `0s suspected a b
			10.5s confirmed a b`,
	},
	{
		name: "one is postponed in a re-check",
		script: `0s a announces
			0s b announces
			4s b guarded 30s rate`,
		more: 60 * time.Second,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "probes are lost for a while",
		script: `0s a unmute
			0s b unreachable
			0s a announces
			0s b announces
			12s b reachable`,
		want: `0s suspected a b
			16s confirmed a b`,
	},
	{
		name: "probes are lost in a conflict",
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
			%s b forges`, 10*time.Second, 100*time.Second, 2*time.Second),
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			15s suspected a b
			16s faded a b
			20s suspected a b
			21s faded a b
			29s suspected a b
			30s faded a b
			46s suspected a b
			47s faded a b
			1m19s suspected a b
			1m20s faded a b`,
	},
	{
		name: "an announcement while it is suppressed counts when that ends",
		script: `0s a announces
			10s b forges
			11.5s b announces`,
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s confirmed a b`,
	},
	{
		name: "data while it is suppressed does not",
		script: `0s a announces
			10s b forges
			11.5s b sends`,
		want: `10s suspected a b
			11s faded a b`,
	},
	{
		name: "it announced and then only sends: the penalties still double",
		script: `0s a announces
			10s b forges` + repeat(`
			%s b spoofs`, 12*time.Second, 30*time.Second, time.Second),
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			15s suspected a b
			16s faded a b
			20s suspected a b
			21s faded a b
			29s suspected a b
			30s faded a b`,
	},
	{
		name: "an announcement ends the suppression of data",
		script: `0s a announces
			0s r mute
			10s r spoofs
			15s a gone
			20s r forges
			300s r spoofs
			325s c announces`,
		want: `10s suspected a r
			11s faded a r
			5m25s suspected r c
			5m26s faded r c`,
	},
	{
		name: "an answer resets the penalty",
		script: `0s a announces
			10s b forges
			12s b forges
			15s b announces
			15.5s b loses
			20s b forges
			22s b forges`,
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			15s suspected a b
			15.5s faded a b
			20s suspected a b
			21s faded a b
			22s suspected a b
			23s faded a b`,
	},
	{
		name: "it announces and never answers, but has the address in the end",
		script: `0s a announces` + repeat(`
			%s b forges`, 10*time.Second, 16*time.Second, 2*time.Second) + `
			17s b takes
			17s b answers`,
		want: `10s suspected a b
			11s faded a b
			12s suspected a b
			13s faded a b
			15s suspected a b
			16s faded a b
			17s suspected a b
			18s confirmed a b`,
	},
}
