package metrics

import (
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Label values that are exported from the start with 0, so that rates include the first event.
var (
	interfaceStates = []string{
		"attached", "pending", "shadowed", "waiting", "failed", "unsupported", "ignored", "uplink",
		"unseen_netns", "node_only", "moved", "renamed", // no states: they count interfaces of other states again
	}
	memberStates = []string{
		string(cluster.Alive), string(cluster.Suspect), string(cluster.Dead), string(cluster.Left),
	}
	messageTypes = []string{
		"lease", "ack", "conflict_notice", "probe_request", "probe_reply", "report", "resend", "query", "query_reply",
	}
)

func exportDetector(s DetectorStats, out *series) {
	for scope := detector.SameNode; scope <= detector.PodHost; scope++ {
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
	for evidence := detector.Forwarded; evidence <= detector.Host; evidence++ {
		out.add(bindings, float64(s.Counts.Bindings[evidence]), evidence.String())
	}
	exportConflicts(s.Open, out)
}

func exportAgent(s AgentStats, out *series) {
	addByLabel(out, dropped, s.Dropped)
	addByLabel(out, suppressed, s.Suppressed)
	for _, purpose := range []detector.Purpose{detector.Verify, detector.Refresh} {
		out.add(solicitations, float64(s.Solicitations[purpose]), string(purpose))
	}
	out.add(recordsPending, float64(s.Pending))
	out.add(hostOmitted, float64(s.HostOmitted))
	out.add(netlinkOverruns, float64(s.NetlinkOverruns))
}

func exportCluster(s ClusterStats, out *series) {
	for _, state := range memberStates {
		out.add(gossipMembers, float64(s.Status.Members[cluster.State(state)]), state)
	}
	out.add(gossipReporters, float64(len(s.Status.Reporters)))
	out.add(gossipNamesakes, float64(s.Namesakes))
	out.add(gossipLeases, float64(s.Status.Leases))
	out.add(gossipUnacked, float64(s.Status.Unacked))
	out.add(gossipKept, float64(s.Status.Kept))
	addByLabel(out, gossipSent, s.Status.Sent, messageTypes...)
	addByLabel(out, gossipReceived, s.Status.Received, messageTypes...)
	addByLabel(out, gossipDropped, s.Status.Dropped)
	out.add(gossipProblems, float64(len(s.Status.Problems)))
}

func exportRuntime(s PodStats, out *series) {
	out.add(podsConnected, boolToFloat(s.Connected))
	out.add(podsKnown, float64(s.Known))
}

func exportStateFile(s StateStats, out *series) {
	out.add(stateSuccess, boolToFloat(s.Err == nil))
	out.addTime(stateTimestamp, s.LastWrite)
	out.add(stateSize, float64(s.Bytes))
}

func exportConfig(s ConfigStats, out *series) {
	out.add(configSuccess, boolToFloat(s.Err == nil))
	out.addTime(configTimestamp, s.LoadedAt)
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
	for _, left := range s.Left {
		key := RangeLeft{Book: left.Book, Network: escape(left.Network)}
		if !seen[key] && len(seen) < maxRanges {
			seen[key] = true
			out.add(rangeLeft, left.Ratio, key.Book, key.Network)
		}
	}
}
