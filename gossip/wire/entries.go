package wire

import (
	"encoding/binary"
	"math"
	"strings"
	"time"

	"github.com/dupip/dupip/detector/cluster"
)

// maxClaims bounds the claims of a Rival or an Ask. More are cut: all is not lost, since
// those that are told of know others.
const maxClaims = 8

const flagGone = flagLast

// Type implements [Entry].
func (Lease) Type() Type { return TypeLease }

// Append implements [Entry].
func (l Lease) Append(b []byte) []byte {
	if l.Gone {
		b = append(b, keyFlag(l.Key)|claimFlag(Claim{Holder: l.Claim.Holder})|flagGone)
		b = binary.AppendUvarint(b, l.Seq)
		return appendHolder(appendKey(b, l.Key), l.Claim.Holder)
	}
	b = append(b, keyFlag(l.Key)|claimFlag(l.Claim))
	b = binary.AppendUvarint(b, l.Seq)
	return appendClaim(appendKey(b, l.Key), l.Claim, false)
}

// Leases returns the leases of the sender.
func (p Packet) Leases() ([]Lease, error) {
	return all(p, TypeLease, func(r *reader) (l Lease) {
		f := r.flags(keyFlags | claimFlags | flagGone)
		l.Seq, l.Gone = r.uvarint(math.MaxUint64), f&flagGone != 0
		l.Key = r.key(f)
		if l.Gone {
			r.refuse(f&^(keyFlags|flagInterface) != flagGone)
			l.Claim.Holder = r.holder(f, p.Sender)
		} else {
			l.Claim = r.counting(r.claim(f, p.Sender, false))
		}
		return l
	})
}

// Type implements [Entry].
func (Ack) Type() Type { return TypeAck }

// Append implements [Entry].
func (a Ack) Append(b []byte) []byte { return binary.AppendUvarint(b, a.Seq) }

// Acks returns what the sender has taken in.
func (p Packet) Acks() ([]Ack, error) {
	return all(p, TypeAck, func(r *reader) Ack { return Ack{Seq: r.uvarint(math.MaxUint64)} })
}

// Type implements [Entry].
func (Rival) Type() Type { return TypeRival }

// Append implements [Entry].
func (v Rival) Append(b []byte) []byte {
	b = append(b, keyFlag(v.Key))
	b = appendKey(b, v.Key)
	b = appendCount(b, v.Total, maxCount)
	claims := v.Claims[:min(len(v.Claims), maxClaims)]
	b = append(b, byte(len(claims)))
	for _, c := range claims {
		b = append(b, claimFlag(c))
		b = appendMember(b, c.Holder.Member)
		b = appendClaim(b, c, true)
	}
	return b
}

// Rivals returns the rivals that a keeper tells of.
func (p Packet) Rivals() ([]Rival, error) {
	return all(p, TypeRival, func(r *reader) (v Rival) {
		v.Key = r.key(r.flags(keyFlags))
		v.Total = r.count(maxCount)
		n := r.count(maxClaims)
		r.refuse(n == 0)
		for range n {
			f := r.flags(claimFlags)
			v.Claims = append(v.Claims, r.counting(r.claim(f, r.member(), true)))
		}
		return v
	})
}

// Type implements [Entry].
func (Ask) Type() Type { return TypeAsk }

// Append implements [Entry].
func (a Ask) Append(b []byte) []byte {
	b = append(b, keyFlag(a.Key)|claimFlag(Claim{Holder: a.Holder}))
	b = binary.AppendUvarint(b, a.ID)
	b = appendHolder(appendKey(b, a.Key), a.Holder)
	claims := a.Claims[:min(len(a.Claims), maxClaims)]
	b = append(b, byte(len(claims)))
	for _, c := range claims {
		b = append(b, claimFlag(c))
		b = appendClaim(b, c, false)
	}
	return b
}

// Asks returns the questions to the member self, which the packet was sent to.
func (p Packet) Asks(self MemberID) ([]Ask, error) {
	return all(p, TypeAsk, func(r *reader) (a Ask) {
		f := r.flags(keyFlags | flagInterface)
		a.ID = r.uvarint(math.MaxUint64)
		r.refuse(a.ID == 0)
		a.Key = r.key(f)
		a.Holder = r.holder(f, self)
		for range r.count(maxClaims) {
			f := r.flags(claimFlags)
			a.Claims = append(a.Claims, r.counting(r.claim(f, p.Sender, false)))
		}
		return a
	})
}

// Type implements [Entry].
func (Verified) Type() Type { return TypeVerified }

// Append implements [Entry].
func (v Verified) Append(b []byte) []byte {
	claim := v.Claim
	if v.Outcome == cluster.Gone {
		claim = Claim{Holder: claim.Holder}
	}
	b = append(b, keyFlag(v.Key)|claimFlag(claim), byte(v.Outcome))
	b = binary.AppendUvarint(b, v.ID)
	b = appendKey(b, v.Key)
	if v.Outcome == cluster.Gone {
		return appendText(appendHolder(b, claim.Holder), v.Reason, maxReason)
	}
	b = appendClaim(b, claim, true)
	b = appendDetails(b, v.Details)
	b = appendText(b, v.Reason, maxReason)
	switch v.Outcome {
	case cluster.Answered:
		b = appendAge(b, v.Answer)
	case cluster.Refused:
		if v.Retry > 0 {
			v.Retry = max(v.Retry, time.Millisecond) // not never
		}
		b = appendAge(b, v.Retry)
	}
	return b
}

// Verifieds returns the answers and news about holders of the sender.
func (p Packet) Verifieds() ([]Verified, error) {
	return all(p, TypeVerified, func(r *reader) (v Verified) {
		f := r.flags(keyFlags | claimFlags)
		v.Outcome = cluster.Outcome(r.byte())
		v.ID = r.uvarint(math.MaxUint64)
		v.Key = r.key(f)
		if v.Outcome == cluster.Gone {
			r.refuse(f&^(keyFlags|flagInterface) != 0)
			v.Claim.Holder = r.holder(f, p.Sender)
			v.Reason = r.text(maxReason)
			return v
		}
		r.refuse(v.ID == 0 || v.Outcome < cluster.Answered || v.Outcome > cluster.Refused)
		v.Claim = r.claim(f, p.Sender, true)
		v.Details = r.details()
		v.Reason = r.text(maxReason)
		switch v.Outcome {
		case cluster.Answered:
			v.Answer = r.age()
		case cluster.Refused:
			v.Retry = r.age()
		}
		return v
	})
}

// Flags of a Query; the kind takes the upper bits.
const (
	flagIP    = 1 << 1
	flagAll   = 1 << 2
	kindShift = 4
)

// Type implements [Entry].
func (Query) Type() Type { return TypeQuery }

// Append implements [Entry].
func (q Query) Append(b []byte) []byte {
	f := byte(q.Kind) << kindShift
	if q.IP.IsValid() {
		f |= flagIP | ipFlag(q.IP)
	}
	if q.All {
		f |= flagAll
	}
	b = binary.AppendUvarint(append(b, f), q.ID)
	b = appendCount(b, q.Page, MaxPages)
	if q.IP.IsValid() {
		b = appendIP(b, q.IP)
	}
	return b
}

// Queries returns what the sender asks for.
func (p Packet) Queries() ([]Query, error) {
	return all(p, TypeQuery, func(r *reader) (q Query) {
		f := r.flags(flagV6 | flagIP | flagAll | 3<<kindShift)
		q.Kind, q.All = cluster.QueryKind(f>>kindShift), f&flagAll != 0
		q.ID, q.Page = r.uvarint(math.MaxUint64), r.count(MaxPages-1)
		if f&flagIP != 0 {
			q.IP = r.ip(f&flagV6 != 0)
		}
		r.refuse(q.ID == 0 || q.Kind == 0)
		r.refuse(f&flagIP == 0 && (f&flagV6 != 0 || q.Kind == cluster.QueryStories))
		return q
	})
}

// Type implements [Entry].
func (Answer) Type() Type { return TypeAnswer }

// Append implements [Entry].
func (a Answer) Append(b []byte) []byte {
	b = binary.AppendUvarint(b, a.ID)
	b = appendCount(b, a.Page, MaxPages)
	b = appendCount(b, a.Pages, MaxPages)
	b = binary.AppendUvarint(b, uint64(len(a.Entries)))
	return append(b, a.Entries...)
}

// Answers returns pages of what the sender knows. What is in them is not looked at yet.
func (p Packet) Answers() ([]Answer, error) {
	return all(p, TypeAnswer, func(r *reader) (a Answer) {
		a.ID, a.Page, a.Pages = r.uvarint(math.MaxUint64), r.count(MaxPages), r.count(MaxPages)
		r.refuse(a.ID == 0 || a.Page >= a.Pages)
		a.Entries = append(a.Entries, r.take(r.count(maxPage))...)
		return a
	})
}

const maxExamples = 3

// Type implements [Entry].
func (Pair) Type() Type { return TypePair }

// Append implements [Entry].
func (v Pair) Append(b []byte) []byte {
	b = appendText(b, v.A, maxNodeID)
	b = appendText(b, v.B, maxNodeID)
	b = appendMember(b, v.Origin)
	b = binary.AppendUvarint(b, v.Seq)
	b = appendCount(b, v.Addresses, maxCount)
	b = appendAge(b, v.Since)
	examples := v.Examples[:min(len(v.Examples), maxExamples)]
	b = append(b, byte(len(examples)))
	for _, key := range examples {
		b = appendKey(append(b, keyFlag(key)), key)
	}
	return b
}

// Pairs returns the pairs of nodes that the sender tells of or passes on.
func (p Packet) Pairs() ([]Pair, error) {
	return all(p, TypePair, func(r *reader) (v Pair) {
		v.A, v.B = r.nodeID(), r.nodeID()
		r.refuse(v.A >= v.B)
		v.Origin = r.member()
		v.Seq = r.uvarint(math.MaxUint64)
		v.Addresses = r.count(maxCount)
		v.Since = r.age()
		n := r.count(maxExamples)
		r.refuse(n > v.Addresses)
		for range n {
			v.Examples = append(v.Examples, r.key(r.flags(keyFlags)))
		}
		return v
	})
}

// nodeID reads a NodeID: a name and a boot.
func (r *reader) nodeID() string {
	id := r.text(maxNodeID)
	name, boot, found := strings.Cut(id, "/")
	r.refuse(!found || name == "" || boot == "" || strings.Contains(boot, "/"))
	return id
}
