package detector

import "time"

// quietTests have legitimate holders: no conflict may be confirmed.
var quietTests = []scriptTest{
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
		name: "the old one is dead and its end is not seen",
		script: `0s a announces
			60s a drops
			60s b announces`,
		want: `1m0s suspected a b
			1m1s faded a b`,
		verdict: "because a did not answer",
	},
	{
		name: "Q2 ten sandboxes in a row",
		script: `0s a announces
			5s a drops
			5s a changes-netns
			5s a changes-interface
			5s a announces
			10s a gone
			10s a changes-netns
			10s a changes-interface
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
			10s p forges`,
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
		// Both answer twice, and both at 11 s, but at 10 s only one of them has it.
		name: "the address goes to and fro",
		script: `0s a announces
			0s b guarded 10s it is probing
			0s b announces
			5s a drops
			10.8s a takes
			11.3s b drops`,
		more: 30 * time.Second,
		want: `0s suspected a b
			11s faded a b`,
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
			1s a changes-interface
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
			10.001s a changes-netns
			10.001s a announces`,
	},
	{
		name: "the MAC of a holder changes",
		script: `0s a announces
			10s a changes-mac
			10s a announces`,
	},
}
