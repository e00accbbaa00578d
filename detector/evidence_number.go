package detector

import (
	"fmt"
	"slices"
)

// evidenceNumbers are the numbers of evidence between nodes (CBOR, RFC 8949, of one byte). They do not change, whatever
// the order of strength is.
var evidenceNumbers = [...]byte{0: 0, Forwarded: 1, Data: 2, Announced: 3, Host: 4, Claimed: 5, Configured: 6}

// MarshalCBOR returns the number of the evidence, 0 for one that does not exist.
func (e Evidence) MarshalCBOR() ([]byte, error) {
	if int(e) >= len(evidenceNumbers) {
		e = 0
	}
	return []byte{evidenceNumbers[e]}, nil
}

// UnmarshalCBOR sets the evidence with a number: 0 for one that is not known, which a later version may have. It fails
// if that is no number of eight bits.
func (e *Evidence) UnmarshalCBOR(number []byte) error {
	if len(number) == 0 || len(number) > 2 || number[0]>>5 != 0 {
		return fmt.Errorf("evidence: %x is no number of eight bits", number)
	}
	*e = Evidence(max(0, slices.Index(evidenceNumbers[:], number[0])))
	return nil
}
