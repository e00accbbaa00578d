// Package document has what people, scripts and other nodes read: the types of the published JSON, how they are made of the
// detector's, selected, bounded and validated. The state file has them, too.
//
// They are a contract with scripts: fields are added, never renamed.
package document

import (
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

// Holder is who has an address: a network namespace of a node, or an interface where that is not seen.
type Holder struct {
	Node      string `json:"node" text:"id"`
	BootID    string `json:"boot,omitzero" text:"id"` // the node's boot id
	Interface string `json:"interface,omitzero"`
	Bridge    string `json:"bridge,omitzero"` // or bond, or VRF: what Interface is a port of
	Ifindex   uint32 `json:"ifindex,omitzero"`
	// Generation distinguishes interfaces that had the same Ifindex. An agent uses each number once.
	Generation  uint32       `json:"generation,omitzero"`
	MAC         detector.MAC `json:"mac,omitzero"`
	Netns       string       `json:"netns,omitzero"`
	NetnsCookie uint64       `json:"netnsCookie,omitzero"`
	// Given says whether a network plugin gave the holder the address, by the books of its node; absent if they do not say.
	Given detector.Given `json:"given,omitzero"`
	Pod   *Pod           `json:"pod,omitzero"`
}

// Binding is one observed holder of one address.
type Binding struct {
	Network string     `json:"network" text:"id"`
	IP      netip.Addr `json:"ip"`
	Holder
	Evidence  detector.Evidence `json:"evidence"`
	FirstSeen time.Time         `json:"firstSeen,omitzero"`
	LastSeen  time.Time         `json:"lastSeen,omitzero"`
	// FoundAtStart: the agent found the interface when it started, so the holder may have had the address
	// long before FirstSeen.
	FoundAtStart bool `json:"foundAtStart,omitzero"`
	Unreachable  bool `json:"unreachable,omitzero"` // the holder's node does not answer
	// Gone: the holder of a confirmed conflict has gone, or did not answer the last probes.
	Gone bool `json:"gone,omitzero"`
	// Facts are what its own node knows besides, of the holders of confirmed conflicts.
	Facts *Facts `json:"facts,omitzero"`
	// Listing is what the API server says of a holder of a confirmed conflict.
	Listing *Listing `json:"listing,omitzero"`
}

// Pod is a Kubernetes pod, as the container runtime reports it. It is absent if it is unknown.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	UID       string `json:"uid,omitzero"` // of a container its id
	// Engine is that of a container, which has no namespace; absent for a pod.
	Engine string `json:"engine,omitzero"`
	// CreatedAt is when the runtime made the pod's sandbox.
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Sandbox   string    `json:"sandbox,omitzero"` // the first 13 characters of its id, as crictl prints it
	Stopped   bool      `json:"stopped,omitzero"` // the sandbox is not ready
	// VM is the name of the virtual machine that the pod says it runs, VMI the UID of its VirtualMachineInstance.
	VM  string `json:"vm,omitzero"`
	VMI string `json:"vmi,omitzero"`
}

// Bindings is the response to GET /v1/bindings.
type Bindings struct {
	Node     string    `json:"node"`
	Bindings []Binding `json:"bindings"`
	Coverage
}

// BindingEvent is one line of GET /v1/bindings?watch=1. Type is added, changed or removed.
type BindingEvent struct {
	Type    string    `json:"type"`
	At      time.Time `json:"at"`
	Binding Binding   `json:"binding"`
}

// Error is the body of every response whose status is not 200.
type Error struct {
	Error string `json:"error"`
}

// Version is what "dupip version -o json" prints.
type Version struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	Arch    string `json:"arch"`
}
