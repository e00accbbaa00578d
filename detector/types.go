package detector

import (
	"cmp"
	"net/netip"
	"slices"
	"time"
)

// Key is an address in its network. It must have one holder.
type Key struct {
	// Network is the L3 domain, for example "default".
	Network string `cbor:"1,keyasint,omitzero"`
	// IP is never an IPv4-mapped IPv6 address and carries no zone.
	IP netip.Addr `cbor:"2,keyasint,omitzero"`
}

// Valid reports whether an agent may observe such a key: an address of a host, in a network.
func (k Key) Valid() bool { return k.Network != "" && ValidIP(k.IP) }

// ValidIP reports whether an address may be that of a host; those that are never compared are, too.
func ValidIP(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsUnspecified() && !ip.Is4In6() && ip.Zone() == ""
}

// Compare orders by network and address.
func (k Key) Compare(o Key) int { return cmp.Or(cmp.Compare(k.Network, o.Network), k.IP.Compare(o.IP)) }

// drills is TEST-NET-1 (RFC 5737), which no network should use.
var drills = netip.MustParsePrefix("192.0.2.0/24")

// IsForDrills reports whether drills have such addresses.
func (k Key) IsForDrills() bool { return k.Network == "default" && drills.Contains(k.IP) }

// HolderID identifies who has an address. It is comparable.
//
// Netns is the network namespace cookie (netns.Cookie, unique for a boot). When the netns cannot
// be found, Netns is 0, and Ifindex and Generation replace it. Otherwise Ifindex and Generation are 0, so
// that two interfaces of one pod are one holder.
//
// Node is the node's identity. The part before its first slash is the name for people. A holder is local
// if its Node is that of [Options], otherwise it is remote.
type HolderID struct {
	Node       string `cbor:"1,keyasint,omitzero"`
	Netns      uint64 `cbor:"2,keyasint,omitzero"`
	Ifindex    uint32 `cbor:"3,keyasint,omitzero"`
	Generation uint32 `cbor:"4,keyasint,omitzero"`
}

// Compare orders by node and netns.
func (id HolderID) Compare(o HolderID) int {
	return cmp.Or(
		cmp.Compare(id.Node, o.Node), cmp.Compare(id.Netns, o.Netns), cmp.Compare(id.Ifindex, o.Ifindex), cmp.Compare(id.Generation, o.Generation),
	)
}

// Interface is one life of a host-side device. Generation is unique while an agent runs, so a device with
// a reused ifindex is another Interface.
type Interface struct {
	Ifindex    uint32 `cbor:"1,keyasint,omitzero"`
	Generation uint32 `cbor:"2,keyasint,omitzero"`
}

// MAC is an Ethernet address. The zero value means unknown.
type MAC [6]byte

// Hearable returns the address, or one that nobody has if it is unknown.
func (m MAC) Hearable() MAC { return cmp.Or(m, MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}) }

// Pod names the workload behind a holder. All fields may be empty: detection works without names.
type Pod struct {
	Namespace string `cbor:"1,keyasint,omitzero"`
	Name      string `cbor:"2,keyasint,omitzero"`
	UID       string `cbor:"3,keyasint,omitzero"`
	// Engine is the container engine if it is a container and no pod: "docker", "podman", "nerdctl", "nomad", "lxc" or "nspawn", with
	// "rootless " before it if it is a user's. It has no Namespace, and UID is the engine's full id.
	Engine string `cbor:"4,keyasint,omitzero"`
}

// Holder describes who has an address, for people.
type Holder struct {
	ID HolderID `cbor:"1,keyasint,omitzero"`
	// Interface and InterfaceName say where on the node the holder was seen last.
	Interface     Interface `cbor:"2,keyasint,omitzero"`
	InterfaceName string    `cbor:"3,keyasint,omitzero"`
	MAC           MAC       `cbor:"4,keyasint,omitzero"`
	// NetnsName is the name under /run/netns, or "net:[inode]"; "host" for the node itself.
	NetnsName string `cbor:"5,keyasint,omitzero"`
	Pod       Pod    `cbor:"6,keyasint,omitzero"`
	// CreatedAt is when the pod's sandbox was made, zero if that is not known.
	CreatedAt time.Time `cbor:"7,keyasint,omitzero"`
	Sandbox   Sandbox   `cbor:"8,keyasint,omitzero"`
	// Given: whether a network plugin gave the holder this address. It differs between the bindings of one holder.
	Given Given `cbor:"9,keyasint,omitzero"`
	// Bridge is the bridge, bond or VRF of the node that the interface is a port of; empty if none.
	Bridge string `cbor:"10,keyasint,omitzero"`
	// Place is where on the node the address is, if that matters. It differs between the bindings of one holder.
	Place Place `cbor:"11,keyasint,omitzero"`
}

// Texts are all texts but the node's id, so that a reader can clean what another node says.
func (h *Holder) Texts() []*string {
	return []*string{
		&h.InterfaceName, &h.NetnsName, &h.Pod.Namespace, &h.Pod.Name, &h.Pod.UID, &h.Pod.Engine, &h.Sandbox.ID, &h.Sandbox.VM.UID, &h.Sandbox.VM.Name, &h.Bridge,
	}
}

// Given says whether a network plugin gave a holder its address, as its node's books have it. It is no evidence: it only
// helps to say which holder is the right one.
type Given uint8

// What the books say.
const (
	GivenUnknown Given = iota // no book says which addresses the holder was given
	GivenYes
	GivenNo // a book has what the holder was given, and this is not among it
)

// Sandbox is what the container runtime reports of the sandbox of a pod.
type Sandbox struct {
	// ID is the beginning of its id, as crictl prints it; empty if it is not known.
	ID string `cbor:"1,keyasint,omitzero"`
	// Stopped: no process runs in the sandbox. It is left over, or about to be removed.
	Stopped bool `cbor:"2,keyasint,omitzero"`
	VM      VM   `cbor:"3,keyasint,omitzero"`
}

// VM is the virtual machine that a pod runs, by labels that anybody may give a pod: see [migrations] for what little follows from it.
type VM struct {
	// UID is that of its VirtualMachineInstance; empty if the pod runs none.
	UID  string `cbor:"1,keyasint,omitzero"`
	Name string `cbor:"2,keyasint,omitzero"`
}

// Evidence is how a binding is known. A higher value is stronger.
type Evidence uint8

// The kinds of evidence. All but Forwarded and Silent support a suspicion, but two claims alone do not.
const (
	Forwarded  Evidence = iota + 1 // the holder emits or answers for an address it does not have
	Silent                         // the holder has the address, uses it or has announced it, and does not answer. Only callers see this: else it is Forwarded
	Claimed                        // it announced the address unasked on one device, and has it on another
	Configured                     // its kernel has the address, valid and on a device that is up; nothing there can answer a probe
	Data                           // it sent IP packets with that source
	Announced                      // it announced the address (ARP sender, neighbour advertisement, an answer)
	Host                           // the node's own address
)

// Scope says where the holders of a conflict are.
type Scope uint8

// The scopes of a conflict.
const (
	SameNode Scope = iota + 1
	CrossNode
	PodHost
	NodeNode // all holders are nodes themselves
)

// State is a state of a conflict. The package comment shows the changes between them.
type State uint8

// The states of a conflict. A suspicion that fades has no state: it was no conflict.
const (
	Suspected State = iota + 1
	Confirmed
	Resolved
)

// Sighting is one observation of an address behind an interface.
type Sighting struct {
	Key      Key
	Holder   Holder
	Evidence Evidence
	// Answer: the sighting is an ARP reply, a neighbour advertisement, or a list of the node's own
	// addresses or, with Configured, of those of the holder's kernel. A round of probes waits for an answer.
	Answer bool
	// Overheard: somebody else had asked for the answer.
	Overheard bool
	// Listed: the kernel of a local holder has the address, so that the holder does not only forward.
	Listed bool
	// Late is how long an answer took that came too late to be one; 0 for all others.
	Late time.Duration
	// At is when the packet was seen, on the clock of `now`. For a remote holder, it is when the
	// holder's node confirmed the binding last or, if Answer is set, when the holder answered.
	At time.Time
	// FirstSeen is when the holder was first seen with the address; zero means At.
	FirstSeen time.Time
	// FoundAtStart: as in [Binding].
	FoundAtStart bool
	// Life is that of a remote holder's binding at its node; 0 if it is not known.
	Life uint64
	// Occurrences is the number of resolved conflicts of the key that the node of a remote holder knows
	// of.
	Occurrences int
}

// Binding is one holder of one key.
type Binding struct {
	Key       Key
	Holder    Holder
	Evidence  Evidence
	FirstSeen time.Time
	LastSeen  time.Time
	// FoundAtStart: the holder had the address when its node's agent started. FirstSeen is then when
	// the agent found it, not since when the holder has the address.
	FoundAtStart bool
	// Life is another one each time that the node begins to know the holder: between two lives the holder may not have had the address. Only
	// [Detector.LocalHolders] says it.
	Life uint64
	// Unreachable: the holder is on another node, which did not reply to the last probe request.
	Unreachable bool
	// Gone: the holder of a confirmed conflict was lost, or did not answer the last round of probes: it has gone, or is
	// going. Nothing should be removed by its name, which may be a successor's by now.
	Gone bool
}

// CompareAge orders the holders of a key, the oldest first.
func CompareAge(a, b Binding) int {
	return cmp.Or(a.FirstSeen.Compare(b.FirstSeen), a.Holder.ID.Compare(b.Holder.ID))
}

// Counts reports whether such a binding supports a suspicion: whether the holder has the address, and does not only forward.
func (e Evidence) Counts() bool { return e >= Claimed }

// Conflict is one key with two or more live holders.
type Conflict struct {
	// ID is a hash of network and IP followed by the occurrence: "5f3a9b21-1".
	ID    string
	Key   Key
	State State
	Scope Scope
	// SecondSeen is when the second holder was first seen, the start of the detection delay.
	// SuspectedAt, ConfirmedAt and ResolvedAt are zero until the conflict reaches that state.
	SecondSeen  time.Time
	SuspectedAt time.Time
	ConfirmedAt time.Time
	ResolvedAt  time.Time
	// Holders are ordered by FirstSeen, the oldest first.
	Holders []Binding
	// Pending is why a suspected conflict is not confirmed yet, a clause for people.
	Pending string
}

// IsDrill reports whether pods have the address on purpose, as those of "dupip drill", to see that conflicts are found. A drill
// is found like any other conflict, but is counted apart, and nobody is alerted. A cluster that uses the addresses of drills has
// conflicts: if a network plugin gave the address to a holder, or it is a node's. All nodes agree, because they know the holders.
func (c *Conflict) IsDrill() bool {
	return c.Key.IsForDrills() && c.Scope < PodHost && !slices.ContainsFunc(c.Holders, func(b Binding) bool { return b.Holder.Given == GivenYes })
}

// EventKind is the kind of an [Event].
type EventKind string

// The kinds of events, by the names that documents and logs have.
const (
	EventSuspected EventKind = "suspected"
	EventConfirmed EventKind = "confirmed"
	EventChanged   EventKind = "changed" // an open conflict gained or lost a holder and stays open, or the pod of a holder is known now
	EventResolved  EventKind = "resolved"
	EventFaded     EventKind = "faded" // a suspicion ended without a conflict; ordinary reuse of an address
)

// Event is one step of one conflict. Conflict is a copy.
type Event struct {
	Kind     EventKind
	At       time.Time
	Conflict Conflict
	// Lost are the holders that an EventChanged removed from the conflict, as they were.
	Lost []Binding
	// Reason is one short clause for people: "netns pod-a is gone".
	Reason string
	// Restored: a previous agent confirmed this conflict. EventConfirmed then means that it was
	// verified again, which must not be counted as another detection.
	Restored bool
}

// Effects is what the caller has to do after a call. It is empty for most sightings.
type Effects struct {
	Probes []Probe
	Events []Event
	// Refused is why a sighting was dropped, one of [Counts.Refused]; empty if it was not.
	Refused string
}

// NoteKind says what a [Note] is about.
type NoteKind string

// The kinds of notes, by the names that documents have.
const (
	NoteSeen         NoteKind = "seen"
	NoteEvidence     NoteKind = "evidence"
	NoteWithdrawn    NoteKind = "withdrawn"
	NoteExpired      NoteKind = "expired"
	NoteProbed       NoteKind = "solicited"
	NoteProbeRefused NoteKind = "not-solicited"
	NoteAnswered     NoteKind = "answered"
	NoteUnanswered   NoteKind = "unanswered"
	NoteConflict     NoteKind = "conflict"
)

// Note is one line in the story of one address.
type Note struct {
	At   time.Time
	Kind NoteKind
	// Holder is whom it is about: its identity, and its names as they were last known.
	Holder Holder
	// Text is one short clause for people.
	Text string
}

// Story is what the detector knows of one key: bindings, conflict and notes.
type Story struct {
	Key      Key
	Bindings []Binding
	// Conflict is the open conflict, or the last resolved one; nil if there was none.
	Conflict *Conflict
	// Former are the last 8 holders on this node that are gone, the last one first. LastSeen is when that was.
	Former []Binding
	// Notes are in order of time; the oldest are dropped first.
	Notes []Note
	// Verdict is one sentence for people: why this is or is not a conflict.
	Verdict string
}

// Purpose is the reason why a holder is probed.
type Purpose string

// The purposes of a probe, by the names that logs and labels have. Verification has priority when the rate is limited.
const (
	// Verify a suspicion or conflict.
	Verify Purpose = "verify"
	// Refresh keeps a silent binding alive.
	Refresh Purpose = "refresh"
)

// Probe tells the agent to probe a holder. The agent probes a local holder on that interface, and reports [Detector.Probed]: Sent or
// Refused. It observes an answer like any packet. For a remote holder, the agent sends a probe request to its node; Interface is then
// zero and Purpose is Verify. Then it reports one of [Detector.Observe] (Answer is set) and [Detector.Probed].
type Probe struct {
	Key       Key
	Holder    HolderID
	Interface Interface
	Purpose   Purpose
	// Round is the number of the round, so that a late report of an earlier round is ignored. Return
	// it unchanged; zero means the present round.
	Round uint32
	// Hear, unless it is zero: the holder on this node and the remote one are a conflict only if they are on one segment, see [MustHear]. So
	// this node has to hear an answer of that MAC for the address before the holder's node is asked.
	Hear MAC
}

// ProbeRefusal is why a [Probe] was not sent. The zero value says that it was.
type ProbeRefusal struct {
	// Reason is one short clause for people.
	Reason string
	// Until is when to try again; zero when only something new can change it.
	Until time.Time
	// Budget says that the node's budget of probes is used up.
	Budget bool
}

// Outcome is what became of a probe.
type Outcome uint8

// The outcomes of a probe, by their numbers between nodes.
const (
	Answered    Outcome = iota + 1 // the holder answered its agent after the request had arrived
	Unanswered                     // it was probed and did not answer
	Forwards                       // it answered, but for an address it does not have
	Gone                           // the node has no such holder of the address, or not any more
	Refused                        // a guard forbids to probe it
	Unreachable                    // the node did not reply. Never on the wire
	Sent                           // to a local holder. Never on the wire
)

// Result is what became of a probe, but for an answer.
type Result struct {
	Outcome Outcome
	// Reason is one short clause for people, if the holder is gone or a guard forbids to probe it.
	Reason string
	// Until is when a guard allows to probe the holder; zero if no time is known.
	Until time.Time
}
