package document

import (
	"net/netip"
	"time"
)

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
