//go:build !dupip_next

package wire

// packetHeader begins a packet: a map, without fields yet.
const packetHeader = "\xa0"

// Next has the fields that the next version of the format adds. There are some with the build tag dupip_next only.
type Next struct{}
