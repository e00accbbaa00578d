package metrics

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// Label values that are exported from the start with 0, so that rates include the first event.
var (
	interfaceStates = []string{
		"attached", "pending", "shadowed", "waiting", "failed", "unsupported", "ignored", "uplink",
		"unseen_netns", "node_only", "moved", "renamed", // no states: they count interfaces of other states again
	}
)

func exportLoop(s LoopStats, out *series) {
	for scope := detector.SameNode; scope <= detector.NodeNode; scope++ {
		for _, state := range []detector.State{detector.Suspected, detector.Confirmed} {
			n := s.Counts.Open[detector.StateScope{State: state, Scope: scope}]
			out.add(conflicts, float64(n), state.String(), scope.String())
		}
		out.add(conflictsTotal, float64(s.Counts.Confirmed[scope]), scope.String())
	}
	for _, state := range []detector.State{detector.Suspected, detector.Confirmed} {
		out.add(drills, float64(s.Counts.Drills[state]), state.String())
	}
	out.add(conflictsResolved, float64(s.Counts.Resolved))
	out.add(suspicions, float64(s.Counts.Suspected))
	out.add(suspicionsFaded, float64(s.Counts.Faded))
	out.add(overdue, float64(s.Counts.Overdue))
	for evidence := detector.Forwarded; evidence <= detector.Host; evidence++ {
		if evidence != detector.Silent { // among the forwarded
			out.add(bindings, float64(s.Counts.Bindings[evidence]), evidence.String())
		}
	}

	addByLabel(out, interfaces, s.States, interfaceStates...)
	out.add(dadFailed, float64(s.DADFailed))
	exportRefused(s.Observed, s.Refused, out)

	addByLabel(out, dropped, s.Dropped)
	addByLabel(out, leftOut, s.LeftOut)
	addByLabel(out, suppressed, s.Counts.Suppressed)
	for _, purpose := range []detector.Purpose{detector.Verify, detector.Refresh} {
		out.add(solicitations, float64(s.Solicitations[purpose]), string(purpose))
	}
	out.add(recordsPending, float64(s.Pending))
	out.add(hostOmitted, float64(s.HostOmitted))
	out.add(netlinkOverruns, float64(s.NetlinkOverruns))
	addByLabel(out, resyncFound, s.ResyncFound)
}

// exportParts exports what is known without the loop; open are the open conflicts, if the loop has told them.
func (m *Metrics) exportParts(open []detector.Conflict, out *series) {
	if m.sources.Cluster != nil {
		exportCluster(m.sources.Cluster.Status(), m.sources.Cluster.Members(), out)
	}
	if m.sources.Pods != nil {
		connected, known := m.sources.Pods()
		out.add(podsConnected, boolToFloat(connected))
		out.add(podsKnown, float64(known))
	}
	if m.sources.State != nil {
		written, bytes, err := m.sources.State()
		out.add(stateSuccess, boolToFloat(err == nil))
		out.addTime(stateTimestamp, written)
		out.add(stateSize, float64(bytes))
	}
	if m.sources.Config != nil {
		loadedAt, err := m.sources.Config()
		out.add(configSuccess, boolToFloat(err == nil))
		out.addTime(configTimestamp, loadedAt)
	}
	if m.sources.Books != nil {
		exportBooks(m.sources.Books(open), out)
	}
	if m.sources.Notifications != nil {
		exportNotifications(m.sources.Notifications(), out)
	}
}

func exportNotifications(all []document.NotificationStatus, out *series) {
	sums := make(map[[2]string]uint64)
	for _, n := range all {
		for result, figure := range map[string]uint64{"sent": n.Sent, "failed": n.Failed, "dropped": n.Dropped} {
			sums[[2]string{n.Kind, result}] += figure
		}
	}
	for of, sum := range sums {
		out.add(notifications, float64(sum), of[0], of[1])
	}
}

func exportCluster(s cluster.Status, members []cluster.Member, out *series) {
	for _, state := range document.NodeStates {
		out.add(gossipMembers, float64(s.Members[cluster.State(state)]), state)
	}
	namesakes := 0
	for _, member := range members {
		if member.Namesake {
			namesakes++
		}
	}
	out.add(gossipNamesakes, float64(namesakes))
	out.add(gossipReporters, float64(len(s.Reporters)))
	out.add(gossipLeases, float64(s.Leases))
	out.add(gossipUnacked, float64(s.Unacked))
	out.add(gossipKept, float64(s.Kept))
	addByLabel(out, gossipSent, s.Sent)
	addByLabel(out, gossipReceived, s.Received)
	addByLabel(out, gossipDropped, s.Dropped)
	out.add(gossipProblems, float64(len(s.Problems)))
}

// addByLabel adds a value for each key of values, and 0 for each of required that is no key.
func addByLabel[N int | uint64](out *series, m metric, values map[string]N, required ...string) {
	sums := byLabel(values)
	for _, name := range required {
		out.add(m, float64(sums[name]), name)
	}
	for name, n := range sums {
		if !slices.Contains(required, name) {
			out.add(m, float64(n), name)
		}
	}
}

// addTime adds a time in seconds since 1970, unless it is zero.
func (s *series) addTime(m metric, t time.Time, labels ...string) {
	if !t.IsZero() {
		s.add(m, float64(t.UnixMilli())/1000, labels...)
	}
}

func boolToFloat(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// maxRanges limits the networks with a series of their own.
const maxRanges = 16

func exportBooks(s BookStats, out *series) {
	addByLabel(out, auditFindings, s.Findings)
	seen := make(map[RangeLeft]bool)
	// Those with the least left are the first.
	slices.SortStableFunc(s.Left, func(a, b RangeLeft) int { return cmp.Compare(a.Ratio, b.Ratio) })
	for _, left := range s.Left {
		key := RangeLeft{Book: left.Book, Network: escape(left.Network)}
		if !seen[key] && len(seen) < maxRanges {
			seen[key] = true
			out.add(rangeLeft, left.Ratio, key.Book, key.Network)
		}
	}
}

// maxInterfaceSeries limits the interfaces with series of their own for refused packets.
const maxInterfaceSeries = 20

// refusedKinds are the label values of [Refused], by index.
var refusedKinds = [...]string{"data", "announced", "answers", "ring_full"}

func (c Refused) sum() (n uint64) {
	for _, v := range c {
		n += v
	}
	return n
}

// exportRefused exports the refused packets of the interfaces with most, and the total.
func exportRefused(observed []InterfaceRefusals, total Refused, out *series) {
	type labels struct{ iface, netns, sourcePod string }
	most := slices.SortedFunc(slices.Values(observed), func(a, b InterfaceRefusals) int {
		return cmp.Or(cmp.Compare(b.Refused.sum(), a.Refused.sum()), cmp.Compare(a.Generation, b.Generation))
	})
	sums := make(map[labels]Refused)
	for _, entry := range most[:min(len(most), maxInterfaceSeries)] {
		if entry.Refused.sum() == 0 {
			break // so are all that follow
		}
		// Two interfaces have equal labels if escape shortened different names to one.
		key := labels{escape(entry.Name), escape(entry.Netns), escape(entry.Pod.String())}
		sum := sums[key]
		for i, n := range entry.Refused {
			sum[i] += n
		}
		sums[key] = sum
	}
	for i, kind := range refusedKinds {
		out.add(refusedPackets, float64(total[i]), kind)
		for key, sum := range sums {
			out.add(interfaceRefusedPackets, float64(sum[i]), key.iface, key.netns, key.sourcePod, kind)
		}
	}
}
