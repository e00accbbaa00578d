//go:build dupip_next

package wire

// packetHeader begins a packet. The map has one message of another kind already.
const packetHeader = "\xa1\x18\x40\x81\xa1\x01\x60" // {64: [{1: ""}]}

// Next has the fields that the next version of the format adds, to packets as a kind of message. The build tag
// dupip_next is for tests of clusters of two versions.
type Next struct {
	Messages [1]struct {
		Text string `cbor:"1,keyasint"`
	} `cbor:"64,keyasint"`
}
