package say

import (
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// holder is a pod on node n1, or a netns if name is empty.
func holder(name string, changes ...func(*document.Binding)) document.Binding {
	b := document.Binding{
		Network: "default", IP: ip, Evidence: detector.Announced, FirstSeen: noon,
		Holder: document.Holder{
			Node: "n1", BootID: boot("a"), Interface: "veth" + name, Ifindex: 7, Netns: "cni-" + name, NetnsCookie: 9,
		},
		Facts: &document.Facts{Behind: document.BehindRunning, CNINetwork: "pods", NetnsPath: "/run/netns/cni-" + name, NetnsInode: 4026531840},
	}
	if name != "" {
		b.Pod = &document.Pod{
			Namespace: "shop", Name: name, UID: fmt.Sprintf("%08x-2222-4333-8444-555555555555", len(name)), Sandbox: fmt.Sprintf("%013x", 0xabc+len(name)), CreatedAt: noon,
		}
	}
	for _, change := range changes {
		change(&b)
	}
	return b
}

type change = func(*document.Binding)

func node(letter string) change {
	return func(b *document.Binding) {
		b.Node, b.BootID = fmt.Sprint("n", strings.Index(" abcdefgh", letter)), boot(letter)
	}
}

func later(seconds int) change {
	return func(b *document.Binding) { b.FirstSeen = noon.Add(time.Duration(seconds) * time.Second) }
}
func given(g detector.Given) change    { return func(b *document.Binding) { b.Given = g } }
func gone(b *document.Binding)         { b.Gone = true }
func foundAtStart(b *document.Binding) { b.FoundAtStart = true }
func dead(behind document.Behind) change {
	return func(b *document.Binding) { b.Facts.Behind = behind }
}
func noPod(b *document.Binding) { b.Pod = nil }
func otherAddress(b *document.Binding) {
	b.Facts.GivenOthers = []netip.Addr{netip.MustParseAddr("10.0.0.7")}
}
func noFacts(b *document.Binding)     { b.Facts = nil }
func unreachable(b *document.Binding) { b.Unreachable = true }
func unseen(b *document.Binding) {
	b.Pod, b.Netns, b.NetnsCookie, b.Interface, b.Facts = nil, "", 0, "eth2", nil
}

func process(b *document.Binding) {
	b.Pod, b.Netns, b.Interface, b.Ifindex = nil, "net:[4026531840]", "", 0
	b.Facts.NetnsPath, b.Facts.Process = "", &document.Process{PID: 4711, Command: "nginx"}
}

// container makes the holder one of an engine.
func container(engine string) change {
	return func(b *document.Binding) {
		b.Pod = &document.Pod{Name: b.Pod.Name, UID: fmt.Sprintf("%064x", len(b.Pod.Name)), Engine: engine}
		b.Netns, b.Facts.NetnsPath, b.Facts.Process = "net:[4026531840]", "", &document.Process{PID: 4711, Command: "nginx", Unit: ""}
		b.Facts.Behind, b.Facts.CNINetwork = document.BehindAlive, ""
	}
}

func host(device string, dynamic bool, since time.Time) change {
	return func(b *document.Binding) {
		b.Pod, b.Evidence, b.Netns, b.Interface = nil, detector.Host, "host", device
		b.Facts = &document.Facts{Machine: &document.Machine{Device: device, Prefix: netip.PrefixFrom(ip, 24), Dynamic: dynamic, Since: since}}
	}
}

func book(letter, reservedFor string, unreserved int) document.Book {
	b := document.Book{
		Node: fmt.Sprint("n", strings.Index(" abcdefgh", letter)), BootID: boot(letter), Kind: "host-local", CNINetwork: "pods", Covers: true,
		Range: "10.0.0.1-10.0.0.254", Unreserved: unreserved,
	}
	if reservedFor != "" {
		b.Reservation = &document.Reservation{Sandbox: "0000000000abc", Pod: &document.Pod{Namespace: "shop", Name: reservedFor}}
	}
	return b
}

// judged is a conflict of these holders with a judgement: verdicts are "index verdict reason".
func judged(cause, confidence, verdicts string, holders ...document.Binding) document.Conflict {
	c := document.Conflict{Network: "default", IP: ip, State: detector.Confirmed, Holders: holders, Judgement: &document.Judgement{Cause: cause, Confidence: confidence}}
	for v := range strings.SplitSeq(verdicts, ", ") {
		var j document.Judged
		fmt.Sscan(v, &j.Holder, &j.Verdict, &j.Reason)
		c.Judgement.Holders = append(c.Judgement.Holders, j)
	}
	return c
}

func with(c document.Conflict, change func(*document.Conflict)) document.Conflict {
	change(&c)
	return c
}

func route(letter, to string, n int, device string) document.Route {
	return document.Route{Node: fmt.Sprint("n", strings.Index(" abcdefgh", letter)), BootID: boot(letter), To: to, Holder: &n, Device: device}
}

const (
	yes, no  = detector.GivenYes, detector.GivenNo
	certain  = document.Certain
	likely   = document.Likely
	open     = document.Undecided
	bothOpen = "0 open, 1 open"
)

type situation struct {
	name string
	c    document.Conflict
}

// situations are one for each cause and reason, and what differs in words.
func situations() []situation {
	two := func(cause string) document.Conflict {
		return judged(cause, open, bothOpen, holder("web-0", given(yes)), holder("db-11", given(yes), node("b"), later(12)))
	}
	namesake := func(b *document.Binding) { b.Node, b.BootID = "n1", boot("b") }
	stopped := judged(document.CauseLeftOver, certain, "0 remove stopped, 1 keep given",
		holder("cart-old", given(yes), dead(document.BehindStopped)), holder("cart-new", given(yes), later(60)))
	stopped.Routes = []document.Route{route("a", document.ToHolder, 0, "cni0"), route("b", document.ToNode, 0, "")}
	stopped.Routes[1].Holder, stopped.Routes[1].ToNode, stopped.Routes[1].ToBootID = nil, "n1", boot("a")
	byHand := judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given",
		holder("victim", given(no), later(60), otherAddress),
		holder("api", given(yes), node("b")))
	byHand.Judgement.Holders[0].By = "n2"
	lost := judged(document.CauseLost, certain, "0 remove not-reserved, 1 keep reserved", holder("web-0", given(yes)), holder("web-11", given(yes), later(3)))
	lost.Books = []document.Book{book("a", "web-11", 8)}
	unrouted := judged(document.CauseLost, certain, "0 remove not-reserved, 1 keep reserved", holder("web-0", given(yes)), holder("web-11", given(yes), later(3)))
	unrouted.Books = []document.Book{book("a", "", 1), book("b", "", 8)}
	unrouted.Routes = []document.Route{route("a", document.ToHolder, 0, "vethweb-0"), route("b", document.ToHolder, 0, "vethweb-0")}
	shared := with(two(document.CauseSharedRange), func(c *document.Conflict) {
		c.Shared, c.Books = 7, []document.Book{book("a", "", 0), book("b", "", 0)}
		c.Judgement.Nodes = []string{"n1/" + boot("a"), "n2/" + boot("b")}
	})
	apart := func(changes ...change) document.Conflict {
		c := judged(document.CauseAway, open, bothOpen, holder("web-0", changes...), holder("db-11", given(yes), node("b"), later(12)))
		c.Judgement.Away = &document.Away{Elder: 0, Newer: 1, Nodes: []string{"n1", "n2"}, From: noon.Add(-time.Minute), Until: noon.Add(time.Hour)}
		return c
	}
	resolved := func(c document.Conflict) document.Conflict {
		c.Judgement = new(*c.Judgement)
		c.State, c.ResolvedAt = detector.Resolved, noon.Add(time.Hour)
		return c
	}
	nodes := func(c document.Conflict, ids ...string) document.Conflict {
		c.Judgement.Nodes = ids
		return c
	}
	clone := holder("web-0", node("b"))
	onNode := judged(document.CauseNodeAddress, certain, "1 remove on-node, 0 keep node", holder("", host("eth0", false, noon.Add(-time.Hour))), holder("web-0", given(yes)))
	crowded := judged(document.CauseUnknown, open, "0 open, 1 open", holder("web-0", given(yes)), holder("", host("eth0", false, noon), later(9), foundAtStart))
	onTwo := func(manager string, bits int) document.Conflict {
		has := func(b *document.Binding) {
			b.Facts.Machine.Prefix, b.Facts.Machine.Manager = netip.PrefixFrom(ip, bits), manager
		}
		return nodes(judged(document.CauseTwoNodes, open, bothOpen, holder("", host("eth0", false, noon), has), holder("", host("bond0", false, noon), has, node("b"), later(9))),
			"n1/"+boot("a"), "n2/"+boot("b"))
	}
	list := []situation{
		{"left over: the sandbox has stopped", stopped},
		{"A. left over: the runtime has forgotten it", judged(document.CauseLeftOver, certain, "0 remove forgotten, 1 keep given",
			holder("", noPod, dead(document.BehindForgotten), func(b *document.Binding) { b.Facts.NetnsPath, b.Netns = "/run/netns/cni-1f", "cni-1f" }), holder("slurmdbd-new", given(yes), later(60)))},
		{"left over: replaced", judged(document.CauseLeftOver, certain, "0 remove replaced, 1 keep last", holder("web-0"), holder("web-0", later(60), func(b *document.Binding) { b.Netns = "cni-2" }))},
		{"two left over, two live ones that are not decided", judged(document.CauseUnknown, open, "0 remove stopped, 1 remove stopped, 2 open, 3 open",
			holder("a", dead(document.BehindStopped)), holder("bb", dead(document.BehindStopped)), holder("ccc"), holder("dddd", node("b")))},
		{"D. not given, as another node says", byHand},
		{"I. not given: a process without a name", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given", holder("", process, given(no)), holder("api", given(yes)))},
		{"nobody finds the netns of one", judged(document.CauseByHand, certain, "1 remove not-given, 0 keep given", holder("web"), holder("", unseen, later(90)))},
		{"not given: a netns without a pod", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given", holder("lab", noPod, given(no)), holder("api", given(yes)))},
		{"F. the reservation is lost, and the store wiped", lost},
		{"the node has no route to the one that stays", unrouted},
		{"nobody was given it", judged(document.CauseByHand, likely, "1 remove newer, 0 keep older", holder("a", given(no)), holder("bb", given(no), later(40), func(b *document.Binding) { b.Evidence = detector.Configured }))},
		{"a pod that was given the address of a node", onNode},
		{"a pod took the address of a node", judged(document.CauseNodeAddress, certain, "1 remove on-node, 0 keep node", holder("", host("eth0", true, noon.Add(-time.Hour))), holder("web-0", given(no)))},
		{"C. a node got the address of a pod by DHCP", judged(document.CauseNodeAddress, certain, "1 remove lifetime, 0 keep given", holder("web-0", given(yes)), holder("", host("eth1", true, noon.Add(4*time.Second)), later(4)))},
		{"a node and a pod, and it is not known which was first", judged(document.CauseNodeAddress, open, bothOpen, holder("web-0"), holder("", host("eth1", true, time.Time{}), func(b *document.Binding) { b.Facts.Machine = nil }))},
		{"E. two nodes give out one range", shared},
		{"two networks of a node give out one range", nodes(judged(document.CauseSharedRange, open, bothOpen, holder("web-0", given(yes)), holder("db-11", given(yes))), "n1/"+boot("a"))},
		{"two machines of one name", nodes(judged(document.CauseNamesakes, open, bothOpen, holder("web-0"), holder("db-11", namesake)), "n1/"+boot("a"), "n1/"+boot("b"))},
		{"two nodes run one pod", nodes(judged(document.CauseClone, open, bothOpen, holder("web-0"), clone), "n1/"+boot("a"), "n2/"+boot("b"))},
		{"a node does not answer", judged(document.CauseUnreachable, open, bothOpen, holder("web-0"), holder("db-11", node("b"), unreachable))},
		{"one has gone", judged(document.CauseEnding, certain, "0 remove gone, 1 keep last", holder("web-0", gone), holder("db-11"))},
		{"K. facts are on their way", judged(document.CauseComing, open, bothOpen, holder("web-0"), holder("db-11", node("b"), noFacts))},
		{"two machines have a node's name, perhaps for a moment", nodes(judged(document.CauseComing, open, bothOpen, holder("web-0"), holder("db-11", node("b"))), "b/"+boot("b"))},
		{"the nodes had lost each other", apart(given(yes))},
		{"G. the facts do not decide", two(document.CauseUnknown)},
		{"each book has its own pod", with(two(document.CauseUnknown), func(c *document.Conflict) {
			c.Books = []document.Book{book("a", "web-0", 0), book("b", "", 0)}
		})},
		{"of three, one by one", judged(document.CauseUnknown, open, "0 open, 1 open, 2 open", holder("web-0", given(yes)), holder("db-11"), holder("", process, given(no)))},
		{"bridges that may be local", judged(document.CauseUnknown, open, bothOpen,
			holder("", func(b *document.Binding) { b.Bridge, b.Facts = "docker1", nil }), holder("", node("b"), func(b *document.Binding) { b.Bridge, b.Facts = "docker1", nil }))},
		{"a name that is not safe for a shell", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given",
			holder("web;reboot", given(no), func(b *document.Binding) { b.Facts = nil; b.Pod.Sandbox = "" }), holder("api", given(yes)))},
	}
	for n := range 5 {
		cni := book("a", "", 0)
		cni.CNINetwork = fmt.Sprint("net", n)
		crowded.Books = append(crowded.Books, cni)
	}
	flushed := judged(document.CauseLeftOver, certain, "0 remove stopped, 1 remove stopped, 2 remove stopped, 3 keep last",
		holder("a", dead(document.BehindStopped), func(b *document.Binding) { b.Facts.NetnsPath = "" }),
		holder("bb", dead(document.BehindStopped), func(b *document.Binding) { b.Pod.Sandbox = "" }),
		holder("ccc", dead(document.BehindStopped), func(b *document.Binding) { b.Pod.Sandbox, b.Facts.NetnsPath, b.Interface = "", "", "" }), holder("dddd"))
	flushed.Routes = []document.Route{
		route("a", document.ToHolder, 3, "cni0"), route("b", document.ToHolder, 0, "br;reboot"), route("c", document.ToHolder, 2, "cni0"), route("d", document.ToHolder, 1, "vethbb"),
	}
	for _, letter := range []string{"e", "f", "g", "h", "a"} {
		flushed.Routes = append(flushed.Routes, route(letter, document.ToHolder, 0, "cni0"))
	}
	list = append(list, []situation{
		{"three left over on one node, none of which \"ip netns\" knows", judged(document.CauseLeftOver, certain, "0 remove forgotten, 1 remove forgotten, 2 remove forgotten, 3 keep last",
			holder("a", dead(document.BehindForgotten), func(b *document.Binding) { b.Facts.NetnsPath = "/run/docker/netns/a" }),
			holder("bb", dead(document.BehindForgotten), func(b *document.Binding) { b.Facts.NetnsPath = "" }),
			holder("ccc", dead(document.BehindForgotten), func(b *document.Binding) { b.Facts.NetnsPath, b.Interface = "", "" }), holder("dddd"))},
		{"stopped: the netns of one is not known, the sandbox of another one, and of the third neither; many nodes send over bridges", flushed},
		{"a pod has the address of a node, and it is not known whether it was given it", judged(document.CauseNodeAddress, certain, "1 remove on-node, 0 keep node",
			holder("", host("eth0", false, noon)), holder("web-0"))},
		{"the reservation is lost, and the store of another node wiped", with(lost, func(c *document.Conflict) {
			c.Books = []document.Book{book("a", "web-11", wiped-1), book("b", "", 8)}
		})},
		{"two nodes give out one range: books without a range, and of another node", with(shared, func(c *document.Conflict) {
			c.Shared = document.FewShared
			c.Books = []document.Book{book("a", "", 0), {Node: "n2", BootID: boot("b"), Kind: "calico"}, book("c", "", 0)}
		})},
		{"a node does not answer, and has two holders; one of another node has gone", judged(document.CauseUnreachable, open, "0 open, 1 open, 2 open, 3 remove gone",
			holder("web-0"), holder("db-11", node("b"), unreachable), holder("a", node("b"), unreachable), holder("bb", node("c"), unreachable, gone))},
		{"not given: the UID of one is not known, the sandbox of another one, the netns of the third", judged(document.CauseByHand, certain,
			"0 remove not-given, 1 remove not-given, 2 remove not-given, 3 keep given", holder("a", given(no), otherAddress, func(b *document.Binding) { b.Pod.UID = "" }),
			holder("bb", given(no), otherAddress, func(b *document.Binding) { b.Pod.Sandbox = "" }), holder("lab", given(no), noPod, noFacts), holder("api", given(yes)))},
		{"the nodes had lost each other, and the sandbox of the first pod is not known", apart(func(b *document.Binding) { b.Pod.Sandbox = "" })},
		{"the nodes had lost each other, and the node of the first pod has not told of it", apart(noFacts)},
		{"the nodes had lost each other, and it is not known when", two(document.CauseAway)},
		{"not decided: a book of the whole cluster has only the node", with(judged(document.CauseUnknown, open, bothOpen, holder("web-0"), holder("db-11", node("b"))), func(c *document.Conflict) {
			c.Books = []document.Book{{Kind: "azure", Covers: true, Reservation: &document.Reservation{Node: "n2"}}}
		})},
		{"a container that its engine did not give the address", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given",
			holder("db", container("docker"), given(no), otherAddress), holder("web", container("docker"), given(yes)))},
		{"containers of which nobody was given the address", judged(document.CauseByHand, likely, "1 remove newer, 0 keep older",
			holder("a", container("podman"), given(no)), holder("bb", container("podman"), given(no), later(40)))},
		{"a container and a pod", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given",
			holder("db", container("docker"), given(no)), holder("api", given(yes)))},
		{"not decided: containers of several engines, one without a name", judged(document.CauseUnknown, open, "0 open, 1 open, 2 open",
			holder("web", container("docker"), given(yes)), holder("db-11", container("lxc"), node("b")),
			holder("0123456789ab", container("rootless podman"), node("c"), func(b *document.Binding) {
				b.Pod.UID, b.Facts.Process = strings.Repeat("0123456789ab0123", 4), &document.Process{PID: 4711, Command: "nginx"}
			}))},
		{"two nodes give out one range to containers", nodes(with(judged(document.CauseSharedRange, open, bothOpen,
			holder("web", container("docker"), given(yes)), holder("db-11", container("docker"), given(yes), node("b"))), func(c *document.Conflict) { c.Shared = 7 }),
			"n1/"+boot("a"), "n2/"+boot("b"))},
		{"two machines run one container", nodes(judged(document.CauseClone, open, bothOpen,
			holder("web", container("docker")), holder("web", container("docker"), node("b"))), "n1/"+boot("a"), "n2/"+boot("b"))},
		{"a task of Nomad", judged(document.CauseByHand, certain, "0 remove not-given, 1 keep given",
			holder("db", container("nomad"), given(no)), holder("web", container("docker"), given(yes)))},
		{"not decided: containers on bridges that may be local", judged(document.CauseUnknown, open, bothOpen,
			holder("a", container("docker"), given(yes), func(b *document.Binding) { b.Bridge = "shop" }),
			holder("bb", container("docker"), given(yes), node("b"), func(b *document.Binding) { b.Bridge = "shop" }))},
		{"two nodes have a virtual address of keepalived", onTwo("keepalived", 32)},
		{"two nodes have a virtual address of kube-vip", onTwo("kube-vip", 32)},
		{"two nodes have a virtual address, and nobody knows of whom", onTwo("", 32)},
		{"two nodes were installed with one address", onTwo("", 24)},
		{"two nodes have one address, and one has not told how", with(onTwo("", 32), func(c *document.Conflict) { c.Holders[1].Facts = nil })},
		{"not decided: a node is among them, more books than are listed, and the last one was found at the start", crowded},
	}...)
	for _, past := range []situation{
		{"left over", stopped},
		{"not given", byHand},
		{"the reservation was lost", lost},
		{"one range", shared},
		{"address of a node", onNode},
		{"a virtual address", onTwo("keepalived", 32)},
		{"two that were not decided", two(document.CauseUnknown)},
		{"nobody was given it", with(judged(document.CauseByHand, likely, "1 remove newer, 0 keep older",
			holder("a", given(no)), holder("bb", given(no), later(40), func(b *document.Binding) { b.Evidence = detector.Configured })), func(c *document.Conflict) {
			c.Routes = []document.Route{route("a", document.ToHolder, 0, "cni0")}
		})},
		{"one had gone", judged(document.CauseEnding, certain, "0 remove gone, 1 keep last", holder("web-0", gone), holder("db-11"))},
	} {
		list = append(list, situation{"over: " + past.name, resolved(past.c)})
	}
	return list
}
