package say

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Finding says what a finding of an audit means, and how to repair it. What to do about a contested address its conflict says.
func Finding(f document.Finding) (text string, steps []document.Step) {
	if text, steps = booked(f); text != "" {
		return contested(f, text), steps
	}
	switch f.Kind {
	case document.Misrouted:
		return misrouted(f, []string{f.Node})
	case document.TwoNodes:
		return onTwoNodes(f)
	case document.Stranger:
		return stranger(f)
	case document.Diverted:
		return diverted(f)
	}
	text = fact(f) + "."
	if f.Contested {
		return contested(f, text), steps
	}
	pod := cmp.Or(f.Pod.String(), f.Netns)
	on := func(s document.Step) { s.Node = f.Node; steps = append(steps, s) }
	remove := document.Step{Text: "Remove " + pod + ": its successor gets an address with a reservation", Command: deletePod(f.Pod)}
	if remove.Command != "" {
		remove.Cuts = endsPod(f.Pod)
	}
	switch {
	case isHeldByPod(f):
		text += fmt.Sprintf(" Do not free it while %s runs: the next pod would get it.", pod)
	case f.Kind == document.Unheld:
		text += " The range has one address less."
		if isReservation(f, f.ReservedFor) {
			// Only if it is still that reservation: the address may be another pod's by now.
			on(document.Step{
				If: "If no other runtime has that container", Text: "Free the address", Cuts: "nothing",
				Command: fmt.Sprintf("flock %s/lock sh -c 'grep -q ^%s %[1]s/%[3]s && rm %[1]s/%[3]s'", f.Store, reservedID(f), f.IP),
			})
		}
		if f.Book == bookAzureCNS {
			on(document.Step{
				If: "If no other runtime has that container", Cuts: "nothing",
				Text: "Let Azure CNS free the address (releaseipconfigs of its API, for that container), or report it to the provider. Do not edit its file: it has the state in memory and writes it again",
			})
		}
	case f.Given == detector.GivenNo:
		will := f.Book + " may give it to another pod"
		if f.Kind == document.Mismatched {
			will = "its owner uses it, too, or may soon"
		}
		text += " It was probably taken by hand, and " + will + "."
		remove.Text = "Take the address from " + pod + ", or remove the pod"
		steps = append(steps, remove)
	case f.Kind == document.Mismatched:
		text += " They collide as soon as both use it."
		steps = append(steps, remove)
	default:
		text += " The next pod may get it."
		// Only of the primary interface it is known that its name in the pod is eth0, which is part of a reservation.
		if f.Given == detector.GivenYes && isReservation(f, f.Sandbox) {
			on(document.Step{
				Text: "Reserve the address for " + pod + " again", Cuts: "nothing",
				// The folder may be gone with all reservations.
				Command: fmt.Sprintf(`mkdir -p %s && flock %[1]s/lock sh -c 'set -C; printf "%[2]s\r\neth0" >%[1]s/%[3]s'`, f.Store, f.Sandbox, f.IP),
			})
			remove.If = "If you prefer to replace the pod"
		}
		steps = append(steps, remove)
	}
	return text, steps
}

// misrouted says where packets of some nodes go that do not come to the holder of an address.
func misrouted(f document.Finding, from []string) (text string, steps []document.Step) {
	text = fmt.Sprintf("Packets from %s %s to %s go", either(len(from), "node", "nodes"), Conjoin(from), f.IP)
	if f.Partly {
		text = "Some p" + text[1:]
	}
	if len(f.Through) == 0 {
		text += " to pods of that node itself"
	} else {
		text += " to node " + strings.Join(f.Through, ", then ")
		last := map[string]string{
			document.EndsNowhere: ", which has no route for them", document.EndsAtPods: ", which sends them to its own pods", document.EndsInLoop: ", which had them before: they go round",
		}
		text += last[f.End]
	}
	text += fmt.Sprintf(". %s on node %s has the address, and does not get them.", cmp.Or(f.Pod.String(), "A pod"), f.HeldBy)
	wrong := f.Node // where they end, and of those that go round the first
	if n := len(f.Through); n > 0 && f.End == document.EndsInLoop {
		wrong = f.Through[0]
	} else if n > 0 {
		wrong = f.Through[n-1]
	}
	look := document.Step{Text: "Look which route they take", Node: f.Node}
	if plainAddress(f.IP) {
		look.Command, look.Cuts = "ip route get fibmatch "+f.IP.String(), "nothing"
	}
	return text, []document.Step{
		look,
		{Text: "If the audit has another finding about one of these nodes, such as misbooked, deleted or overlapping, repair that first: it is the cause"},
		{Text: fmt.Sprintf(`If not, look for whom IPAM has the address: "dupip explain %s" says so, or the IPAM's own tool. If it is for nobody, or for node %s, another pod may get it: `+
			"look whether the network plugin of node %s has the right node name", f.IP, wrong, f.HeldBy)},
		{If: "If it is for node " + f.HeldBy, Text: "Look why what writes the routes does not know that, such as calico-node, flanneld or a BGP daemon: its log says so", Node: f.Node},
	}
}

// way is the way that packets to a misrouted address go, or by what they are diverted; empty for others.
func way(f document.Finding) string {
	switch f.Kind {
	case document.Diverted:
		return fmt.Sprint(f.NodeID(), f.End, f.Route, f.Table, f.Device)
	case document.Misrouted:
		return strings.Join(f.Through, " ") + " " + f.End + " " + f.HeldBy
	case document.TwoNodes:
		return fmt.Sprint(f.NodeID(), f.HeldBy, f.Gateway, f.Pods > 0, f.Netns == hostNetns, f.Interface, f.Bridge, f.Prefix.IsValid(), f.Prefix.IsSingleIP())
	case document.Stranger:
		return fmt.Sprint(f.NodeID(), f.By)
	}
	return ""
}

// contested adds that the address of a finding is in conflict, if it is.
func contested(f document.Finding, text string) string {
	if !f.Contested {
		return text
	}
	return text + fmt.Sprintf(` The address is in conflict: "dupip explain %s" says what to do.`, f.IP)
}

// fact is what the book and the wire say.
func fact(f document.Finding) string {
	pod, reserved := cmp.Or(f.Pod.String(), f.Netns), ReservationOf(f, false)
	switch {
	case isHeldByPod(f):
		return fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more, and %s has it", f.IP, reserved, pod)
	case f.Kind == document.Unheld:
		return fmt.Sprintf("%s is reserved for sandbox %s, which does not exist any more", f.IP, reserved)
	case f.Kind == document.Mismatched && f.Given == detector.GivenNo:
		return fmt.Sprintf("%s has %s, which no network plugin gave it and %s has reserved for %s", pod, f.IP, f.Book, reserved)
	case f.Kind == document.Mismatched:
		return fmt.Sprintf("%s has %s, which %s has reserved for %s", pod, f.IP, f.Book, reserved)
	case f.Given == detector.GivenNo:
		return fmt.Sprintf("%s has %s, which no network plugin gave it", pod, f.IP)
	}
	return fmt.Sprintf("%s has %s, which %s has not reserved", pod, f.IP, f.Book)
}

// isApart reports whether a finding is repaired in another way than others of its kind.
func isApart(f document.Finding) bool { return f.Given == detector.GivenNo || isHeldByPod(f) }

// isHeldByPod reports whether a pod has the address of a reservation that nobody holds.
func isHeldByPod(f document.Finding) bool { return f.Kind == document.Unheld && f.Interface != "" }

// HolderOf says who has the address of a finding, empty for nobody, on which node if that is not the finding's, and who else has it.
func HolderOf(f document.Finding) string {
	text := cmp.Or(f.Pod.String(), f.Netns)
	switch other := cmp.Or(f.HeldBy, f.By.String()); {
	case f.Kind == document.TwoNodes, f.Kind == document.Stranger:
		text += ", also " + other
	case f.HeldBy != "":
		text += " on " + f.HeldBy
	}
	return text
}

// ReservationOf says for whom the address of a finding is reserved.
func ReservationOf(f document.Finding, wide bool) string {
	id := f.ReservedFor
	if !wide {
		id = reservedID(f)
	}
	text := cmp.Or(f.ReservedPod.String(), id, "-")
	if f.ReservedNode != "" && f.ReservedPod != nil {
		text += " on " + f.ReservedNode
	}
	return text
}

// reservedID is the beginning of the id of the sandbox that has the reservation, as crictl prints it.
func reservedID(f document.Finding) string { return f.ReservedFor[:min(len(f.ReservedFor), 13)] }

// The books of nodes: host-local has a file for each reservation, Azure CNS has one for all.
const (
	bookHostLocal = "host-local"
	bookAzureCNS  = "azure-cns"
)

// isReservation reports whether a reservation for a sandbox, by its whole id, has a file that can be part of a command.
func isReservation(f document.Finding, sandbox string) bool {
	return f.Book == bookHostLocal && plainPath(f.Store) && plainAddress(f.IP) && plainSandbox(sandbox) && len(sandbox) >= 32
}

// NoFinding says what it means that an audit has no finding.
func NoFinding(a document.Audit) string {
	switch a.Verdict {
	case document.AuditAgrees:
		return "No finding: books and wire agree"
	case document.AuditNothing:
		return "No finding, because nothing was checked"
	}
	return "No finding, but the check is not complete"
}

// Checked says which books an audit has read, and what it has not looked for.
func Checked(a document.Audit) (lines []string) {
	for _, b := range a.Books {
		if b.Error == "" { // others are among those that are not checked
			lines = append(lines, "Book: "+BookStatus(b)+".")
		}
	}
	for _, text := range a.Unchecked {
		lines = append(lines, "Not checked: "+text+".")
	}
	return lines
}

// BookStatus says which addresses a book covers, and how many of them it has reserved.
func BookStatus(b document.BookStatus) string {
	text := fmt.Sprintf("%s, network %s, ", b.Kind, b.CNINetwork)
	if b.Error != "" {
		return text + "problem: " + b.Error
	}
	covered := "no known range"
	if len(b.Ranges) > 0 {
		covered = strings.Join(b.Ranges, " and ")
	}
	text = fmt.Sprintf("%s%s reserved of %s", text, Addresses(b.Reserved), covered)
	if b.LeftPercent != nil {
		text += fmt.Sprintf(", %.0f%% left", math.Floor(*b.LeftPercent))
	}
	return text
}

// Coverage says which things an answer of the cluster lacks.
func Coverage(c document.Coverage, things string) (lines []string) {
	if c.Alone {
		lines = append(lines, "This agent is alone: it was started without --join and --bind and knows its own node only.")
	}
	if n := len(c.Missing); n > 0 {
		lines = append(lines, fmt.Sprintf("%d of %d nodes did not answer: %s; their %s are missing.", n, c.Asked, List(c.Missing), things))
	}
	if c.Omitted > 0 {
		lines = append(lines, fmt.Sprintf("%d %s did not fit into the answers: give one --ip or one --node.", c.Omitted, things))
	}
	return lines
}
