package api

import "time"

// Evidence is the response to GET /v1/evidence?ip=: what the holders of a suspected address sent, from the suspicion on.
type Evidence struct {
	Node     string    `json:"node"`
	IP       string    `json:"ip"`
	Captures []Capture `json:"captures"` // in the order of Since
	// Unchecked says on which nodes nothing is captured, and why.
	Unchecked []string         `json:"unchecked,omitzero"`
	Coverage  `yaml:",inline"` // its fields are fields of this document, in JSON and YAML
}

// Capture is what one holder sent in one conflict. Its agent keeps that in memory, for the last 1,000 holders.
type Capture struct {
	Node      string    `json:"node"`
	BootID    string    `json:"boot,omitzero"` // the node's boot id
	Conflict  string    `json:"conflict"`      // its id
	Network   string    `json:"network"`
	IP        string    `json:"ip"`
	Since     time.Time `json:"since,omitzero"` // when the conflict was suspected, or the holder came
	Until     time.Time `json:"until,omitzero"` // when the conflict ended, or the holder left it
	Interface string    `json:"interface,omitzero"`
	Netns     string    `json:"netns,omitzero"`
	MAC       string    `json:"mac,omitzero"`
	Pod       *Pod      `json:"pod,omitzero"`
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
