package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/document"
)

// The words of what the books of the whole cluster say, which only a reporter reads.

// clock is how times are printed.
const clock = "Jan 2 15:04:05 MST"

// What is what a finding is about: an address, or the node.
func What(f document.Finding) string {
	if f.IP.IsValid() {
		return f.IP.String()
	}
	return "node " + f.Node
}

// booked says what a finding means that only a reporter has, and how to repair it; the text is empty for others.
func booked(f document.Finding) (text string, steps []document.Step) {
	steps = []document.Step{}
	on := func(s document.Step) { steps = append(steps, s) }
	pod, book := cmp.Or(f.Pod.String(), f.Netns, "a pod"), bookName(f)
	switch f.Kind {
	case document.Misbooked:
		text = fmt.Sprintf("%s has %s, which %s has reserved for it on node %s, and it runs on node %s.%s", pod, f.IP, book, f.ReservedNode, f.Node, freed(f))
		if f.ReservedPod == nil {
			text = fmt.Sprintf("%s has %s and runs on node %s, but %s has the address for node %s, which may give it to another pod.", pod, f.IP, f.Node, book, f.ReservedNode)
		}
		if f.Contested {
			return text, steps
		}
		on(repairBook(f.Book, f.Node))
		on(document.Step{Text: "Then remove " + pod + ": its successor gets an address that is reserved on its own node", Command: deletePod(f.Pod), Cuts: endsPod(f.Pod)})
	case document.Stale:
		text = ofEarlier(book, f.Node, f.OwnerUID)
		on(document.Step{Text: remake(f.Book), Node: f.Node})
	case document.Deleted:
		text = fmt.Sprintf("The Node %s was deleted%s, and %s on its machine: IPAM may give their addresses out again.", f.Node, since(f.Since), Plural(f.Pods, "pod runs", "pods run"))
		on(document.Step{Text: leave, Cuts: "all pods of that machine", Node: f.Node})
	case document.Overlapping:
		text = fmt.Sprintf("Node %s has the range %s of node %s: pods of both may get one address.", f.Node, strings.Join(f.Ranges, ", which overlaps "), f.ReservedNode)
		on(document.Step{Text: "Look which range the API server has for each node. One that gives out another one has a wrong range: give it its own before it gets more pods", Command: readRanges})
	case document.Twice:
		text = fmt.Sprintf("The API server has two live pods with %s: %s on node %s, and %s on node %s.", f.IP, pod, f.Node, f.ReservedPod, f.ReservedNode)
		if !f.Contested {
			text += " On the wire they have not collided yet."
		}
		on(document.Step{Text: fmt.Sprintf(`Run "dupip explain %s": it says who has the address on the wire`, f.IP)})
	case document.Unlisted:
		text = fmt.Sprintf("%s has %s on node %s, and the API server has no such pod: nobody manages it, and its address may be given out again.", pod, f.IP, f.Node)
		if f.Contested {
			return text, steps
		}
		sandbox := &document.Pod{Sandbox: f.Sandbox}
		on(document.Step{
			If: "If nobody has made it without the API server", Text: "Remove its sandbox", Command: removeSandbox(sandbox), Cuts: "the pod " + pod + ", which comes back only if the kubelet has it in a file", Node: f.Node,
		})
	case document.Unheld:
		switch {
		case f.Book == document.Kubernetes:
			text = fmt.Sprintf("The API server has %s on node %s with %s, and no interface there has that address.", f.ReservedPod, f.Node, f.IP)
		case f.Store == "":
			text = fmt.Sprintf("%s is reserved by %s for %s, and there is no such pod. The pool has one address less.%s", f.IP, book,
				reservedFor(&document.Reservation{Pod: f.ReservedPod, Sandbox: f.ReservedFor, Node: f.Node}), freed(f))
			on(document.Step{Text: "Let the IPAM's own tool check it: " + checkTool(f.Book, f)})
		}
	}
	return text, steps
}

// ofEarlier says that a book's object of a node belongs to an earlier Node.
func ofEarlier(book, node, uid string) string {
	return fmt.Sprintf("The address book %s has for node %s belongs to an earlier node of that name (owner UID %s): its addresses may be another node's, too.", book, node, uid)
}

// leave is what to do with a machine whose Node was deleted.
const leave = "Shut down the machine, or start its kubelet again so that it joins the cluster"

func since(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return " at " + at.Format(clock)
}

// bookName names a book of the whole cluster, with the pool.
func bookName(f document.Finding) string { return inPool(f.Book, f.CNINetwork) }

func inPool(book, pool string) string {
	if pool == "" {
		return book
	}
	return book + " (pool " + pool + ")"
}

// freed says when a reservation is freed by itself.
func freed(f document.Finding) string {
	if f.FreedBy.IsZero() {
		return ""
	}
	text := fmt.Sprintf(" What frees leaked addresses takes it for one, at the earliest now, at the latest at %s", f.FreedBy.Format(clock))
	if f.Kind == document.Misbooked {
		return text + ": then another pod may get it."
	}
	return text + "."
}

// checkTool names the commands of an IPAM's own tool.
func checkTool(book string, f document.Finding) string {
	switch book {
	case "calico":
		return fmt.Sprintf(`"calicoctl ipam check" lists what is leaked, and "calicoctl ipam release --ip=%s" frees this one`, f.IP)
	case "whereabouts":
		return "its ip-control-loop frees what no pod has, as often as its reconciler's schedule says; its log says why not"
	case "cilium":
		return "the Cilium agent of the node frees what none of its pods has, when it is restarted"
	case "azure":
		return "the azure-cns of the node frees what none of its pods has, when it is restarted"
	}
	return "the documentation of " + book + " says how"
}

// repairBook corrects what a node's network plugin says about the node.
func repairBook(book, node string) document.Step {
	s := document.Step{Text: "Correct the node name that the network plugin has, or the next pods are booked for another node, too", Node: node}
	const until = ". Until then the next pods may get addresses of another node, too"
	switch book {
	case "calico":
		s.Text = "Correct /var/lib/calico/nodename, which must be the name of the Node, and restart calico-node; then \"calicoctl ipam check\" lists what is booked wrongly. " +
			"Until then the next pods are booked for another node, too"
	case "cilium":
		s.Text = "Compare the ranges of the node's CiliumNode with those that \"cilium-dbg status\" prints on the node, and restart its Cilium agent if they differ" + until
	case "azure":
		s.Text = "Compare the addresses of the node's NodeNetworkConfig with those that its azure-cns gives out, and restart azure-cns if they differ" + until
	}
	return s
}

// remake says who makes the object of a node anew.
func remake(book string) string {
	switch book {
	case "azure":
		return "Let Azure's controller make the NodeNetworkConfig of the node anew, and cordon the node until it has"
	case "cilium":
		return "Let Cilium's operator make the CiliumNode of the node anew, and restart the Cilium agent of the node"
	}
	return "Let the controller of " + book + " make the object of the node anew"
}

// clusterBook is the book of the whole cluster that has the address reserved for a pod; nil if there is none.
func (v *voice) clusterBook() *document.Book {
	i := slices.IndexFunc(v.c.Books, func(b document.Book) bool { return b.Node == "" && b.Reservation != nil && b.Reservation.Pod != nil })
	if i < 0 {
		return nil
	}
	return &v.c.Books[i]
}

// isByCluster reports whether no book of a holder's node has the address reserved.
func (v *voice) isByCluster(n int) bool {
	return !slices.ContainsFunc(v.c.Books, func(b document.Book) bool { return b.NodeID() == v.nodeID(n) && b.Reservation != nil })
}

// misbooked is the holder whose reservation was for another node before it ended; negative if that is not known.
func (v *voice) misbooked() (n int, was *document.Reservation) {
	b := v.clusterBook()
	if b == nil || b.Former == nil {
		return -1, nil
	}
	n = slices.IndexFunc(v.c.Holders, func(h document.Binding) bool {
		return h.Pod != nil && (b.Former.Sandbox != "" && b.Former.Sandbox == h.Pod.Sandbox || b.Former.Sandbox == "" && b.Former.Pod.String() == h.Pod.String())
	})
	return n, b.Former
}

// lostByCluster says how a book of the whole cluster has lost a reservation; empty if it has not.
func (v *voice) lostByCluster() string {
	b := v.clusterBook()
	removed := v.with(document.Remove, document.ReasonNotReserved)
	if b == nil || len(removed) == 0 {
		return ""
	}
	name := inPool(b.Kind, b.CNINetwork)
	n, was := v.misbooked()
	switch {
	case n < 0:
		return v.say(1, "%s [has|had] no reservation for %s any more, and gave the address to %s.", name, v.list(removed), reservedFor(b.Reservation))
	case was.Node != "" && was.Node != v.c.Holders[n].Node:
		return fmt.Sprintf("%s had it reserved for %s on node %s, while the pod ran on node %s: it was taken for leaked and freed at %s, and given to %s.",
			name, was.Pod, was.Node, v.node(n), was.Until.Format(clock), reservedFor(b.Reservation))
	}
	return fmt.Sprintf("%s freed the reservation of %s at %s, while it ran, and gave the address to %s.", name, v.names[n], was.Until.Format(clock), reservedFor(b.Reservation))
}

// repairs are for the book, when the holders are removed that it does not know.
func (v *voice) repairs() (list []document.Step) {
	var ids []string // of nodes
	for _, n := range v.with(document.Remove, document.ReasonNotReserved) {
		if id := v.nodeID(n); !slices.Contains(ids, id) && v.isIn(bookAzureCNS, id) {
			ids = append(ids, id)
		}
	}
	for _, id := range atMost(v, ids, maxAsked) {
		list = append(list, v.machine(document.Step{
			Text: "Then repair the book. Stop what frees addresses of Azure CNS, and look which ones it has given out. Remove each pod that is missing there: " +
				"its successor gets an address that Azure CNS knows. Do not edit its file: it has the state in memory and writes it again",
			Command: readCNS,
		}, id))
	}
	if n, was := v.misbooked(); n >= 0 && was.Node != "" && was.Node != v.c.Holders[n].Node {
		s := repairBook(v.clusterBook().Kind, "")
		s.Text = "Then repair the book. " + s.Text
		list = append(list, v.on(n, s))
	}
	return list
}

// isIn reports whether a book of that kind of a node has the address reserved.
func (v *voice) isIn(kind, id string) bool {
	return slices.ContainsFunc(v.c.Books, func(b document.Book) bool { return b.Kind == kind && b.NodeID() == id && b.Reservation != nil })
}

// earlier are the books whose object of a node belongs to an earlier Node.
func (v *voice) earlier() []document.Book {
	return slices.DeleteFunc(slices.Clone(v.c.Books), func(b document.Book) bool {
		return v.past || b.Node != "" || b.OwnerUID == "" || b.Reservation == nil
	})
}

// ofEarlier says so of them.
func (v *voice) ofEarlier() (text string) {
	for _, b := range v.earlier() {
		text += " " + ofEarlier(b.Kind, b.Reservation.Node, b.OwnerUID)
	}
	return text
}

// remakes are for these objects.
func (v *voice) remakes() (list []document.Step) {
	for _, b := range atMost(v, v.earlier(), maxAsked) {
		list = append(list, document.Step{Text: "Then repair the book of node " + b.Reservation.Node + ". " + remake(b.Kind)})
	}
	return list
}

// replaced says which pods of machines with one name the API server has.
func (v *voice) replaced() string {
	is := func(pod string) (list []int) {
		for n, b := range v.c.Holders {
			if b.Listing != nil && b.Listing.Pod == pod && !b.Gone {
				list = append(list, n)
			}
		}
		return list
	}
	has, lacks := is(document.PodListed), is(document.PodUnlisted)
	if len(has) == 0 || len(lacks) == 0 {
		return ""
	}
	return v.say(1, " The API server [has|had] %s, and not %s, whose machine was probably replaced.", v.list(has), v.list(lacks))
}

// nodeDeleted says which Nodes were deleted while their machines run.
func (v *voice) nodeDeleted() string {
	var parts []string
	for _, id := range v.about() {
		at, silent := time.Time{}, false
		for _, b := range v.c.Holders {
			if b.NodeID() == id && b.Listing != nil {
				at, silent = b.Listing.NodeDeleted, silent || b.Unreachable
			}
		}
		text := fmt.Sprintf("The Node %s was deleted%s.", v.nodeName(id), since(at))
		if silent {
			text += v.say(1, " Its agent [does|did] not answer: it [is|was] not known whether its pods [run|ran].")
		} else {
			text += v.say(1, " Its pods [run|ran] on, and IPAM [may give|gave] their addresses out again.")
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, " ")
}

// leaveSteps end what runs on machines whose Nodes were deleted.
func (v *voice) leaveSteps() (list []document.Step) {
	for _, id := range atMost(v, v.about(), maxAsked) {
		list = append(list, v.machine(document.Step{Text: leave + ". Nothing else is to be removed", Cuts: "all pods of that machine"}, id))
	}
	return list
}
