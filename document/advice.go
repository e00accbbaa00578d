package document

import "time"

// Advice is what to do about a conflict. It identifies a holder by its index in Conflict.Holders.
type Advice struct {
	// Newer is the holder that got the address last. Than is the holder that got it before Newer. Both are
	// absent if the order is unknown; Unknown is then the reason.
	Newer *int `json:"newer,omitzero"`
	Than  *int `json:"than,omitzero"`
	// Newer got the address AfterSeconds later than Than. By is the time that was compared: "created" (of
	// the sandboxes) or "firstSeen".
	By           string  `json:"by,omitzero"`
	AfterSeconds float64 `json:"afterSeconds,omitzero"`
	// Unknown is the reason why Newer is absent:
	//   - "found-at-start": an agent found the holder when it started, which tells no age
	//   - "together": the times are too close to each other
	//   - "another-order": the times of creation and of first seen contradict each other
	//   - "host": a node's own address has no age
	//   - "unreachable": a holder's node does not answer; check the node first
	//   - "two-nodes": two nodes run one pod; remove one of the nodes
	//   - "away": the newest holder came while its node and an elder one's had lost each other, see Away
	//   - "gone": with fewer than two live holders the conflict ends by itself
	Unknown string `json:"unknown,omitzero"`
	Away    *Away  `json:"away,omitzero"`
	// GivenByNodes: the newest holder was given the address by its own node, and only what other nodes report speaks
	// against it. Neither node can tell which holder is right: Remove is in order of age, and each may be the wrong one.
	GivenByNodes bool `json:"givenByNodes,omitzero"`
	// Held are the holders that prevent a removal now: their node does not answer, two nodes run their pod, or they have
	// gone.
	Held []int `json:"held,omitzero"`
	// Remove has all holders in the order in which to remove them, nodes last. The conflict ends when one
	// holder remains. Remove is empty if no holder should be removed now.
	Remove []Removal `json:"remove"`
}

// Away says that the nodes of two holders had lost each other when the newer one came: if the elder's node was given up
// meanwhile, its pod is an orphan, and the newer one is there in its place.
type Away struct {
	Elder int       `json:"elder"`
	Newer int       `json:"newer"`
	Nodes []string  `json:"nodes"` // the elder's and the newer one's
	From  time.Time `json:"from"`
	Until time.Time `json:"until"`
}

// Removal says how to remove a holder.
type Removal struct {
	Holder int `json:"holder"`
	// Because is the reason to remove this holder before those that follow: "stopped" (its sandbox is
	// stopped), "replaced" (a later sandbox has its pod's name), "not-given" (no network plugin gave it the address,
	// but one gave it to another holder), "newer" (it got the address last), "dark"
	// (no node sends packets to it), or "pod" (another holder is a node).
	Because string `json:"because,omitzero"`
	// Command removes the holder. It is safe for a shell. Run it on the node On, or anywhere if On is
	// empty. It is absent if the holder is a node, or no command is known.
	Command string `json:"command,omitzero"`
	On      string `json:"on,omitzero"`
	Address string `json:"address,omitzero"` // of On's agent, if known
	// Then are the commands to run after Command, for nodes whose neighbour entry has the holder's MAC.
	Then []Flush `json:"then,omitzero"`
}

// Flush removes the node On's neighbour entry for the address on Device. Command and Device are safe for
// a shell.
type Flush struct {
	Command string `json:"command"`
	On      string `json:"on"`
	Device  string `json:"device"`
}
