package document

import (
	"net/netip"
	"time"
)

// Facts are what a holder's own node knows of it besides what it observes: nobody else may say it. What is not known is absent.
type Facts struct {
	Behind Behind `json:"behind,omitzero"`
	// GivenOthers are the addresses that CNI's result gives the holder's interface, if this one is not among them.
	GivenOthers []netip.Addr `json:"givenOthers,omitzero"`
	// CNINetwork is the network of CNI's configuration that the holder's interface is in, as in [Book].
	CNINetwork string `json:"cniNetwork,omitzero"`
	// NetnsPath is where the netns is mounted on the node, NetnsInode its number, as in "net:[4026531840]".
	NetnsPath  string `json:"netnsPath,omitzero"`
	NetnsInode uint64 `json:"netnsInode,omitzero"`
	// Process is one of the netns, if it is not a pod's.
	Process *Process `json:"process,omitzero"`
	// Machine describes an address of the node itself.
	Machine *Machine `json:"machine,omitzero"`
}

// Behind says what is behind a holder, by the runtime and the processes of its node.
type Behind string

// What is behind a holder.
const (
	BehindRunning   Behind = "running"   // the runtime has its sandbox, which is ready
	BehindAlive     Behind = "alive"     // its netns has a process, and the runtime has no sandbox of it that is ready
	BehindStopped   Behind = "stopped"   // the runtime says that its sandbox has stopped, and its netns has no process
	BehindForgotten Behind = "forgotten" // the runtime knows no sandbox of it, and its netns has no process
)

// Process is a process of a netns, on the node.
type Process struct {
	PID     int    `json:"pid"`
	Command string `json:"command"`       // its name, at most 15 bytes
	Unit    string `json:"unit,omitzero"` // the service of systemd that it belongs to
}

// Machine describes an address of a node itself.
type Machine struct {
	Device string       `json:"device"`
	Prefix netip.Prefix `json:"prefix"` // the address with the length of its subnet
	// Dynamic: the address has a lifetime (DHCP, SLAAC). Since is when it was configured, by the kernel.
	Dynamic bool      `json:"dynamic,omitzero"`
	Since   time.Time `json:"since,omitzero"`
	// Manager is the program that has probably set it, one of [Managers].
	Manager string `json:"manager,omitzero"`
}

// Managers are the programs that give an address to one node after another, by the names of their processes.
var Managers = []string{"keepalived", "kube-vip", "pacemakerd", "ucarp", "vrrpd"}

// Judgement is what dupip concludes from all facts of a confirmed conflict's document. Every surface prints the same one.
type Judgement struct {
	// Holders has each index of Conflict.Holders once, in the order in which they have to go: those that stay are last.
	Holders []Judged `json:"holders"`
	// Cause is why the address has several holders, one of the causes. Confidence is "certain", "likely" or "open": then the facts do not
	// decide which live holder has to go.
	Cause      string `json:"cause"`
	Confidence string `json:"confidence"`
	// Nodes are those that the cause is about, by NodeID, if it is about nodes.
	Nodes []string `json:"nodes,omitzero"`
	Away  *Away    `json:"away,omitzero"` // of cause "away"
	// Short is one sentence; Text says all, for people. Steps are what to do, in this order.
	Short string `json:"short" text:"sentence"`
	Text  string `json:"text" text:"sentence"`
	Steps []Step `json:"steps"`
}

// Judged is the verdict on one holder.
type Judged struct {
	Holder  int    `json:"holder"`  // index in Conflict.Holders
	Verdict string `json:"verdict"` // "remove", "keep" or "open"
	Reason  string `json:"reason,omitzero"`
	// By names the other node whose facts decide against the holder, empty if those of its own node do.
	By string `json:"by,omitzero"`
}

// Verdicts about a holder.
const (
	Remove = "remove"
	Keep   = "keep"
	Open   = "open"
)

// Confidences of a judgement.
const (
	Certain   = "certain"
	Likely    = "likely"
	Undecided = "open"
)

// Reasons of verdicts.
const (
	ReasonGone        = "gone"         // remove: it has gone, or does not answer any more: nothing is to be done
	ReasonStopped     = "stopped"      // remove: its sandbox has stopped, and nothing runs in it
	ReasonForgotten   = "forgotten"    // remove: the runtime does not know it any more, and nothing runs in it
	ReasonReplaced    = "replaced"     // remove: as "not-reserved", and the other holder has its pod's name: it was made in its place
	ReasonNotGiven    = "not-given"    // remove: no network plugin gave it the address, but one gave it to another holder
	ReasonNotReserved = "not-reserved" // remove: it was given the address, but the book of its node, or of the cluster, has it reserved for another holder
	ReasonUnlisted    = "unlisted"     // remove: the API server has no such pod, but that of another holder
	ReasonNewer       = "newer"        // remove: nobody was given the address, and it came last
	ReasonOnNode      = "on-node"      // remove: it is a pod with the address of a node, which is older or permanent, or which no plugin gave to the pod
	ReasonLifetime    = "lifetime"     // remove: it is a node whose address has a lifetime and is younger than the pod that was given it
	ReasonGiven       = "given"        // keep: it was given the address
	ReasonReserved    = "reserved"     // keep: it was given the address, and has it reserved
	ReasonNode        = "node"         // keep: it is a node, whose address the pods should not have
	ReasonOlder       = "older"        // keep: nobody was given the address, and it came first
	ReasonLast        = "last"         // keep: nothing is alive behind the others
)

// Causes of a conflict.
const (
	CauseEnding      = "ending"           // fewer than two holders are left: it ends by itself
	CauseComing      = "coming"           // facts of a holder are still on their way: wait
	CauseLeftOver    = "left-over"        // a holder with nothing alive behind it, or one that was replaced, was not removed
	CauseByHand      = "by-hand"          // a holder has an address that no network plugin gave it
	CauseLost        = "reservation-lost" // a book has lost a holder's reservation, and gave the address out again
	CauseDeleted     = "node-deleted"     // the Node of a holder was deleted, and its pods run on
	CauseUnlisted    = "unlisted"         // a pod runs that the API server does not have any more
	CauseSharedRange = "shared-range"     // several nodes, or networks of a node, give out the addresses of one range
	CauseNamesakes   = "namesakes"        // two machines have one node name
	CauseClone       = "clone"            // two nodes run one pod
	CauseNodeAddress = "node-address"     // a pod has an address of a node
	CauseTwoNodes    = "two-nodes"        // two nodes have it for themselves, such as a virtual address
	CauseUnreachable = "unreachable"      // the node of a holder does not answer
	CauseAway        = "away"             // the nodes had lost each other when the last holder came
	CauseUnknown     = "unknown"          // the facts do not decide
)

// Step is one thing to do.
type Step struct {
	// If is the condition under which the step is right, empty for none.
	If   string `json:"if,omitzero" text:"sentence"`
	Text string `json:"text" text:"sentence"`
	// Command is safe for a shell, and hits the holder that it was made for, or nothing, even much later. Run it on the node Node, or
	// anywhere if Node is empty. Address is that of Node's agent, where another node has its name. File: the command is lines for this file.
	Command string `json:"command,omitzero" text:"command"`
	Node    string `json:"node,omitzero"`
	Address string `json:"address,omitzero"`
	Cuts    string `json:"cuts,omitzero" text:"sentence"` // what stops to work
	File    string `json:"file,omitzero"`
}

// Away says that the nodes of two holders had lost each other when the newer one came: if the elder's node was given up meanwhile, its
// pod is an orphan, and the newer one is there in its place.
type Away struct {
	Elder int       `json:"elder"` // indexes in Conflict.Holders
	Newer int       `json:"newer"`
	Nodes []string  `json:"nodes"` // the elder's and the newer one's
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}
