package document

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// ErrNoSuchNode is returned (wrapped) by a [Backend] if no node has the name in [Query].
var ErrNoSuchNode = errors.New("no such node")

// Query selects the content of a document. Its zero value selects what is current on this agent.
type Query struct {
	IP     netip.Addr   // this address only; the zero Addr is all
	Prefix netip.Prefix // the addresses of this prefix only; the zero Prefix is all
	All    bool         // resolved conflicts, too
	// Since is how long ago a resolved conflict may have ended: those were open at some time since then. 0 is any time.
	Since   time.Duration
	Cluster bool   // the other agents, too
	Node    string // only agents with this node name, which may be the own one

	// Only what concerns these; empty is all. A conflict concerns a pod that is one of its holders. Pod is "name" or
	// "namespace/name".
	Namespace, Pod, Network string
	State                   string // of conflicts or nodes

	// Ack is what somebody who works on the conflicts of IP says.
	Ack cluster.Ack
}

// States are the values of [Query].State for documents that have it. With the state of resolved conflicts, All is implied.
var (
	ConflictStates = []string{"confirmed", "suspected", "resolved"}
	NodeStates     = []string{"alive", "suspect", "dead", "left"}
)

// MaxSince bounds [Query].Since.
const MaxSince = 10 * 365 * 24 * time.Hour

// ParseSince reads [Query].Since, which implies All.
func ParseSince(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d <= 0 || d > MaxSince {
		return 0, fmt.Errorf("must be a duration such as 30m or 12h, at most %.0fh", MaxSince.Hours())
	}
	return d, nil
}

// SelectsKey reports whether q is about an address, whatever pods have it.
func (q Query) SelectsKey(k detector.Key) bool {
	return (q.Network == "" || q.Network == k.Network) && (!q.IP.IsValid() || k.IP == q.IP) && (!q.Prefix.IsValid() || q.Prefix.Contains(k.IP))
}

// SelectsBinding reports whether q is about a binding of one of its nodes.
func (q Query) SelectsBinding(b Binding) bool {
	return q.SelectsKey(detector.Key{Network: b.Network, IP: b.IP}) && q.SelectsPod(b.Pod)
}

// SelectsConflict reports whether q is about a conflict.
func (q Query) SelectsConflict(c Conflict) bool {
	return q.SelectsKey(c.Key()) && (q.State == "" || c.State.String() == q.State) &&
		(q.Since == 0 || c.State != detector.Resolved || time.Since(c.ResolvedAt) <= q.Since) &&
		(q.SelectsPod(nil) || slices.ContainsFunc(c.Holders, func(b Binding) bool { return q.SelectsPod(b.Pod) }))
}

// SelectsFinding reports whether q is about a finding: either pod counts.
func (q Query) SelectsFinding(f Finding) bool {
	return q.SelectsKey(detector.Key{Network: f.CNINetwork, IP: f.IP}) && (q.SelectsPod(f.Pod) || f.ReservedPod != nil && q.SelectsPod(f.ReservedPod))
}

// SelectsPod reports whether q is about a pod, nil for an unknown one.
func (q Query) SelectsPod(pod *Pod) bool {
	if q.Namespace == "" && q.Pod == "" {
		return true
	}
	return pod != nil && (q.Namespace == "" || q.Namespace == pod.Namespace) && (q.Pod == "" || q.Pod == pod.Name || q.Pod == pod.String())
}
