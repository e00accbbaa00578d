package detector

import "time"

// remoteTests have holders on other nodes, such as b@n2.
var remoteTests = []scriptTest{
	{
		name: "D3 one here, one on another node",
		script: `0s a announces
			10s b@n2 sends`,
		want: `10s suspected a b@n2
			11s confirmed a b@n2`,
		verdict: "two live holders answered both rounds 1.0 s apart: a conflict",
	},
	{
		name: "the local one is the newcomer",
		script: `0s b@n2 announces
			5s a announces
			5.1s b@n2 announces`,
		want: `5.1s suspected a b@n2
			6.1s confirmed a b@n2`,
	},
	{
		name: "no holder on this node",
		script: `0s b@n2 announces
			1s c@n3 announces`,
	},
	{
		name: "here it is only forwarded",
		script: `0s a forwards
			1s b@n2 announces
			2s c@n3 announces`,
		verdict: "known only as forwarded by a: not counted",
	},
	{
		name: "D7 three holders on three nodes",
		script: `0s a announces
			10s b@n2 announces
			10s c@n3 announces`,
		want: `10s suspected a b@n2
			10s changed a b@n2 c@n3
			11s confirmed a b@n2 c@n3`,
	},
	{
		name: "D9 a pod here has another node's own address",
		script: `0s a announces
			10s host@n2 announces`,
		want: `10s suspected a host@n2
			11s confirmed a host@n2`,
	},
	{
		name: "a pod on another node has this node's own address",
		script: `0s host announces
			10s b@n2 announces`,
		want: `10s suspected host b@n2
			11s confirmed host b@n2`,
	},
	{
		name: "two nodes' own addresses",
		script: `0s host announces
			10s host@n2 announces`,
		verdict: "two nodes have it as their own address, and not on one segment as far as is known: not a conflict",
	},
	{
		name: "D16 the remote holder goes, and another comes",
		script: `0s a announces
			0s b@n2 announces
			10s b@n2 gone
			20s c@n2 announces
			30s c@n2 gone`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			13s resolved a b@n2
			20s suspected a c@n2
			21s confirmed a c@n2
			33s resolved a c@n2`,
		verdict: "one live holder: not a conflict; the last conflict is resolved",
	},
	{
		name: "the local holder is gone: the conflict ends on this node, also if others still have the address",
		script: `0s a announces
			0s b@n2 announces
			0s c@n3 announces
			10s a gone`,
		want: `0s suspected a b@n2
			0s changed a b@n2 c@n3
			1s confirmed a b@n2 c@n3
			13s resolved a b@n2 c@n3`,
		verdict: "no live holder: not a conflict; the last conflict is resolved",
	},
	{
		name: "the local holder goes and comes back within 3 s",
		script: `0s a announces
			0s b@n2 announces
			10s a gone
			11s a changes-interface
			11s a announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2`,
	},
	{
		name: "the local holder goes during the suspicion",
		script: `0s a announces
			0s b@n2 announces
			0.5s a gone`,
		want: `0s suspected a b@n2
			500ms faded a b@n2`,
		verdict: "no live holder: not a conflict; the last suspicion faded because a withdrawn: interface is gone",
	},
	{
		name: "a second local holder that answers a little later makes no event of its own",
		script: `0s c slow
			0s a announces
			0s b@n2 announces
			0s c announces`,
		want: `0s suspected a b@n2
			0s changed c a b@n2
			1.1s confirmed c a b@n2`,
	},
	{
		name: "a second local holder goes on with it",
		script: `0s a announces
			0s b@n2 announces
			10s c announces
			20s a gone`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			11.02s changed a b@n2 c
			20s changed b@n2 c`,
	},
	{
		name: "a newcomer on another node joins a conflict of this node",
		script: `0s a announces
			0s b announces
			20s c@n2 announces`,
		want: `0s suspected a b
			1s confirmed a b
			21s changed a b c@n2`,
	},
	{
		name: "a newcomer is proven by a remote holder while the local one cannot be probed",
		script: `0s a announces
			0s b@n2 announces
			8s a guarded x
			20s c@n3 announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			21s changed a b@n2 c@n3`,
	},
	{
		name: "a newcomer on a third node joins, and does not have it",
		script: `0s a announces
			0s b@n2 announces
			20s c@n3 announces
			20s c@n3 drops
			30s d@n4 announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			31s changed a b@n2 d@n4`,
	},
	{
		name: "Q1 the address moved here, the other node has not noticed",
		script: `0s b@n2 mute
			0s a announces
			0s b@n2 announces`,
		want: `0s suspected a b@n2
			1s faded a b@n2`,
		verdict: "faded because b@n2 on node n2 did not answer",
	},
	{
		name: "Q1 the address moved here, the other node knows already",
		script: `0s a announces
			0s b@n2 dies
			0s b@n2 forges`,
		want: `0s suspected a b@n2
			0s faded a b@n2`,
		verdict: "withdrawn: its node does not know it",
	},
	{
		name: "Q3 the old holder on another node answers round 1 only",
		script: `0s b@n2 takes
			0s a announces
			0s b@n2 announces
			0.6s b@n2 drops`,
		want: `0s suspected a b@n2
			2s faded a b@n2`,
	},
	{
		name: "Q3 the old holder here answers round 1 only",
		script: `0s a announces
			10s b@n2 announces
			10.6s a drops`,
		want: `10s suspected a b@n2
			12.02s faded a b@n2`,
		verdict: "no live holder",
	},
	{
		name: "Q5 a remote holder turns out to forward",
		script: `0s a announces
			0s b@n2 proxies
			1s b@n2 spoofs`,
		want: `1s suspected a b@n2
			1s faded a b@n2`,
		verdict: "b@n2 on node n2 answers for an address it does not have",
	},
	{
		name: "one stops answering on its node",
		script: `0s a announces
			0s b@n2 announces
			7s b@n2 drops`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			20s resolved a b@n2`,
	},
	{
		name: "one misses a single re-check",
		script: `0s a announces
			0s b@n2 announces
			5.5s b@n2 mute
			10.9s b@n2 unmute`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2`,
	},
	{
		name: "declared shared",
		script: `0s a announces
			0s b@n2 announces
			10s a shares
			20s c@n3 announces
			30s a unshares`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			10s resolved a b@n2
			30s suspected a b@n2 c@n3
			31s confirmed a b@n2 c@n3`,
	},
	{
		name: "the other node cannot probe its pod",
		script: `0s b@n2 guarded solicitation is off
			0s a announces
			0s b@n2 announces`,
		want:    `0s suspected a b@n2`,
		verdict: "two holders, one cannot be probed (solicitation is off): suspected, not confirmed",
	},
	{
		name: "the other node postpones the probe",
		script: `0s b@n2 guarded 5s the pod is probing the address itself
			0s a announces
			0s b@n2 announces`,
		// Their first answers are too far apart: both begin again.
		want: `0s suspected a b@n2
			6s confirmed a b@n2`,
	},
	{
		name: "the other node does not answer",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces`,
		more:    4 * time.Minute,
		want:    `0s suspected a b@n2`,
		verdict: "two holders, one cannot be probed (node n2 does not answer): suspected, not confirmed",
	},
	{
		name: "the other node does not answer for the TTL",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces
			100s b@n2 announces`,
		more: 6 * time.Minute,
		want: `0s suspected a b@n2
			6m40s faded a b@n2`,
		verdict: "faded because b@n2 on node n2 not seen for 5m0s",
	},
	{
		name: "D12 the other node is back: its turn has come",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces
			10s b@n2 reachable`,
		// Requested at 0, 3.8, 9.6 and, after the failure at 11.4, 16.4 s.
		want: `0s suspected a b@n2
			17.4s confirmed a b@n2`,
	},
	{
		name: "D12 the other node is back and renews its lease",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces
			120s b@n2 reachable
			121s b@n2 announces`,
		want: `0s suspected a b@n2
			2m2.2s confirmed a b@n2`,
	},
	{
		name: "a proven holder becomes unreachable and stays",
		script: `0s a announces
			0s b@n2 announces
			10s b@n2 unreachable`,
		more: 4 * time.Minute,
		want: `0s suspected a b@n2
			1s confirmed a b@n2`,
		verdict: "a conflict; b@n2 on node n2 cannot be probed now (node n2 does not answer)",
	},
	{
		name: "a proven holder is unreachable for the TTL",
		script: `0s a announces
			0s b@n2 announces
			8s b@n2 unreachable`,
		more: 6 * time.Minute,
		// It answered at 6 s, and is held for 3 s more.
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			5m9s resolved a b@n2`,
	},
	{
		name: "Q19 the other node died, and its pod lives here now",
		script: `0s b@n2 unreachable
			0s a announces
			1s b@n2 announces`,
		more: 6 * time.Minute,
		want: `1s suspected a b@n2
			5m1s faded a b@n2`,
	},
	{
		name: "an unreachable holder delays nothing",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces
			60s c@n3 announces`,
		want: `0s suspected a b@n2
			1m0s changed a b@n2 c@n3
			1m1s confirmed a c@n3`,
	},
	{
		name: "an unreachable one and one that is gone",
		script: `0s b@n2 unreachable
			0s a announces
			0s b@n2 announces
			0s c@n3 announces
			0.5s c@n3 gone`,
		want: `0s suspected a b@n2
			0s changed a b@n2 c@n3
			500ms changed a b@n2`,
	},
	{
		name: "restored, and the other node is joined late",
		script: `0s a announces
			0s b@n2 announces
			10s agent restarts
			12s a announces
			80s b@n2 announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			1m21s confirmed a b@n2`,
	},
	{
		name: "restored, and the other node has gone",
		script: `0s a announces
			0s b@n2 announces
			10s agent restarts
			12s a announces`,
		more: 2 * time.Minute,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			1m40s resolved a b@n2`,
	},
	{
		name: "restored, and the local one has gone",
		script: `0s a announces
			0s b@n2 announces
			10s agent restarts
			12s b@n2 announces`,
		more: 2 * time.Minute,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			40s resolved a b@n2`,
	},
	{
		name: "restored, and the other node does not answer",
		script: `0s a announces
			0s b@n2 announces
			10s agent restarts
			11s b@n2 unreachable
			12s a announces
			12s b@n2 announces
			60s b@n2 reachable
			61s b@n2 announces`,
		want: `0s suspected a b@n2
			1s confirmed a b@n2
			1m2s confirmed a b@n2`,
	},
}
