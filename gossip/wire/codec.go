package wire

import (
	"encoding/binary"
	"math"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
)

// Flags of an entry. Those of a claim and of a key share one byte.
const (
	flagV6        = 1 << 0 // the address has 16 bytes, not 4
	flagNamed     = 1 << 1 // the network is named: it is not the default one
	flagMAC       = 1 << 2 // the MAC is known
	flagInterface = 1 << 3 // the holder is an interface: its netns is not seen
	evidenceShift = 4      // three bits
	flagLast      = 1 << 7 // what it means depends on the entry

	keyFlags   = flagV6 | flagNamed
	claimFlags = flagMAC | flagInterface | 7<<evidenceShift
)

const (
	defaultNetwork = "default"

	// maxAge is more than a hundred years, and no overflow of a time.Duration.
	maxAge = 1 << 42 * time.Millisecond
	// maxCount bounds every number that counts something.
	maxCount = math.MaxInt32
)

// reader takes an entry apart. After the first thing that is wrong it is bad and
// everything that it gives is zero.
type reader struct {
	rest []byte
	bad  bool
}

func (r *reader) fail() {
	r.bad = true
	r.rest = nil
}

// refuse makes the reader bad if something is wrong.
func (r *reader) refuse(wrong bool) {
	if wrong {
		r.fail()
	}
}

// take returns the next n bytes, not copied; nil if there are fewer.
func (r *reader) take(n int) []byte {
	if n > len(r.rest) {
		r.fail()
		return nil
	}
	b := r.rest[:n:n]
	r.rest = r.rest[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// flags reads a byte that has no bits but those.
func (r *reader) flags(known byte) byte {
	f := r.byte()
	r.refuse(f&^known != 0)
	return f
}

func (r *reader) bool() bool { return r.flags(1) == 1 }

func appendBool(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// uvarint reads a number in its shortest form, at most limit.
func (r *reader) uvarint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > limit || n > 1 && r.rest[n-1] == 0 {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *reader) count(limit int) int { return int(r.uvarint(uint64(limit))) }

func appendCount(b []byte, n, limit int) []byte {
	return binary.AppendUvarint(b, uint64(min(max(n, 0), limit)))
}

func (r *reader) member() MemberID {
	b := r.take(8)
	if b == nil {
		return 0
	}
	id := MemberID(binary.BigEndian.Uint64(b))
	r.refuse(id == 0)
	return id
}

func appendMember(b []byte, id MemberID) []byte { return binary.BigEndian.AppendUint64(b, uint64(id)) }

func (r *reader) age() time.Duration {
	return time.Duration(r.uvarint(uint64(maxAge/time.Millisecond))) * time.Millisecond
}

// appendAge writes whole milliseconds; what lies in the future is now.
func appendAge(b []byte, age time.Duration) []byte {
	return binary.AppendUvarint(b, uint64(min(max(age, 0), maxAge)/time.Millisecond))
}

func (r *reader) mac() (m detector.MAC) {
	copy(m[:], r.take(len(m)))
	r.refuse(m == detector.MAC{})
	return m
}

func (r *reader) ip(v6 bool) netip.Addr {
	if !v6 {
		if b := r.take(4); b != nil {
			return r.checked(netip.AddrFrom4([4]byte(b)))
		}
		return netip.Addr{}
	}
	if b := r.take(16); b != nil {
		return r.checked(netip.AddrFrom16([16]byte(b)))
	}
	return netip.Addr{}
}

func (r *reader) checked(ip netip.Addr) netip.Addr {
	r.refuse(ip.IsUnspecified() || ip.Is4In6())
	return ip
}

// appendIP writes 4 or 16 bytes as ipFlag says. The zero Addr becomes ::, which nobody
// accepts.
func appendIP(b []byte, ip netip.Addr) []byte {
	if ip.Is4() {
		a := ip.As4()
		return append(b, a[:]...)
	}
	if !ip.IsValid() {
		ip = netip.IPv6Unspecified()
	}
	a := ip.As16()
	return append(b, a[:]...)
}

func ipFlag(ip netip.Addr) byte {
	if ip.Is4() {
		return 0
	}
	return flagV6
}

func keyFlag(key detector.Key) byte {
	f := ipFlag(key.IP)
	if key.Network != defaultNetwork {
		f |= flagNamed
	}
	return f
}

func appendKey(b []byte, key detector.Key) []byte {
	b = appendIP(b, key.IP)
	if key.Network != defaultNetwork {
		b = appendText(b, key.Network, maxNetwork)
	}
	return b
}

func (r *reader) key(flags byte) detector.Key {
	key := detector.Key{Network: defaultNetwork, IP: r.ip(flags&flagV6 != 0)}
	if flags&flagNamed != 0 {
		key.Network = r.text(maxNetwork)
		r.refuse(key.Network == "" || key.Network == defaultNetwork)
	}
	return key
}

func claimFlag(c Claim) byte {
	f := byte(c.Evidence) << evidenceShift
	if c.Holder.Netns == 0 {
		f |= flagInterface
	}
	if c.MAC != (detector.MAC{}) {
		f |= flagMAC
	}
	return f
}

// appendHolder writes all but the member.
func appendHolder(b []byte, h Holder) []byte {
	if h.Netns != 0 {
		return binary.AppendUvarint(b, h.Netns)
	}
	b = binary.AppendUvarint(b, uint64(h.Ifindex))
	return binary.AppendUvarint(b, uint64(h.Generation))
}

func (r *reader) holder(flags byte, member MemberID) Holder {
	h := Holder{Member: member}
	if flags&flagInterface == 0 {
		h.Netns = r.uvarint(math.MaxUint64)
		r.refuse(h.Netns == 0)
		return h
	}
	h.Ifindex = uint32(r.uvarint(math.MaxUint32))
	h.Generation = uint32(r.uvarint(math.MaxUint32))
	r.refuse(h.Ifindex == 0)
	return h
}

// appendClaim writes all but the flags and the member; LastSeen only if asked to.
func appendClaim(b []byte, c Claim, last bool) []byte {
	b = appendHolder(b, c.Holder)
	if c.MAC != (detector.MAC{}) {
		b = append(b, c.MAC[:]...)
	}
	b = appendAge(b, c.FirstSeen)
	if last {
		b = appendAge(b, c.LastSeen)
	}
	return appendCount(b, c.Episodes, maxCount)
}

func (r *reader) claim(flags byte, member MemberID, last bool) Claim {
	c := Claim{Holder: r.holder(flags, member), Evidence: r.evidence(flags)}
	if flags&flagMAC != 0 {
		c.MAC = r.mac()
	}
	c.FirstSeen = r.age()
	if last {
		c.LastSeen = r.age()
	}
	c.Episodes = r.count(maxCount)
	return c
}

func (r *reader) evidence(flags byte) detector.Evidence {
	e := detector.Evidence(flags >> evidenceShift & 7)
	r.refuse(e < detector.Forwarded || e > detector.Host)
	return e
}

// counting refuses claims that support no suspicion.
func (r *reader) counting(c Claim) Claim {
	r.refuse(c.Evidence == detector.Forwarded)
	return c
}
