package say

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

const (
	// maxFlushes bounds the commands of which there is one for each node with a stale neighbour entry.
	maxFlushes = 4
	// maxAsked bounds the steps of which there is one for each node or holder.
	maxAsked = 8
)

// steps are what to do, in this order.
func (v *voice) steps() (list []document.Step) {
	if list = v.all(); v.more {
		list = append(list, lookAgain)
	}
	return list
}

// all are the steps for as many holders and nodes as have some.
func (v *voice) all() (list []document.Step) {
	if v.isAboutMachines() {
		return v.machineSteps()
	}
	list = v.first()
	var removed []int
	for _, j := range atMost(v, v.removals(), maxAsked) {
		removed = append(removed, j.Holder)
		list = append(list, v.removal(j)...)
	}
	list = append(append(list, v.repairs()...), v.flushes(removed)...)
	if stay := v.with(document.Keep); len(stay) == 1 {
		list = append(list, v.reroutes(removed, stay[0])...)
	}
	if len(v.with(document.Remove, document.ReasonLifetime)) > 0 {
		list = append(list, document.Step{Text: "Take the range of the pods out of what " + v.dynamic() + " gives out"})
	}
	return append(list, v.question()...)
}

// removals are the holders that have to go and are not gone.
func (v *voice) removals() (list []document.Judged) {
	for _, j := range v.judged {
		if j.Verdict == document.Remove && j.Reason != document.ReasonGone {
			list = append(list, j)
		}
	}
	return list
}

// lookAgain follows steps that are not for all.
var lookAgain = document.Step{Text: "Look again: then there are steps for the others"}

// atMost returns the first n of those that each have a step, and notes whether there are more.
func atMost[E any](v *voice, all []E, n int) []E {
	v.more = v.more || len(all) > n
	return all[:min(len(all), n)]
}

// isAboutMachines reports whether one of two machines should not run: then nothing else is done, because names do not tell them apart.
func (v *voice) isAboutMachines() bool {
	return v.c.Judgement.Cause == document.CauseNamesakes || v.c.Judgement.Cause == document.CauseClone
}

// why says in a step why a holder is removed.
func (v *voice) why(j document.Judged) string {
	if j.Reason == document.ReasonNotGiven {
		return ", which no " + v.giver(j.Holder) + " gave the address"
	}
	return because[j.Reason]
}

var because = map[string]string{
	document.ReasonStopped:     ", which is left over",
	document.ReasonForgotten:   ", which is left over",
	document.ReasonReplaced:    ", which is left over",
	document.ReasonNotReserved: ", which has lost its reservation",
	document.ReasonUnlisted:    ", which the API server does not have",
	document.ReasonNewer:       ", which came last",
	document.ReasonOnNode:      ", which has the address of a node",
}

// removal removes a holder that has to go.
func (v *voice) removal(j document.Judged) []document.Step {
	b, name, why := v.c.Holders[j.Holder], v.names[j.Holder], v.why(j)
	switch j.Reason {
	case document.ReasonLifetime:
		return []document.Step{v.fromNode(j.Holder, true)}
	case document.ReasonUnlisted: // the API server cannot delete it
		if removeSandbox(b.Pod) != "" {
			s := v.endSandbox(j.Holder, why)
			s.Cuts = "the pod " + b.Pod.String() + ", which comes back only if the kubelet has it in a file"
			return []document.Step{s}
		}
	case document.ReasonStopped, document.ReasonReplaced:
		// Not by the pod's UID: the pod itself may run, in a later sandbox.
		first := v.on(j.Holder, document.Step{Text: "Remove " + name + why, Command: removeSandbox(b.Pod), Cuts: "only the stopped sandbox " + pod(b).Sandbox})
		if j.Reason == document.ReasonReplaced {
			first.Cuts = "the sandbox " + pod(b).Sandbox + ", which ends; the later one runs on"
		}
		steps := slices.DeleteFunc([]document.Step{first, v.withoutPlugin(j)}, func(s document.Step) bool { return s.Command == "" })
		switch len(steps) {
		case 0:
			return []document.Step{v.byHand(j.Holder, why)}
		case 2:
			steps[1].If = "If that fails"
		}
		return steps
	case document.ReasonForgotten:
		s := v.withoutPlugin(j)
		if s.Command == "" {
			s = v.cut(j.Holder, why)
			s.Cuts = "only the interface " + b.Interface
		}
		if s.Command == "" {
			s = v.byHand(j.Holder, why)
		}
		return []document.Step{s}
	}
	steps := []document.Step{v.end(j.Holder, why)}
	switch {
	case deletePod(b.Pod) != "" && removeSandbox(b.Pod) != "": // the API server may have no such pod any more
		steps = append(steps, v.endSandbox(j.Holder, ""))
		steps[1].If = "If the answer is NotFound or Conflict, and this conflict goes on"
	case (b.Pod == nil || b.Pod.IsContainer()) && takeAddress(b.Facts, v.c.IP) != "":
		again := v.cut(j.Holder, "")
		if removeSandbox(b.Pod) != "" {
			again = v.endSandbox(j.Holder, "")
		}
		if again.If = "If it has the address again after that"; again.Command != "" {
			steps = append(steps, again)
		}
	}
	return steps
}

func (v *voice) endSandbox(n int, why string) document.Step {
	b := v.c.Holders[n]
	cuts := "the pod " + b.Pod.String() + ", which the kubelet starts again if it should run"
	if b.Pod.IsContainer() {
		cuts = b.Pod.String() + removals[b.Pod.Engine].cuts
	}
	return v.on(n, document.Step{Text: "Remove " + v.names[n] + why, Command: removeSandbox(b.Pod), Cuts: cuts})
}

func (v *voice) cut(n int, why string) document.Step {
	if why != "" {
		why += ","
	}
	return v.on(n, document.Step{
		Text: "Cut " + v.names[n] + why + " off the network", Command: cutOff(v.c.Holders[n]), Cuts: "all connections of " + v.names[n] + ", which runs on",
	})
}

// withoutPlugin removes the netns of a holder with nothing alive behind it, without the runtime and its plugin; or its address, if
// "ip netns" does not know it. A replaced holder may have processes: there it is the address.
func (v *voice) withoutPlugin(j document.Judged) document.Step {
	why := ", without the network plugin"
	if j.Reason == document.ReasonForgotten {
		why = v.why(j)
	}
	b, netns := v.c.Holders[j.Holder], v.names[j.Holder]
	if b.Pod != nil {
		netns = "the network namespace of " + netns
	}
	if command := removeNetns(b.Facts); command != "" && j.Reason != document.ReasonReplaced {
		return v.on(j.Holder, document.Step{
			Text: "Remove " + netns + why, Command: command,
			Cuts: "only that network namespace, in which nothing runs",
		})
	}
	return v.take(j.Holder, netns)
}

// take takes the address from a holder, or from its netns.
func (v *voice) take(n int, from string) document.Step {
	return v.on(n, document.Step{
		Text: "Take the address from " + from, Command: takeAddress(v.c.Holders[n].Facts, v.c.IP), Cuts: "the connections of " + v.names[n] + " that use " + v.c.IP.String(),
	})
}

// end ends a live holder: the pod if it has a UID, else its sandbox, else the address in its netns, else its interface. A container loses
// the address only, because nothing makes it again.
func (v *voice) end(n int, why string) document.Step {
	b, name := v.c.Holders[n], v.names[n]
	if command := deletePod(b.Pod); command != "" {
		return document.Step{Text: "Remove " + name + why, Command: command, Cuts: endsPod(b.Pod)}
	}
	if removeSandbox(b.Pod) != "" && !b.Pod.IsContainer() {
		return v.endSandbox(n, why)
	}
	if s := v.take(n, name+why); s.Command != "" {
		return s
	}
	if removeSandbox(b.Pod) != "" {
		return v.endSandbox(n, why)
	}
	if cutOff(b) != "" {
		s := v.cut(n, why)
		if b.NetnsCookie == 0 && b.Pod == nil { // nobody knows where it leads
			s.If = fmt.Sprintf("If %s leads into a pod, not out of the node (else put \"ignore: {interfaces: [%[1]s]}\" into the configuration)", b.Interface)
		}
		return s
	}
	return v.byHand(n, why)
}

// endsPod is what it cuts to delete a pod.
func endsPod(pod *document.Pod) string {
	return "the pod " + pod.String() + ", which ends; without a controller it does not come back"
}

// byHand says why there is no command.
func (v *voice) byHand(n int, why string) document.Step {
	b := v.c.Holders[n]
	text := "Remove " + v.names[n] + why + ". There is no command: "
	if unsafe(b) {
		text += "its name has characters that are not safe for a shell"
	} else {
		text += "too little is known of it"
	}
	if b.Interface != "" {
		text += ". Its interface on the node is " + b.Interface
	}
	return v.on(n, document.Step{Text: text})
}

// unsafe reports whether a holder has a name that makes no command although it is known.
func unsafe(b document.Binding) bool {
	f := cmp.Or(b.Facts, new(document.Facts))
	known := func(s string, isPlain func(string) bool) bool { return s != "" && !isPlain(s) }
	return !b.Pod.IsContainer() && (known(pod(b).Namespace, plainName) || known(pod(b).Name, plainName)) || known(pod(b).UID, plainUID) ||
		known(pod(b).Sandbox, plainSandbox) || known(b.Interface, plainDevice) || known(f.NetnsPath, plainPath)
}

func pod(b document.Binding) document.Pod { return *cmp.Or(b.Pod, new(document.Pod)) }

// on is a step on the node of a holder.
func (v *voice) on(n int, s document.Step) document.Step {
	return v.machine(s, v.nodeID(n))
}

// fromNode takes the address from a node; with lifetime, if it has one.
func (v *voice) fromNode(n int, lifetime bool) document.Step {
	b := v.c.Holders[n]
	m := machine(b)
	s := v.on(n, document.Step{
		Text: "Take the address from " + v.names[n], Command: takeFromNode(m, lifetime),
		Cuts: fmt.Sprintf("the connections of the node itself that use %s, perhaps your own: if you reach the node by it, use its console", v.c.IP),
	})
	if m.Device != "" {
		s.Text = fmt.Sprintf("Take the address from device %s of %s", m.Device, v.names[n])
	}
	if s.Command == "" {
		s.Text, s.Cuts = s.Text+". There is no command: its device is not known, or has a name that is not safe for a shell", ""
	}
	return s
}

// flushes are for the nodes whose next hop to a removed holder is a bridge, or another device than the holder's own.
func (v *voice) flushes(removed []int) (list []document.Step) {
	more := 0
	for _, r := range v.c.Routes {
		n := v.to(r)
		command := forget(v.c.IP, r.Device)
		if command == "" || !slices.Contains(removed, n) || !v.overBridge(r) || v.c.Holders[n].Interface == "" || r.Gateway.IsValid() {
			continue
		}
		if len(list) == maxFlushes {
			more++
			continue
		}
		list = append(list, v.machine(document.Step{
			Text:    fmt.Sprintf("Then let node %s ask again who has the address: until then it may send to the removed one", v.nodeName(r.NodeID())),
			Command: command, Cuts: "nothing",
		}, r.NodeID()))
	}
	if more > 0 {
		list[len(list)-1].Text += ". So may " + Plural(more, "more node", "more nodes")
	}
	return list
}

// reroutes are for the node of the one that stays, if it sends to a removed one by that one's own interface. Plugins such as ptp make no
// route to an address that has one, and with the removed one it goes.
func (v *voice) reroutes(removed []int, stays int) (list []document.Step) {
	b := v.c.Holders[stays]
	command := routeTo(v.c.IP, b.Holder)
	for _, r := range v.c.Routes {
		n := v.to(r)
		if command == "" || b.Evidence == detector.Host || r.NodeID() != b.NodeID() || !slices.Contains(removed, n) || r.Gateway.IsValid() || r.Device == "" || r.Device != v.c.Holders[n].Interface {
			continue
		}
		list = append(list, v.on(stays, document.Step{
			Text: fmt.Sprintf("Then let node %s send to %s: its route leads to the removed one", v.node(stays), v.names[stays]), Command: command, Cuts: "nothing",
		}))
	}
	return list
}

// first is what is to be done before a holder is removed, so that its successor does not collide, or the address comes back.
func (v *voice) first() (list []document.Step) {
	lost := make(map[string]int) // holders that have lost their reservation, by node
	for _, n := range v.with(document.Remove, document.ReasonNotReserved) {
		lost[v.nodeID(n)]++
	}
	for _, id := range slices.Sorted(maps.Keys(lost)) {
		if !slices.ContainsFunc(v.c.Books, func(b document.Book) bool { return b.NodeID() == id && b.Unreserved > lost[id] }) {
			continue
		}
		if v.isIn(bookAzureCNS, id) {
			list = append(list, document.Step{
				Text:    "Let no new pod come to node " + v.nodeName(id) + ` until all pods are removed that "dupip audit" lists there, too: the successor of one may get the address of another one`,
				Command: cordon(cluster.NodeName(id)), Cuts: "nothing",
			})
			continue
		}
		list = append(list, v.machine(document.Step{
			Text: `Run "dupip audit", and reserve other addresses again as it says: or the successor of a removed pod may get one of them`,
		}, id))
	}
	for _, n := range v.with(document.Remove, document.ReasonLifetime) {
		list = append(list, v.on(n, document.Step{
			Text: strings.TrimSpace("Stop what configures "+machine(v.c.Holders[n]).Device) + ", for example a DHCP client, or it sets the address again",
		}))
	}
	if given := v.givenOnNode(); given != detector.GivenNo || len(v.hosts()) > 0 && v.c.Judgement.Cause == document.CauseNodeAddress {
		s := document.Step{Text: fmt.Sprintf("Take %s and the other addresses of nodes out of IPAM's ranges first: it may give them out again", v.c.IP)}
		if given != detector.GivenYes {
			s.If = "If IPAM gave it to a pod although it is the node's"
		}
		list = append(list, s)
	}
	return list
}
