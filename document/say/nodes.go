package say

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/dupip/dupip/document"
)

// manager describes a program that gives an address to one node after another: why two nodes have it, and how it is stopped on one of them.
type manager struct {
	why  string
	look document.Step // on which node the address should be
	stop string
}

var managers = map[string]manager{
	"keepalived": {
		why: "the two do not hear each other (VRRP is IP protocol 112 to 224.0.0.18 or ff02::12), or keepalived hangs on one of them",
		look: document.Step{
			Text: "Look in keepalived's log there whether it is master, and why: its unit's, or its container's. VRRP has to pass between the nodes", Command: "journalctl -u keepalived -n 20 --no-pager", Cuts: "nothing",
		},
		stop: "systemctl stop keepalived",
	},
	"kube-vip": {
		why:  "kube-vip was killed on the node that had it before, or hangs there, and another node got its lease",
		look: document.Step{Text: "Look who holds kube-vip's lease: that node should have the address", Command: "kubectl get leases -A", Cuts: "nothing"},
	},
	"pacemakerd": {
		why:  "the cluster of Pacemaker is split, and nothing fences nodes",
		look: document.Step{Text: "Look on each node what Pacemaker knows of the others", Command: "crm_mon -1", Cuts: "nothing"},
	},
}

// twoNodes says what follows if two nodes have one address for themselves, and why they probably have it.
func (v *voice) twoNodes() string {
	hosts := v.with(document.Open)
	text := v.say(2, "%s [have|had] it for themselves, and each [hears|heard] the other answer for it on the segment that joins them: who asks there [gets|got] one or the other.", v.list(hosts))
	name, m := v.managerOf(hosts)
	if name == "" {
		return text + " It was set by hand or by the configuration of both, or one of them is a copy of the other."
	}
	text += fmt.Sprintf(" %s probably gave it to them", capital(name))
	if m.why != "" && !v.past {
		text += ": " + m.why
	}
	return text + "."
}

// managerOf returns the program that has given the address to a holder.
func (v *voice) managerOf(hosts []int) (name string, m manager) {
	for _, n := range hosts {
		if name = machine(v.c.Holders[n]).Manager; name != "" {
			return name, managers[name]
		}
	}
	return "", manager{}
}

// twoNodesSteps find out which node should have the address, and take it from the others.
func (v *voice) twoNodesSteps() (list []document.Step) {
	hosts := v.with(document.Open)
	name, m := v.managerOf(hosts)
	switch {
	case m.stop != "": // it runs on the nodes
		for _, n := range atMost(v, hosts, maxFlushes) {
			list = append(list, v.on(n, m.look))
		}
	case m.look.Command != "":
		list = append(list, m.look)
	default:
		list = append(list, document.Step{Text: "Find out which of them should have it: by their configuration, or by what gives it to one of them"})
	}
	for _, n := range atMost(v, hosts, maxFlushes) {
		unless := fmt.Sprintf("If %s should not have it", v.names[n])
		if m.stop != "" {
			list = append(list, v.on(n, document.Step{
				If: unless, Text: "Stop " + name + " there, its unit or its container, until the two hear each other again: it would take the address back", Command: m.stop, Cuts: "all that " + name + " does on that node",
			}))
		}
		s := v.fromNode(n, false)
		switch own := machine(v.c.Holders[n]); {
		case own.Device == "":
			s = v.askOwn(n)
		case name == "" && (own.Dynamic || !own.Prefix.IsSingleIP()):
			s = v.on(n, document.Step{Text: "Give the node another address in the configuration of its network, from its console: perhaps it is reached by this one only"})
		}
		s.If = unless
		if m.stop != "" {
			s.If += " and still has it"
		}
		list = append(list, s)
	}
	return append(list, document.Step{If: "If you cannot find out", Text: "Take it from none of them, and ask those who run the nodes"})
}

// onTwoNodes says what a finding about an address of two nodes means.
func onTwoNodes(f document.Finding) (text string, steps []document.Step) {
	if f.Netns != hostNetns {
		return onTwoSegments(f)
	}
	on := func(s document.Step) { s.Node = f.Node; steps = append(steps, s) }
	take := document.Step{
		Text: fmt.Sprintf("Take it from %s there", f.Interface), Cuts: "what reaches that node by " + f.IP.String(),
		Command: takeFromNode(document.Machine{Device: f.Interface, Prefix: f.Prefix}, false),
	}
	if take.Command == "" {
		take.Text, take.Cuts = take.Text+". There is no command: its device or subnet is not known, or has a name that is not safe for a shell", ""
	}
	if f.Gateway {
		text = fmt.Sprintf("Node %s has %s on %s, and node %s has it, too: it is the gateway of pods on one of them at least. If both give out one range, their pods collide; "+
			"if not, packets of one node to pods of the other one stay on its own bridge.", f.Node, f.IP, f.Interface, f.HeldBy)
		steps = []document.Step{{Text: "Look which ranges the API server has for each node", Command: readRanges, Cuts: "nothing"}}
		switch {
		case !f.Prefix.IsValid():
			steps = append(steps, document.Step{Text: fmt.Sprintf("If it is the own address of node %s, give the pods of node %s another range", f.Node, f.HeldBy)})
		case f.Pods > 0:
			steps = append(steps,
				document.Step{Text: fmt.Sprintf("Leave it on node %s: its pods have addresses of %s (%d of them). The finding of node %s says what to do there", f.Node, f.Prefix.Masked(), f.Pods, f.HeldBy)},
				document.Step{If: fmt.Sprintf("If node %s has pods of that range, too", f.HeldBy), Text: "Give one of the nodes another range before it gets more pods"},
			)
		default:
			take.If = fmt.Sprintf("If no pod of node %s is to get an address of %s, by these ranges or by the files in /etc/cni/net.d there", f.Node, f.Prefix.Masked())
			take.Cuts = "pods of that range on that node, of which none was seen"
			on(take)
		}
		return text, append(steps, meantTwice(f))
	}
	text = fmt.Sprintf("Node %s has %s on %s, and node %s has it, too. They were not heard answering for it on one segment: either it is divided, and clients of each part get another node, "+
		"or one of them does not answer, or it is meant so.", f.Node, f.IP, f.Interface, f.HeldBy)
	on(document.Step{Text: "Look how the node has it", Command: readNode(f.IP), Cuts: "nothing"})
	take.If = fmt.Sprintf("If node %s should not have it", f.Node)
	if f.Prefix.IsSingleIP() { // else perhaps the node is reached by it only
		on(take)
	}
	return text, append(steps, meantTwice(f))
}

// hostNetns is what the netns of the node itself is called.
const hostNetns = "host"

// onTwoSegments says what a finding about an address of two pods means that are on segments of which nobody knows whether they are one.
func onTwoSegments(f document.Finding) (text string, steps []document.Step) {
	device := cmp.Or(f.Bridge, "its device")
	text = fmt.Sprintf("%s on node %s has %s behind %s, and so has a pod of node %s. Neither was heard answering on the other's segment: either these are two segments, or one of the pods does not answer.",
		cmp.Or(f.Pod.String(), "netns "+f.Netns), f.Node, f.IP, device, f.HeldBy)
	if !plainDevice(f.Bridge) {
		return text, []document.Step{{Text: "Declare in the configuration whether the nodes are on one segment there"}}
	}
	declare := func(scope string) string { // each segment is a network of its own
		return fmt.Sprintf("networks:\n  - {name: %q, scope: %s, match: {bridges: [%q]}}\n", strings.ReplaceAll(f.Bridge, ".", "-"), scope, f.Bridge)
	}
	const file = "the configuration (--config)"
	return text, []document.Step{
		{If: fmt.Sprintf("If %s of the nodes is one segment", device), Text: "Add this to the configuration of all nodes, below \"networks\" if it has that: then a duplicate there is a conflict", Command: declare("cluster"), File: file},
		{If: "If each node has a segment of its own there", Text: "Nothing is wrong. Add this to the configuration of all nodes, below \"networks\" if it has that", Command: declare("node"), File: file},
	}
}

// meantTwice declares that several nodes are meant to have an address.
func meantTwice(f document.Finding) document.Step {
	return document.Step{If: "If it is meant so (anycast, a distributed gateway)", Text: fmt.Sprintf("List %s under \"shared\" in the configuration of all nodes", f.IP)}
}

// stranger says what it means that somebody else is heard with an address.
func stranger(f document.Finding) (text string, steps []document.Step) {
	holder, who := cmp.Or(f.Pod.String(), "node "+f.Node), fmt.Sprintf("The machine with the MAC %s, which is not known to be a node's,", f.By)
	if f.Pod != nil {
		holder += " on node " + f.Node
	}
	if f.HeldBy != "" {
		who = fmt.Sprintf("Node %s, by its MAC %s,", f.HeldBy, f.By)
	}
	text = fmt.Sprintf("%s announces %s or answers for it on the segment that joins the nodes, and %s has it: who asks there gets one or the other.", who, f.IP, holder)
	steps = []document.Step{{Text: fmt.Sprintf("Look on other nodes which MAC they have for it: those that have %s reach the wrong one", f.By), Command: ifPlain("ip neigh show to ", f.IP), Cuts: "nothing"}}
	if f.HeldBy != "" {
		return text, append(steps, document.Step{
			Text: "Look by what the node answers: an address on any device, a proxy entry, or proxy_arp", Node: f.HeldBy,
			Command: ifPlain("ip addr show to "+f.IP.String()+"; ip neigh show proxy; ip route get ", f.IP), Cuts: "nothing",
		})
	}
	return text, append(steps,
		document.Step{Text: fmt.Sprintf("Look in the tables of the switches behind which port %s is, or in the inventory of virtual machines", f.By)},
		document.Step{Text: "Give that machine another address. If it got it by DHCP, take the addresses of nodes and pods out of what DHCP gives out"},
	)
}
