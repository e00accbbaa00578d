package peers

import (
	"encoding/binary"
	"fmt"
	"net"
)

// withoutAsker is a filter for libpcap that refuses the ARP packets that a MAC sends and
// those to it. They are found by the ARP packet, which begins at an offset: "arp[0]", or
// "ether[14]" for arpwatch, which puts "not vlan and" before the filter, and that moves
// libpcap's idea of where "arp" is.
func withoutAsker(mac net.HardwareAddr, layer string, begin int) string {
	high, low := binary.BigEndian.Uint32(mac), binary.BigEndian.Uint16(mac[4:])
	const sender, target = 8, 18
	at := func(offset int) string {
		return fmt.Sprintf("(%s[%d:4] == %#x and %s[%d:2] == %#x)", layer, begin+offset, high, layer, begin+offset+4, low)
	}
	return "not " + at(sender) + " and not " + at(target)
}
