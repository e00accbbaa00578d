package document

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Conflict is one address that has, or had, several live holders. Holders that are gone are not in Holders,
// so a suspected or resolved conflict may have fewer than two.
type Conflict struct {
	ID          string         `json:"id" text:"id"`
	Network     string         `json:"network" text:"id"`
	IP          netip.Addr     `json:"ip"`
	State       detector.State `json:"state"`
	Scope       detector.Scope `json:"scope"`
	SecondSeen  time.Time      `json:"secondSeen,omitzero"`
	SuspectedAt time.Time      `json:"suspectedAt,omitzero"`
	ConfirmedAt time.Time      `json:"confirmedAt,omitzero"`
	ResolvedAt  time.Time      `json:"resolvedAt,omitzero"`
	Holders     []Binding      `json:"holders"`
	// Drill: the address is of 192.0.2.0/24 (TEST-NET-1) in network default, no network plugin gave it to a holder, and no
	// node has it. Pods have it on purpose, to see that conflicts are found, and nothing is to be done.
	Drill bool `json:"drill,omitzero"`
	// Pending is why a suspected conflict is not confirmed yet, a clause for people.
	Pending string `json:"pending,omitzero" text:"sentence"`
	// Acknowledged: somebody works on it.
	Acknowledged *Ack `json:"acknowledged,omitzero"`
	// Books are what the books of the holders' nodes say of the address, if they were read since there are two; when it is over, what they
	// said at first.
	Books []Book `json:"books,omitzero"`
	// Shared counts the addresses that two nodes with holders share, in confirmed conflicts, as far as one of them knows; 0 for this one only.
	Shared int `json:"shared,omitzero"`
	// Routes and Judgement are present for the first 64 confirmed conflicts that are no drills, in /v1/conflicts and
	// /v1/explain.
	Routes    []Route    `json:"routes,omitzero"`
	Judgement *Judgement `json:"judgement,omitzero"`
}

// Route is where the kernel of a node sends its own packets to the address of a conflict.
type Route struct {
	Node   string `json:"node"`
	BootID string `json:"boot,omitzero"` // the node's boot id
	// To is the kind of the destination:
	//   - "holder": the holder with the index Holder
	//   - "node": another node, ToNode
	//   - "away": a host that is no node of the cluster
	//   - "device": a device that leads to no known holder
	//   - "self": the node itself
	//   - "nowhere": there is no route
	//   - "unknown": a bridge that has no neighbour entry for the address
	To       string     `json:"to"`
	Holder   *int       `json:"holder,omitzero"` // index in Conflict.Holders
	ToNode   string     `json:"toNode,omitzero"`
	ToBootID string     `json:"toBoot,omitzero"`
	Device   string     `json:"device,omitzero"`  // outgoing, or what the route of "self" names
	Gateway  netip.Addr `json:"gateway,omitzero"` // next hop, if any
	// Prefix is what the route is for, in Table, where Protocol has put it. Proxy is the device on which the node answers ARP or NS for the
	// address, ProxyBy how it comes to that: an end of a [Finding].
	Prefix   netip.Prefix `json:"prefix,omitzero"`
	Table    int          `json:"table,omitzero"`
	Protocol string       `json:"protocol,omitzero"`
	Proxy    string       `json:"proxy,omitzero"`
	ProxyBy  string       `json:"proxyBy,omitzero"`
	// Between agents only. Ends: it leads to pods of the node only, and not to one that has the address. Policy: rules of the node look at more than the destination, so that
	// packets which it forwards may go elsewhere.
	Ends   bool `json:"ends,omitzero"`
	Policy bool `json:"policy,omitzero"`
}

// NodeID identifies the node whose route it is, as [cluster.NodeID].
func (r Route) NodeID() string { return cluster.NodeID(r.Node, r.BootID) }

// ToNodeID identifies the other node.
func (r Route) ToNodeID() string { return cluster.NodeID(r.ToNode, r.ToBootID) }

// The kinds of the destination of a [Route].
const (
	ToHolder  = "holder"
	ToNode    = "node"
	ToAway    = "away"
	ToDevice  = "device"
	ToSelf    = "self"
	ToNowhere = "nowhere"
	ToUnknown = "unknown"
)

// Conflicts is the response to GET /v1/conflicts.
type Conflicts struct {
	Node      string     `json:"node"`
	Conflicts []Conflict `json:"conflicts"`
	Pairs     []Pair     `json:"pairs,omitzero"`
	Coverage
}

// ConflictEvent is one line of GET /v1/conflicts?watch=1. Type is suspected, confirmed, changed,
// resolved or faded. A watch begins with the open conflicts; Type is then their state.
type ConflictEvent struct {
	Type     string    `json:"type"`
	At       time.Time `json:"at"`
	Reason   string    `json:"reason,omitzero"`
	Conflict Conflict  `json:"conflict"`
}

// Captures is the response to GET /v1/captures?ip=: what the holders of a suspected address sent, from the suspicion on.
type Captures struct {
	Node     string     `json:"node"`
	IP       netip.Addr `json:"ip"`
	Captures []Capture  `json:"captures"` // in the order of Since
	// Unchecked says on which nodes nothing is captured, and why.
	Unchecked []string `json:"unchecked,omitzero" text:"sentence"`
	Coverage
}

// Capture is what one holder sent in one conflict. Its agent keeps that in memory, for the last 1,000 holders.
type Capture struct {
	Conflict string     `json:"conflict"` // its id
	Network  string     `json:"network"`
	IP       netip.Addr `json:"ip"`
	Since    time.Time  `json:"since,omitzero"` // when the conflict was suspected, or the holder came
	Until    time.Time  `json:"until,omitzero"` // when the conflict ended, or the holder left it
	Holder
	// Frames are at most 64: 16 answers to dupip's probes, 16 other answers of ARP and NDP, 16 other packets of these, and 16
	// of all others.
	Frames []Frame `json:"frames"`
	Lost   int     `json:"lost,omitzero"` // frames that came too fast
}

// Frame is a packet that came out of a pod, beginning with its Ethernet header.
type Frame struct {
	At     time.Time `json:"at"`
	Length int       `json:"length"` // of the whole packet, before its kernel has segmented it
	// Data is the packet, in base64, if it is one of ARP or NDP. Of any other it is the headers up to that of layer 4.
	Data []byte `json:"data"`
}
