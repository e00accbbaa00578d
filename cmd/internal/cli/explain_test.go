package cli

import (
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

func TestPrintExplanation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n2", "web-1", "10.0.0.1", time.Minute)
		conflict := between("10.0.0.1", near, far)
		e := document.Explanation{
			Node: "n1", IP: netip.MustParseAddr("10.0.0.1"),
			Stories: []document.Story{{
				Network: "default", IP: netip.MustParseAddr("10.0.0.1"), Nodes: []string{"n1", "n2"},
				Verdict:  "two live holders answered both rounds 1.0 s apart: a conflict",
				Bindings: []document.Binding{near, far}, Conflict: &conflict,
				Notes: []document.Note{
					{At: ago(21 * time.Second), Kind: "seen", Node: "n2", Holder: &document.Holder{Node: "n2", Pod: far.Pod}, Text: "first seen: announced on vethweb-1"},
					{At: ago(20 * time.Second), Kind: "solicited", Node: "n1", Holder: &document.Holder{Node: "n2", Pod: far.Pod}, Text: "probed to verify"},
					{At: ago(20 * time.Second), Kind: "answered", Node: "n1", Holder: &document.Holder{Node: "n2"}, Text: "answered after 0.4 ms"},
					{At: ago(19 * time.Second), Kind: "conflict", Node: "n1", Text: "confirmed: 2 live holders answered both rounds 1.0 s apart"},
				},
			}},
			Configured: []document.Configured{
				{Interface: "vethweb-0", Netns: "cni-web-0", Pod: near.Pod, Device: "peer", Settled: true},
				{Network: "default", Interface: "veth2", Netns: "cni-2", Device: "peer", Lost: true},
			},
			Coverage: document.Coverage{Asked: 4, Missing: []string{"n4"}, Partial: true},
		}
		printed(t, func(p *Printer) { p.Explanation(e) }, `
10.0.0.1 in network default on nodes n1, n2
Verdict: two live holders answered both rounds 1.0 s apart: a conflict.
Conflict 5f3a9b21-1, cross-node: confirmed 1.3s after the second holder was seen
  If several are meant to have it (anycast, a virtual IP), list it under
  "shared" in the configuration.

Holders, the oldest first:
  shop/web-0 on node n1
      interface vethweb-0, MAC 02:00:00:00:00:01, evidence announced
      netns cni-web-0, pod UID u-web-0
      first seen 1999-12-31 23:00:00.000 (60m ago), last seen 2.0s ago
  shop/web-1 on node n2
      interface vethweb-1, MAC 02:00:00:00:00:01, evidence announced
      netns cni-web-1, pod UID u-web-1
      first seen 1999-12-31 23:59:00.000 (60s ago), last seen 2.0s ago

What happened:
  23:59:39.000 [n2] shop/web-1: first seen: announced on vethweb-1
  23:59:40.000 [n1] shop/web-1 on n2: probed to verify
  23:59:40.000 [n1] on n2: answered after 0.4 ms
  23:59:41.000 [n1] confirmed: 2 live holders answered both rounds 1.0 s apart

Configured on node n1, as the kernel lists it:
  shop/web-0: on the pod's end of vethweb-0
  cni-2: on the pod's end of veth2, not in use: its duplicate address detection
    failed

Why:
  cni-2: duplicate address detection failed in its kernel, which does not use
  the address. Now shop/web-0 on n1 and shop/web-1 on n2 have the address.

1 of 4 nodes did not answer: n4; their stories are missing.
`)
		// One node without a cluster; then two verdicts; then no story.
		e.Coverage, e.Configured = document.Coverage{}, nil
		far.Unreachable, far.Interface, far.MAC = true, "", detector.MAC{}
		e.Stories[0].Nodes, e.Stories[0].Notes, e.Stories[0].Conflict = []string{"n1"}, e.Stories[0].Notes[3:], nil
		e.Stories[0].Bindings = []document.Binding{far}
		printed(t, func(p *Printer) { p.Explanation(e) }, `
10.0.0.1 in network default on node n1
Verdict: two live holders answered both rounds 1.0 s apart: a conflict.

Holders, the oldest first:
  shop/web-1 (unreachable) on node n2
      interface unknown, MAC unknown, evidence announced
      netns cni-web-1, pod UID u-web-1
      first seen 1999-12-31 23:59:00.000 (60s ago), last seen 2.0s ago

What happened:
  23:59:41.000 confirmed: 2 live holders answered both rounds 1.0 s apart
`)
		// Times of another day have the day.
		e.Stories[0].Bindings = nil
		gone := holder("n2", "web-2", "10.0.0.1", 30*time.Hour)
		gone.LastSeen = ago(25 * time.Hour)
		e.Stories[0].Former = []document.Binding{near, gone}
		e.Stories[0].Notes = append([]document.Note{{At: ago(26 * time.Hour), Node: "n1", Text: "first seen: announced on vethweb-1"}}, e.Stories[0].Notes...)
		printed(t, func(p *Printer) { p.Explanation(e) }, `
10.0.0.1 in network default on node n1
Verdict: two live holders answered both rounds 1.0 s apart: a conflict.

Holders, the oldest first:
  none now

Who had it before, the last one first:
  shop/web-0 on node n1, interface vethweb-0: 23:00:00.000 to 23:59:58.000 (2.0s
    ago)
  shop/web-2 on node n2, interface vethweb-2: Dec 30 18:00:00.000 to Dec 30
    23:00:00.000 (25h ago)

What happened:
  Dec 30 22:00:00.000 first seen: announced on vethweb-1
  Dec 31 23:59:41.000 confirmed: 2 live holders answered both rounds 1.0 s apart
`)
		e.Stories = []document.Story{{
			Network: "default", IP: netip.MustParseAddr("10.0.0.1"), Nodes: []string{"n1", "n2"}, Verdict: "one live holder: not a conflict",
			Verdicts: []document.Verdict{{Nodes: []string{"n1"}, Verdict: "one live holder: not a conflict"}, {Nodes: []string{"n2"}, Verdict: "no live holder: not a conflict"}},
		}}
		printed(t, func(p *Printer) { p.Explanation(e) }, `
10.0.0.1 in network default on nodes n1, n2
Verdict: one live holder: not a conflict.
  n1: one live holder: not a conflict.
  n2: no live holder: not a conflict.

Holders, the oldest first:
  none now
`)
		e.Stories, e.Asked = nil, 5
		printed(t, func(p *Printer) { p.Explanation(e) }, "10.0.0.1 was not seen on any of 5 nodes.\n")
	})
}

// Each node's books are a part of their own.
func TestPrintRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, far := holder("n1", "web-0", "10.0.0.1", time.Hour), holder("n2", "web-1", "10.0.0.1", time.Minute)
		near.Given, far.Given = detector.GivenYes, detector.GivenNo
		e := document.Explanation{Stories: []document.Story{{Bindings: []document.Binding{near, far}}}, Books: []document.Book{
			{Node: "n1", Kind: "host-local", CNINetwork: "pods", Range: "10.0.0.1-10.0.0.254"},
		}}
		printed(t, func(p *Printer) { stories{p}.records(say.OnRecord(e)) }, `

Books of node n1:
  shop/web-0 was given the address by a network plugin
  host-local, network pods: not reserved, although it gives out
    10.0.0.1-10.0.0.254

Books of node n2:
  shop/web-1 was not given the address by any network plugin
`)
	})
}

// Notes have the boots of nodes that have one name, also of one that has only holders.
func TestNotesOfNamesakes(t *testing.T) {
	const bootA, bootB = "aaaaaaaa-1", "bbbbbbbb-2"
	on := func(node, boot string) *document.Holder {
		return &document.Holder{Node: node, BootID: boot, Netns: "cni-" + boot[:1]}
	}
	story := document.Story{Nodes: []string{"n1 (boot aaaaaaaa)", "n1 (boot bbbbbbbb)", "n2"}, Notes: []document.Note{
		{Node: "n1", BootID: bootA, Holder: on("n1", bootA), Text: "first seen"},
		{Node: "n1", BootID: bootA, Holder: on("n1", bootB), Text: "answered"},
		{Node: "n2", BootID: "c", Text: "confirmed"},
	}}
	want := []string{"[n1 (boot aaaaaaaa)] cni-a: first seen", "[n1 (boot aaaaaaaa)] cni-b on n1 (boot bbbbbbbb): answered", "[n2] confirmed"}
	if got := Notes(story); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	story.Bindings = []document.Binding{{Holder: *on("n1", bootB)}}
	story.Notes, want = slices.Delete(story.Notes, 1, 2), slices.Delete(want, 1, 2)
	if got := Notes(story); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Where nodes send packets to an address, and which of them diverts these.
func TestPrintRoutes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ip := netip.MustParseAddr("10.0.0.1")
		local := netip.PrefixFrom(ip, 32)
		e := document.Explanation{
			IP: ip, Coverage: document.Coverage{Asked: 3},
			Routes: []document.Route{
				{Node: "n1", To: document.ToSelf, Device: "docker0", Prefix: local},
				{Node: "n2", To: document.ToNode, ToNode: "n3"},
				{Node: "n4", To: document.ToAway, Device: "tun0", Proxy: "eth0"},
			},
			Findings: []document.Finding{{
				Kind: document.Diverted, IP: ip, Holder: document.Holder{Node: "n1", Pod: &document.Pod{Namespace: "shop", Name: "web-0"}}, HeldBy: "n3",
				End: document.EndsAtSelf, Device: "docker0", Route: local, Table: 255, Protocol: "kernel",
			}},
		}
		printed(t, func(p *Printer) { p.Explanation(e) }, `10.0.0.1 was not seen on any of 3 nodes.

Packets to it go:
  from n1 to itself, by 10.0.0.1/32 on docker0
  from n2 to node n3
  from n4 off the node by tun0; it answers for the address on eth0

What to do:
Node n1 takes packets to 10.0.0.1 for its own, by the route 10.0.0.1/32 of table
  local (proto kernel) on docker0. shop/web-0 on node n3 has the address, and
  does not get them.
  - Look what the node has, on node n1:
    ip route show table local 10.0.0.1/32
  - If shop/web-0 on node n3 is right: Give docker0 another subnet, outside of
    the pods' ranges: "bip" and "default-address-pools" in Docker's
    /etc/docker/daemon.json, and restart Docker, on node n1.
`)
	})
}
