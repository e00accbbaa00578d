package document

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// Note is one event in the story of an address, recorded by Node.
type Note struct {
	At     time.Time `json:"at"`
	Kind   string    `json:"kind"`
	Node   string    `json:"node"`
	BootID string    `json:"boot,omitzero"` // the node's boot id
	// Holder is whom it is about, as far as is known; absent if it is about the conflict.
	Holder *Holder `json:"holder,omitzero"`
	Text   string  `json:"text" text:"sentence"`
}

// NodeID identifies the node that recorded it, as [cluster.NodeID].
func (n Note) NodeID() string { return cluster.NodeID(n.Node, n.BootID) }

// Story is what Nodes know about one address in one network: verdict, bindings, conflict and past events.
type Story struct {
	Network  string     `json:"network"`
	IP       netip.Addr `json:"ip"`
	Nodes    []string   `json:"nodes"`
	Verdict  string     `json:"verdict" text:"sentence"`
	Verdicts []Verdict  `json:"verdicts,omitzero"` // if the nodes have different ones
	Bindings []Binding  `json:"bindings"`
	Conflict *Conflict  `json:"conflict,omitzero"`
	// Former are the last 8 holders that are gone, the last one first: firstSeen and lastSeen are when their time began and ended.
	Former []Binding `json:"former,omitzero"`
	Notes  []Note    `json:"notes"`
}

// NewStory returns the document of what the detector of a node knows.
func NewStory(node cluster.Member, s detector.Story) Story {
	doc := Story{Network: s.Key.Network, IP: s.Key.IP, Verdict: s.Verdict, Bindings: make([]Binding, 0, len(s.Bindings)), Notes: make([]Note, 0, len(s.Notes))}
	for _, b := range s.Bindings {
		doc.Bindings = append(doc.Bindings, NewBinding(b))
	}
	if s.Conflict != nil {
		doc.Conflict = new(NewConflict(*s.Conflict))
	}
	for _, b := range s.Former {
		doc.Former = append(doc.Former, NewBinding(b))
	}
	for _, n := range s.Notes {
		note := Note{At: n.At.Round(0), Kind: string(n.Kind), Node: node.Name, BootID: node.Boot, Text: n.Text}
		if n.Holder.ID != (detector.HolderID{}) {
			note.Holder = new(NewHolder(n.Holder))
		}
		doc.Notes = append(doc.Notes, note)
	}
	return doc
}

// Verdict is the verdict of those nodes.
type Verdict struct {
	Nodes   []string `json:"nodes"`
	Verdict string   `json:"verdict"`
}

// Configured is a pod interface of this node whose netns has the address, or a local route to it, by the kernel's lists and
// not by observed packets.
type Configured struct {
	Network   string `json:"network"`
	Interface string `json:"interface"`
	Netns     string `json:"netns"`
	Pod       *Pod   `json:"pod,omitzero"`
	// Device is the kind of the device in the pod that has the address: "peer" (the other end of the
	// interface), "loopback" or "elsewhere". The pod is a holder only by an address on the first two.
	Device     string `json:"device"`
	Settled    bool   `json:"settled"`             // duplicate address detection has ended, and the address is in use
	Lost       bool   `json:"lost,omitzero"`       // duplicate address detection failed: the kernel does not use the address
	Unanswered int    `json:"unanswered,omitzero"` // unanswered probes, if the address was never observed
}

// Explanation is the response to GET /v1/explain?ip=.
type Explanation struct {
	Node   string     `json:"node"`
	BootID string     `json:"boot,omitzero"` // of the node, because another one may have its name
	IP     netip.Addr `json:"ip"`
	// NeverCompared says what the address is if its holders are never compared: "loopback", "link-local", "multicast" or
	// "unspecified".
	NeverCompared string       `json:"neverCompared,omitzero"`
	Stories       []Story      `json:"stories"`
	Configured    []Configured `json:"configured,omitzero"`
	Books         []Book       `json:"books,omitzero"` // those that cover the address or have it, of all nodes that were asked
	// Findings are those of the routes of nodes that were asked, and Routes where each of these sends packets to the address, unless a
	// conflict has them.
	Findings []Finding `json:"findings,omitzero"`
	Routes   []Route   `json:"routes,omitzero"`
	Coverage
}
