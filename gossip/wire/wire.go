// Package wire has the messages between agents and their encoding, CBOR with integer keys (RFC 8949).
//
// The format only grows: a field or kind of message that is unknown is skipped and counted, and none is removed
// or gets another meaning. The types of package detector that travel have their numbers there. Documents, in answers to queries and in
// reports, are opaque here. Times travel as
// ages: how long they are before the moment of sending. Whatever arrives may be hostile: sizes and nesting are bounded, and
// a message with invalid values is refused without those beside it.
package wire

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/bounds"
)

// MemberID names one incarnation of an agent: a hash of node name, boot and epoch, so that messages need
// not repeat them. Members publish what is behind it in their metadata. 0 is no member.
type MemberID uint64

// MemberIDOf names the incarnation of an agent. Two of 5,000 members have one ID with a chance of 1 in 10^12.
func MemberIDOf(name, boot string, epoch int64) MemberID {
	var b []byte
	for _, s := range []string{name, boot} {
		b = append(binary.BigEndian.AppendUint32(b, uint32(len(s))), s...)
	}
	sum := sha256.Sum256(binary.BigEndian.AppendUint64(b, uint64(epoch)))
	return max(MemberID(binary.BigEndian.Uint64(sum[:])), 1)
}

// Packet is all that one datagram carries. Its sender is known from the transport.
type Packet struct {
	Leases   []Lease        `cbor:"1,keyasint,omitempty"`
	Acks     []Ack          `cbor:"2,keyasint,omitempty"`
	Notices  []Notice       `cbor:"3,keyasint,omitempty"`
	Requests []ProbeRequest `cbor:"4,keyasint,omitempty"`
	Replies  []ProbeReply   `cbor:"5,keyasint,omitempty"`
	Reports  []Report       `cbor:"6,keyasint,omitempty"`
	Resends  []Resend       `cbor:"7,keyasint,omitempty"`
	Next
}

// Kind is a kind of message.
type Kind uint8

// The kinds of messages; those of a packet are the keys of its fields. Query and reply travel by streams.
const (
	KindLease Kind = iota + 1
	KindAck
	KindNotice
	KindRequest
	KindReply
	KindReport
	KindResend
	KindQuery
	KindQueryReply
	// Kinds is the number of kinds, plus one.
	Kinds
)

var kindNames = [Kinds]string{
	"", "lease", "ack", "conflict_notice", "probe_request", "probe_reply", "report", "resend", "query", "query_reply",
}

// String returns the name used in metric labels.
func (k Kind) String() string { return kindNames[k] }

// MaxPacket is the size of the largest packet in bytes. It fits a datagram of package transport.
const MaxPacket = 1130

// Builder fills packets for one receiver.
type Builder struct {
	// Packs: the receiver reads packed packets.
	Packs bool
	// Counts are the numbers of messages by kind.
	Counts   [Kinds]int
	messages []message
	size     int
}

type message struct {
	kind    Kind
	encoded []byte
}

// A packet is a map of few fields; each has a key and the length of its list, which has at most 255 elements.
const listHeader = 3

// Add adds a message that was encoded by [Encode], and reports whether there was room for it. One alone always fits.
func (b *Builder) Add(k Kind, encoded []byte) bool {
	most := MaxPacket
	if b.Packs {
		most = maxUnpacked
	}
	if b.size > 0 && len(packetHeader)+b.size+listHeader+len(encoded) > most || b.Counts[k] == 255 {
		return false
	}
	if b.Counts[k] == 0 {
		b.size += listHeader
	}
	b.Counts[k]++
	b.size += len(encoded)
	b.messages = append(b.messages, message{k, encoded})
	return true
}

// Bytes returns all in one packet, not packed, which [Decode] decodes.
func (b *Builder) Bytes() []byte {
	packet := append(make([]byte, 0, len(packetHeader)+b.size), packetHeader...)
	for k, n := range b.Counts {
		if n == 0 {
			continue
		}
		packet[0]++
		packet = append(packet, byte(k), 0x98, byte(n))
		for _, m := range b.messages {
			if m.kind == Kind(k) {
				packet = append(packet, m.encoded...)
			}
		}
	}
	return packet
}

var tooLong = bounds.New("message shortened to fit a packet")

// Message is a message of a packet.
type Message interface {
	encode(c converter) (Kind, []byte)
}

// Encode encodes a message that is sent now. From one that would not fit a packet it leaves out holders, and cuts texts
// for people.
func Encode(m Message, now time.Time) (k Kind, b []byte) {
	for cut := range maxOthers {
		c := converter{from: now, to: time.Unix(0, 0), text: max(maxText>>cut, minText), holders: maxOthers - cut}
		if k, b = m.encode(c); len(packetHeader)+listHeader+len(b) <= MaxPacket {
			break
		}
		if cut == 0 {
			tooLong.Exceeded(1)
		}
	}
	return k, b
}

func encode[M any](k Kind, m M, convert func(*M) bool) (Kind, []byte) {
	convert(&m)
	return k, Marshal(m)
}

func (m Lease) encode(c converter) (Kind, []byte)        { return encode(KindLease, m, c.lease) }
func (m Ack) encode(c converter) (Kind, []byte)          { return encode(KindAck, m, c.ack) }
func (m Notice) encode(c converter) (Kind, []byte)       { return encode(KindNotice, m, c.notice) }
func (m ProbeRequest) encode(c converter) (Kind, []byte) { return encode(KindRequest, m, c.request) }
func (m ProbeReply) encode(c converter) (Kind, []byte)   { return encode(KindReply, m, c.reply) }
func (m Report) encode(c converter) (Kind, []byte)       { return encode(KindReport, m, c.report) }
func (m Resend) encode(converter) (Kind, []byte)         { return KindResend, Marshal(m) }

// Decode decodes a packet that a node sent, and counts the messages that it leaves out because they are invalid, and
// whether there were fields that this version does not know. It fails with ErrMalformed.
func Decode(b []byte, from string, now time.Time) (p Packet, invalid int, unknown bool, err error) {
	if b, err = unpack(b); err != nil {
		return Packet{}, 0, false, err
	}
	if unknown, err = Unmarshal(b, &p); err != nil {
		return Packet{}, 0, unknown, err
	}
	c := converter{sender: from, from: time.Unix(0, 0), to: now, text: maxText, holders: maxOthers}
	invalid += keep(&p.Leases, c.lease) + keep(&p.Acks, c.ack) + keep(&p.Notices, c.notice) +
		keep(&p.Requests, c.request) + keep(&p.Replies, c.reply) + keep(&p.Reports, c.report)
	return p, invalid, unknown, nil
}

// keep removes invalid messages from a list and returns their number.
func keep[M any](list *[]M, valid func(*M) bool) (removed int) {
	kept := (*list)[:0]
	for _, m := range *list {
		if valid(&m) {
			kept = append(kept, m)
		}
	}
	removed, *list = len(*list)-len(kept), kept
	return removed
}

// Lease is a binding of the sender, for a keeper of its address; the end of one also for nodes with other holders.
// Sequence numbers of a sender grow with every message; for one binding the highest counts.
type Lease struct {
	Seq     uint64          `cbor:"1,keyasint"`
	Key     detector.Key    `cbor:"2,keyasint"`
	Binding cluster.Binding `cbor:"3,keyasint"`
	// Gone: the lease has ended. Of Binding only the identity of the holder is there.
	Gone bool `cbor:"4,keyasint,omitzero"`
	Next
}

// Ack acknowledges the message with that Seq. For a lease, it has the other holders that the keeper knows.
type Ack struct {
	Seq    uint64            `cbor:"1,keyasint"`
	Others []cluster.Binding `cbor:"2,keyasint,omitempty"`
	Total  int               `cbor:"3,keyasint,omitzero"` // of all holders that the keeper knows
}

// Notice reports other holders of an address that the receiver leased.
type Notice struct {
	Seq    uint64            `cbor:"1,keyasint"`
	Key    detector.Key      `cbor:"2,keyasint"`
	Others []cluster.Binding `cbor:"3,keyasint"`
	Total  int               `cbor:"4,keyasint,omitzero"`
}

// ProbeRequest asks whether a holder of the receiver has an address now. Others are the sender's own.
type ProbeRequest struct {
	ID     uint64            `cbor:"1,keyasint"` // unique among the sender's, not 0
	Key    detector.Key      `cbor:"2,keyasint"`
	Holder detector.HolderID `cbor:"3,keyasint"`
	Others []cluster.Binding `cbor:"4,keyasint,omitempty"`
}

// ProbeReply is the reply to a probe request.
type ProbeReply struct {
	ID      uint64           `cbor:"1,keyasint"`
	Key     detector.Key     `cbor:"2,keyasint"`
	Outcome detector.Outcome `cbor:"3,keyasint"`
	// Binding is complete where the holder was found.
	Binding  cluster.Binding `cbor:"4,keyasint"`
	Answered time.Time       `cbor:"5,keyasint,omitzero"` // when the holder answered
	RetryAt  time.Time       `cbor:"6,keyasint,omitzero"` // when to ask again
	Reason   string          `cbor:"7,keyasint,omitzero"`
}

// Resend asks the receiver to send again all leases that the sender keeps: it may have lost them.
type Resend struct {
	Seq uint64 `cbor:"1,keyasint"`
}

// Report is what an agent tells a member with the role reporter: a conflict, as bytes of at most [MaxReport] that only these two read, or
// a summary of the node. A later report of the same conflict, or a later summary, replaces it.
type Report struct {
	Seq      uint64           `cbor:"1,keyasint"`
	Conflict []byte           `cbor:"2,keyasint,omitempty"`
	Summary  *cluster.Summary `cbor:"3,keyasint,omitempty"`
}

// MaxReport is the size of the longest conflict in a [Report], in bytes: what surrounds it in a packet has 25 at most.
const MaxReport = MaxPacket - 25

// Query asks a member for an answer, bytes that only these two read.
type Query struct {
	Kind cluster.QueryKind `cbor:"1,keyasint"`
	IP   netip.Addr        `cbor:"2,keyasint,omitzero"` // zero for all
	All  bool              `cbor:"3,keyasint,omitzero"` // also resolved conflicts
	Only cluster.Only      `cbor:"4,keyasint,omitzero"`
	Ack  cluster.Ack       `cbor:"5,keyasint,omitzero"` // of a QueryAck
}

// ErrMalformed says that something is not what an agent of any version sends.
var ErrMalformed = errors.New("malformed")

// The bounds of what arrives. A datagram cannot have more elements than bytes.
const (
	maxElements = 32_768
	maxNesting  = 16 // twice as much as there is
)

var (
	encoding = must(cbor.EncOptions{Sort: cbor.SortCoreDeterministic, Time: cbor.TimeUnixMicro}.EncMode())
	// decoding is strict, lenient skips unknown fields.
	decoding, lenient = decoder(cbor.ExtraDecErrorUnknownField), decoder(cbor.ExtraDecErrorNone)
)

func decoder(unknown cbor.ExtraDecErrorCond) cbor.DecMode {
	return must(cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, MaxNestedLevels: maxNesting, MaxArrayElements: maxElements, MaxMapPairs: maxElements,
		IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden, UTF8: cbor.UTF8RejectInvalid, ExtraReturnErrors: unknown,
	}.DecMode())
}

func must[M any](mode M, err error) M {
	if err != nil {
		panic(err)
	}
	return mode
}

// Marshal encodes a message of this package or metadata.
func Marshal(v any) []byte {
	b, err := encoding.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encoding a %T: %v", v, err)) // no field can fail
	}
	return b
}

// Unmarshal decodes a message into v, which must be zero, and reports whether it had fields that this
// version does not know. It fails with ErrMalformed.
func Unmarshal(b []byte, v any) (unknown bool, err error) {
	err = decoding.Unmarshal(b, v)
	if _, ok := errors.AsType[*cbor.UnknownFieldError](err); ok {
		unknown, err = true, lenient.Unmarshal(b, v)
	}
	if err != nil {
		return unknown, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	return unknown, nil
}
