package say

import (
	"fmt"
	"net/netip"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// question is what to do where the facts do not decide: wait, or ask what decides, and then a step for each answer.
func (v *voice) question() []document.Step {
	switch v.c.Judgement.Cause {
	case document.CauseEnding:
		return []document.Step{{Text: "Wait: nothing is to be removed"}}
	case document.CauseComing:
		if v.doubled() != "" {
			return []document.Step{{Text: `Wait 30 seconds and look again. If both machines are still there then, "dupip nodes" has their addresses`}}
		}
		return []document.Step{{Text: "Wait 3 seconds and look again: facts about " + v.list(v.coming()) + " are still on their way"}}
	case document.CauseDeleted:
		return v.leaveSteps()
	case document.CauseTwoNodes:
		return v.twoNodesSteps()
	case document.CauseUnreachable:
		return []document.Step{{Text: "Wait until " + nodesNamed(v.unreachable()) + either(len(v.unreachable()), " answers, or its", " answer, or their") + " holders are forgotten (5 minutes)"}}
	case document.CauseSharedRange, document.CauseAway:
		if local := localRange(*v.c); local != nil && v.c.Judgement.Cause == document.CauseSharedRange {
			return local
		}
		if open := v.with(document.Open); !v.isPod() && len(open) > 0 {
			return v.askEngines(open)
		}
		if v.c.Judgement.Cause == document.CauseAway {
			return v.whichStayed()
		}
		return v.rangeSteps()
	}
	open := v.with(document.Open)
	if len(open) == 0 {
		return nil
	}
	if hosts := v.hosts(); len(hosts) > 0 {
		return v.askNode(hosts, open)
	}
	if local := localRange(*v.c); local != nil {
		return local
	}
	if !v.isPod() {
		return v.askEngines(open)
	}
	return v.askBook(open)
}

// askEngines asks the engines of containers, none of which has a book for all nodes.
func (v *voice) askEngines(open []int) (list []document.Step) {
	if v.c.Judgement.Cause == document.CauseSharedRange {
		list = append(list, document.Step{Text: "Give the networks of the engines on " + Conjoin(v.nodesAbout()) + " ranges of their own, or the next containers collide, too"})
	}
	for _, n := range atMost(v, open, maxAsked) {
		b := v.c.Holders[n]
		if look := inspect(b.Pod); look != "" {
			list = append(list, v.on(n, document.Step{Text: "Look which addresses the engine has given " + v.names[n], Command: look}))
		}
		s := v.endTold(n)
		s.If = "If " + v.names[n] + " should not have the address"
		list = append(list, s)
	}
	return append(list, document.Step{If: "If you cannot find out", Text: "Remove nothing, and ask those who made the containers"})
}

// askBook asks the IPAM of the pods, which has the address reserved for one of them at most.
func (v *voice) askBook(open []int) []document.Step {
	ip := v.c.IP
	list := []document.Step{{
		Text: "Look for whom the pods' IPAM has the address reserved: that one stays. With Calico as IPAM", Command: readCalico(ip),
	}}
	nodes := unique(each(open, v.nodeID))
	for _, id := range atMost(v, nodes, maxFlushes) {
		list = append(list, v.machine(document.Step{
			Text: "With host-local as IPAM, a file has the id of the sandbox", Command: readHostLocal(ip),
		}, id))
	}
	list = append(list, document.Step{Text: "Look which pods the API server has with the address" + onlyFirst(ip), Command: readPods(ip)})
	if len(nodes) > 1 {
		list = append(list, document.Step{
			If:   "If several nodes have the address reserved",
			Text: "Compare the ranges of the nodes, because a range must be one node's. Repair that before you delete a pod", Command: readRanges,
		})
	}
	for _, n := range atMost(v, open, maxAsked) {
		list = append(list, v.unless(n, open)...)
	}
	return append(list, document.Step{If: "If it is reserved for nobody, or you cannot find out", Text: "Remove nothing, and ask those who run the IPAM"})
}

// onlyFirst warns of a list that has one address of each pod.
func onlyFirst(ip netip.Addr) string {
	if ip.Is6() {
		return ""
	}
	return ". A pod is missing there if this is not its first address"
}

// unless removes a holder if the book has the address reserved for another one.
func (v *voice) unless(n int, open []int) []document.Step {
	list := []document.Step{v.endTold(n)}
	reserved := fmt.Sprintf("If it is reserved for another one, and not for %s", v.withSandbox(n))
	if len(open) == 2 {
		other := open[0] + open[1] - n
		reserved = fmt.Sprintf("If it is reserved for %s only", v.withSandbox(other))
		list = append(list, v.reroutes([]int{n}, other)...)
	}
	for i := range list {
		list[i].If = reserved
	}
	return list
}

// endTold ends a holder of which its own node has told: another node may have invented it.
func (v *voice) endTold(n int) document.Step {
	if v.c.Holders[n].Facts == nil {
		return v.askOwn(n)
	}
	return v.end(n, "")
}

// askOwn asks the node of a holder.
func (v *voice) askOwn(n int) document.Step {
	return document.Step{Text: fmt.Sprintf(`Ask node %s what to do: "dupip explain %s" does; it has not told of %s yet`, v.node(n), v.c.IP, v.names[n])}
}

// withSandbox names a holder, with what books may call it.
func (v *voice) withSandbox(n int) string {
	if id := pod(v.c.Holders[n]).Sandbox; id != "" {
		return fmt.Sprintf("%s (sandbox %s)", v.names[n], id)
	}
	return v.names[n]
}

// askNode asks nodes how they have the address.
func (v *voice) askNode(hosts, open []int) (list []document.Step) {
	for _, n := range atMost(v, hosts, maxFlushes) {
		list = append(list, v.on(n, document.Step{
			Text: fmt.Sprintf("Look how %s has the address", v.names[n]), Command: readNode(v.c.IP),
		}))
		s := v.fromNode(n, true)
		s.If = "If it is \"dynamic\" there, and a pod was given it before"
		list = append(list, s)
	}
	for _, n := range atMost(v, open, maxAsked) {
		if v.c.Holders[n].Evidence != detector.Host {
			s := v.endTold(n)
			s.If = "If it is permanent there, or the node had it before the pod"
			list = append(list, s)
		}
	}
	return list
}

// whichStayed asks the API server which pod it gave up while two nodes had lost each other, and if none, the book.
func (v *voice) whichStayed() []document.Step {
	list := []document.Step{{Text: "Look which pods the API server has with the address. If there is none, remove nothing: kubectl may ask another cluster", Command: readPods(v.c.IP)}}
	if w := v.lostEachOther(); w != nil {
		// The API server cannot delete a pod that it does not have.
		b, orphan := v.c.Holders[w.Elder], v.endTold(w.Elder)
		if b.Facts != nil && removeSandbox(b.Pod) != "" {
			orphan = v.endSandbox(w.Elder, "")
		}
		orphan.If = fmt.Sprintf("If it has %s with the address, and no %s on node %s", Who(v.c.Holders[w.Newer]), Who(b), v.node(w.Elder))
		list = append(list, orphan, document.Step{If: "If you have removed it", Text: "You are done: leave out the rest"})
	}
	for _, s := range v.askBook(v.with(document.Open)) {
		if s.Command != list[0].Command {
			list = append(list, s)
		}
	}
	return list
}

// machineSteps are about machines of which one should not run. The API server knows one of them by its boot id. No step names a pod,
// or has kubectl find a machine by its name.
func (v *voice) machineSteps() []document.Step {
	ids := v.about()
	if !v.isPod() {
		return []document.Step{{Text: "Ask those who install the machines which of " + Conjoin(v.nodesAbout()) + " should run, and shut down the other one"}}
	}
	list := []document.Step{{
		Text: "Look which boot id the API server has, several times in 2 minutes. If it changes, or if none of these machines is there, shut down " +
			"nothing: ask those who install the machines which one should run",
		Command: readBoots,
	}}
	for _, id := range atMost(v, ids, maxAsked) {
		list = append(list, v.machine(document.Step{
			If:   fmt.Sprintf("If another one of them is always there, and %s never", cluster.BootID(id)),
			Text: "Shut down the machine " + v.machineName(id) + ", after you have seen that boot id in its /proc/sys/kernel/random/boot_id", Cuts: "all pods of that machine",
		}, id))
	}
	if command := readPods(v.c.IP); v.c.Judgement.Cause == document.CauseClone && command != "" {
		list = append(list, document.Step{
			If: "If all of them are always there", Text: "Look on which node the API server has the pod with this address, and shut down the other node", Command: command,
		})
	}
	return append(list, v.remakes()...)
}

// rangeSteps are about nodes that give out addresses of one range, or one node with several networks.
func (v *voice) rangeSteps() []document.Step {
	ids := v.about()
	if len(ids) == 1 {
		return []document.Step{v.machine(document.Step{
			Text: fmt.Sprintf("Give each network of node %s a range of its own in CNI's configuration, and only then delete the pods whose address is of another range", v.nodeName(ids[0])),
		}, ids[0])}
	}
	list := []document.Step{{
		Text: fmt.Sprintf("Look which range the API server has for each of %s. A node that gives out another one has a wrong range. "+
			"If they have the same range there, or none, one of them has to go: that with fewer pods", Conjoin(v.nodesAbout())),
		Command: readRanges,
	}}
	for _, id := range atMost(v, ids, maxAsked) {
		list = append(list, drainStep(id, v.nodeName(id)))
	}
	return append(list, v.remakes()...)
}

// drainStep moves all pods of a node elsewhere if its range is another node's.
func drainStep(id, name string) document.Step {
	s := document.Step{
		If:      fmt.Sprintf("If %s is the one with a wrong range", name),
		Text:    fmt.Sprintf("Drain %s, and give it a range of its own before it gets pods again. A Node's podCIDR cannot be changed: delete the Node, and let the machine join anew", name),
		Command: drain(cluster.NodeName(id), cluster.BootID(id)), Cuts: "all pods of " + name + " but those of DaemonSets, and the data of their emptyDir volumes",
	}
	if s.Command == "" {
		s.Text, s.Cuts = s.Text+". There is no command: its boot id is not known, or its name is not safe for a shell", ""
	}
	return s
}
