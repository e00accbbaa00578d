package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// Status prints how an agent is doing.
func (p *Printer) Status(s document.Status) {
	state := "starting"
	if s.Ready {
		state = "observing"
	}
	line := func(name, format string, args ...any) {
		p.Entry(12, name, fmt.Sprintf(format, args...))
	}
	line("Node", "%s, boot %s", s.Node, s.BootID)
	line("Agent", "%s, %s for %s, attached by %s", s.Version, state, Age(s.Started), s.AttachMode)
	line("Interfaces", "%s", interfacesText(s.ByState))
	line("Bindings", "%s", counts(s.Bindings))
	line("Conflicts", "%s; %d resolved, %s faded", counts(s.Conflicts), s.Resolved, say.Plural(int(s.Faded), "suspicion", "suspicions"))
	if drills := counts(s.Drills); drills != none {
		line("Drills", "%s", drills)
	}
	if s.DADFailedAddresses > 0 {
		line("DAD failed", "%s", dadFailedText(s, p.Wide))
	}
	if s.HostAddressesOmitted > 0 {
		line("Node's own", "%s; %d more are not compared: there are too many", say.Addresses(len(s.HostAddresses)), s.HostAddressesOmitted)
	}
	if suppressed := counts(s.Suppressed); suppressed != none {
		line("Suppressed", "%s", suppressed)
	}
	line("Dropped", "%s", counts(s.Dropped))
	if left := counts(s.LeftOut); left != none {
		line("Left out", "%s", left)
	}
	for _, reason := range slices.Sorted(maps.Keys(document.NormalDrops)) {
		if s.Dropped[reason] > 0 {
			line("", "%s: %s; normal", reason, document.NormalDrops[reason])
		}
	}
	line("Gossip", "%s", gossipText(s.Cluster))
	for _, problem := range s.Cluster.Problems {
		p.wrapped(14, "            problem: "+problem)
	}
	if p.Wide && !s.Cluster.Alone {
		line("", "sent %s; received %s", counts(s.Cluster.Sent), counts(s.Cluster.Received))
	}
	if dropped := counts(s.Cluster.Dropped); dropped != none {
		line("", "dropped %s", dropped)
	}
	line("Pod names", "%s", withError(runtimeText(s.Runtime), s.Runtime.CacheError))
	for _, e := range s.Runtime.Engines {
		line("Containers", "%s", withError(engineText(e), e.Error))
	}
	for _, b := range s.Books {
		if b.Error == "" { // others are among those that are not checked
			line("Books", "%s", say.BookStatus(b))
		}
	}
	for _, text := range s.AuditUnchecked {
		line("Audit", "not checked: %s", text)
	}
	if s.Config.Path != "" {
		line("Config", "%s", withError(fmt.Sprintf("%s, read %s ago", s.Config.Path, Age(s.Config.LoadedAt)), s.Config.Error))
	}
	for _, n := range s.Notifications {
		line("Notifies", "%s", withError(notificationText(n), n.Error))
	}
	for _, g := range s.Segments {
		if p.Wide || g.Inferred || g.Error != "" {
			line("Segment", "%s", withError(segmentText(g), g.Error))
		}
	}
	if p.Wide || s.State.Error != "" {
		line("State", "%s", withError(stateText(s.State), s.State.Error))
	}
	if p.Wide {
		line("Metrics", "%s", cmp.Or(s.Metrics, "off"))
	}
	if unseen := unseenInterfaces(s.Interfaces); len(unseen) > 0 {
		line("Unseen", "behind %s no network namespace is found. If that is not a pod's, but outside of the node, put the interface into the configuration: ignore: {interfaces: [%s]}",
			detector.List(unseen), unseen[0])
	}
	for _, i := range s.Interfaces {
		switch {
		case p.Wide:
		case i.State != "attached" && i.State != "pending":
			p.wrapped(4, fmt.Sprintf("  %s is %s: %s", i.Name, p.Paint(i.State), i.Reason))
		case i.FirstPeer != "" || i.Moved:
			p.wrapped(4, fmt.Sprintf("  %s leads into %s: %s", i.Name, leadsInto(i.Pod), changeText(i)))
		}
	}
	if !p.Wide {
		return
	}
	p.println()
	var rows []table.Row
	for _, i := range s.Interfaces {
		refused := uint64(0)
		if r := i.Refused; r != nil {
			refused = r.Data + r.Announced + r.Answers + r.RingFull
		}
		pid := "" // a process in the netns, if one was seen
		if i.Pid > 0 {
			pid = strconv.Itoa(i.Pid)
		}
		peer := i.Peer
		if i.FirstPeer != "" {
			peer += " (" + i.FirstPeer + ")"
		}
		rows = append(rows, table.Row{i.Name, i.Ifindex, p.Paint(i.State), i.Network, peer, i.Pod.String(), i.Netns, pid, refused, i.Reason})
	}
	tables{Printer: p}.table(rows, "interface", "ifindex", "state", "network", "peer", "pod", "netns", "pid", "refused", "reason")
	p.printf("\nThe node's own addresses: %s\n", strings.Join(s.HostAddresses, " "))
}

// unseenInterfaces names the interfaces that are observed although nobody knows where they lead.
func unseenInterfaces(list []document.InterfaceStatus) (names []string) {
	for _, i := range list {
		if i.Netns == "" && (i.State == "attached" || i.State == "shadowed") {
			names = append(names, i.Name)
		}
	}
	return names
}

// changeText says what a pod has done with its end of an interface. The network stays.
func changeText(i document.InterfaceStatus) string {
	text := i.Peer
	if i.FirstPeer != "" {
		text = i.FirstPeer + " is called " + i.Peer + " now"
		if i.Moved {
			text += ","
		}
	}
	if i.Moved {
		text += " was moved into another network namespace"
	}
	return text
}

// dadFailedText names the addresses that pods' kernels have lost; the first three if not wide.
func dadFailedText(s document.Status, wide bool) string {
	listed := s.DADFailed
	if !wide {
		listed = listed[:min(len(listed), 3)]
	}
	names := each(listed, func(a document.DADFailed) string {
		return fmt.Sprintf("%s (%s)", a.IP, cmp.Or(a.Pod.String(), a.Netns, a.Interface))
	})
	if more := s.DADFailedAddresses - len(listed); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return say.Addresses(s.DADFailedAddresses) + ": " + strings.Join(names, ", ")
}

// interfacesText counts the interfaces by state. While the agent attaches to them, it says how far it is.
func interfacesText(states map[string]int) string {
	text, total := counts(states), 0
	if states["pending"] == 0 {
		return text
	}
	for _, state := range []string{"attached", "shadowed", "pending", "waiting", "failed"} {
		total += states[state]
	}
	return fmt.Sprintf("%d of %d interfaces observed: %s", states["attached"]+states["shadowed"], total, text)
}

func gossipText(c document.ClusterStatus) string {
	if c.Alone {
		return "alone: started without --join and --bind, duplicates on other nodes are not found"
	}
	text := "at " + c.Address
	if c.Label != "" {
		text += " in cluster " + c.Label
	}
	encrypted := "encrypted"
	if !c.Encrypted {
		encrypted = "NOT encrypted"
	}
	return fmt.Sprintf("%s, %s; %s, %d unacked, %d kept for others; %s",
		text, counts(c.Members), say.Plural(c.Leases, "lease", "leases"), c.Unacked, c.Kept, encrypted)
}

func notificationText(n document.NotificationStatus) string {
	text := fmt.Sprintf("%s %s: %d sent, %d failed, %d dropped", n.Kind, n.To, n.Sent, n.Failed, n.Dropped)
	if !n.SentAt.IsZero() {
		text += fmt.Sprintf(", the last one %s ago", Age(n.SentAt))
	}
	return text
}

func segmentText(g document.SegmentStatus) string {
	if g.Inferred {
		return g.Device + `, not declared under "networks": pods there are compared with those of nodes that are heard there`
	}
	return g.Device + ", of the nodes"
}

func stateText(s document.StateStatus) string {
	if s.WrittenAt.IsZero() {
		return s.Dir + ", nothing written yet"
	}
	return fmt.Sprintf("%s, written %s ago", s.Dir, Age(s.WrittenAt))
}

func runtimeText(r document.RuntimeStatus) string {
	sandboxes := say.Plural(r.Sandboxes, "sandbox", "sandboxes")
	if r.SandboxesOmitted > 0 {
		sandboxes += fmt.Sprintf(", %d of them left out: there are too many", r.SandboxesOmitted)
	}
	switch {
	case r.Connected && r.Socket == "":
		return fmt.Sprintf("from %s, %s: no container runtime was found", r.Name, sandboxes)
	case r.Connected:
		return fmt.Sprintf("from %s %s at %s, %s", r.Name, r.Version, r.Socket, sandboxes)
	case r.Error != "":
		return "none: " + r.Error
	}
	return "none: no container runtime is configured"
}

func leadsInto(pod *document.Pod) string {
	if pod.IsContainer() {
		return pod.String()
	}
	return "pod " + cmp.Or(pod.String(), "unknown")
}

func engineText(e document.EngineStatus) string {
	return strings.TrimSpace(e.Name+" "+e.Version) + " at " + e.Socket + ", " + say.Plural(e.Containers, "container", "containers")
}

func withError(text, err string) string {
	if err != "" {
		text += "; problem: " + err
	}
	return text
}

// none is what counts returns if there is nothing.
const none = "none"

// counts lists the numbers of a map that are not zero; "none" if all are.
func counts[K ~string, N int | uint64](figures map[K]N) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(figures)) {
		if figures[name] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", figures[name], name))
		}
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, ", ")
}

// Summary prints how the agents of a cluster are doing: how many of which kind, and where what is not as it should be. The
// conflicts are those of all nodes, each once: nodes count all that they are in. The error says why they are not known.
func (p *Printer) Summary(doc document.Nodes, conflicts document.Conflicts, unknown error) {
	document.Sanitize(&conflicts)
	agents, versions := make(group), make(group)
	interfaces, findings, audits := make(group), make(group), make(group)
	var silent, alive []string
	for _, n := range doc.Nodes {
		if n.Role != "" {
			continue
		}
		agents.add(string(n.State), 1, n.Name)
		if n.State == "dead" || n.State == "left" {
			continue
		}
		versions.add(n.Version, 1, n.Name)
		alive = append(alive, n.Name)
		if n.Reported.IsZero() {
			silent = append(silent, n.Name)
		}
		for state, count := range n.Interfaces {
			interfaces.add(state, count, n.Name)
		}
		for kind, count := range n.Findings {
			if !strings.HasPrefix(kind, "conflict ") {
				findings.add(kind, count, n.Name)
			}
		}
		switch n.Audit {
		case "":
		case document.AuditFindings:
			audits.add("with findings", 1, n.Name)
		default:
			audits.add(n.Audit, 1, n.Name)
		}
	}
	for _, c := range conflicts.Conflicts {
		if c.Drill {
			continue
		}
		nodes := slices.Sorted(slices.Values(each(c.Holders, func(b document.Binding) string { return b.Node })))
		findings.add("conflict "+c.State.String(), 1, nodes...)
	}
	p.Entry(12, "Agents", agents.text("alive"))
	p.Entry(12, "Versions", versions.text(versions.largest()))
	if len(alive) > 0 && len(silent) == len(alive) { // the reporter has just started
		p.Entry(12, "Interfaces", "not reported yet")
		p.Entry(12, "Conflicts", findings.text(""))
	} else {
		p.Entry(12, "Interfaces", interfaces.text("attached"))
		p.Entry(12, "Findings", findings.text(""))
		p.Entry(12, "Audits", audits.text(document.AuditAgrees))
	}
	if 0 < len(silent) && len(silent) < len(alive) {
		p.Entry(12, "Unknown", "interfaces and findings of "+say.List(silent))
	}
	if unknown != nil {
		p.Entry(12, "Unknown", "conflicts: "+detector.Printable(unknown.Error()))
	}
	p.Coverage(conflicts.Coverage, "conflicts")
	p.NodeProblems(doc)
}

// group counts things by their kind, and has the nodes that have them.
type group map[string]kindCount

type kindCount struct {
	count int
	nodes []string
}

func (g group) add(kind string, count int, nodes ...string) {
	if count == 0 {
		return
	}
	k := g[kind]
	k.count += count
	for _, node := range nodes {
		if !slices.Contains(k.nodes, node) {
			k.nodes = append(k.nodes, node)
		}
	}
	g[kind] = k
}

// largest is the kind of most things.
func (g group) largest() (kind string) {
	for _, k := range slices.Sorted(maps.Keys(g)) {
		if kind == "" || g[k].count > g[kind].count {
			kind = k
		}
	}
	return kind
}

// text lists the kinds, with the nodes of all but the usual one.
func (g group) text(usual string) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(g)) {
		part := fmt.Sprintf("%d %s", g[kind].count, kind)
		if strings.Contains(kind, " ") { // "unreserved address", which may be many
			part = fmt.Sprintf("%s: %d", kind, g[kind].count)
		}
		if kind != usual {
			part += " (" + say.List(g[kind].nodes) + ")"
		}
		parts = append(parts, part)
	}
	if len(parts) == 0 {
		return none
	}
	return strings.Join(parts, "; ")
}
