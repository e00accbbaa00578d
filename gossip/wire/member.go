package wire

import (
	"crypto/sha256"
	"encoding/binary"
)

// MemberIDOf names the incarnation of an agent. It is never 0, which is no member.
//
// Two of 5,000 members have one ID with a chance of 1 in 10^12.
func MemberIDOf(name, boot string, epoch int64) MemberID {
	h := sha256.New()
	var b []byte
	for _, s := range []string{name, boot} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(s)))
		b = append(b, s...)
	}
	h.Write(binary.BigEndian.AppendUint64(b, uint64(epoch)))
	return max(MemberID(binary.BigEndian.Uint64(h.Sum(b[:0]))), 1)
}
