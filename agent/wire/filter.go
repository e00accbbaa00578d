package wire

import (
	"encoding/binary"
	"net/netip"

	"github.com/mdlayher/arp"
	"golang.org/x/net/bpf"
)

// filterOf returns the filter of frames with ARP: replies, and what is announced unasked, to this node or to all, and requests from these addresses. What
// has the tag of a VLAN that the node does not have counts as others' (PACKET_OTHERHOST).
func filterOf(own []netip.Addr) []bpf.Instruction {
	refuse, accept := bpf.RetConstant{Val: 0}, bpf.RetConstant{Val: 128}
	list := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpLessOrEqual, Val: 2, SkipTrue: 1}, // PACKET_HOST, _BROADCAST, _MULTICAST
		refuse,
		bpf.LoadAbsolute{Off: 14, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: 0x0001_0800, SkipTrue: 1}, // Ethernet, IPv4
		refuse,
		bpf.LoadAbsolute{Off: 20, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(arp.OperationReply), SkipTrue: 1},
		accept,
		bpf.LoadAbsolute{Off: 38, Size: 4}, // the target
		bpf.TAX{},
		bpf.LoadAbsolute{Off: 28, Size: 4}, // the sender
		bpf.JumpIfX{Cond: bpf.JumpNotEqual, SkipTrue: 1},
		accept,
	}
	for _, ip := range own {
		four := ip.As4()
		list = append(list, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(four[:]), SkipTrue: 1}, accept)
	}
	return append(list, refuse)
}
