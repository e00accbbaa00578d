// Package wire has the messages between members and their encoding. It knows nothing of
// how packets travel and what anybody does about them.
//
// A packet is at most [MaxPacket] bytes: magic, version and type, the sender, then
// entries of that type. Times travel as ages in milliseconds. Whatever arrives is taken
// for hostile: decoding bounds every length and never panics, and a packet that is not
// wholly understood is refused as a whole. There is one encoding of everything, so that
// what is decoded and encoded again is the same bytes.
//
// What is ours is made to fit: long texts and lists are cut, unprintable characters
// replaced. Nobody accepts a key without an address or network, a holder that is
// neither a netns nor an interface, or a claim without evidence; it is up to the sender
// not to send them.
package wire

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// MaxPacket is the size in bytes of the largest packet.
const MaxPacket = 1200

// MemberID names one incarnation of an agent: a hash of node name, boot and epoch, so
// that packets need not repeat them. Members publish what is behind it in their metadata.
type MemberID uint64

// Header begins every packet.
type Header struct {
	Type   Type
	Sender MemberID
}

// Type is the type of all entries of a packet.
type Type uint8

// The types.
const (
	TypeLease Type = iota + 1
	TypeAck
	TypeRival
	TypeAsk
	TypeVerified
	TypeQuery
	TypeAnswer
	TypePair
)

var typeNames = [...]string{"", "lease", "ack", "conflict_notice", "probe_request", "probe_reply", "query", "query_reply", "pair"}

// String returns the name used in metric labels.
func (t Type) String() string {
	if int(t) < len(typeNames) && t != 0 {
		return typeNames[t]
	}
	return fmt.Sprintf("type(%d)", uint8(t))
}

// Holder identifies a holder: a member's netns or, where it is not seen, its interface.
type Holder struct {
	Member     MemberID
	Netns      uint64
	Ifindex    uint32
	Generation uint32
}

// Claim is a holder's claim to an address. But for those of a Rival, the holder's member
// is the sender and not on the wire: nobody can speak for others.
type Claim struct {
	Holder    Holder
	MAC       detector.MAC
	Evidence  detector.Evidence
	FirstSeen time.Duration // age
	LastSeen  time.Duration // age; zero in leases and asks
	Episodes  int
}

// Lease tells a keeper of a claim, or with Gone that it has ended: then only the holder of
// Claim is told. Seq grows with every change of any lease of the sender. Evidence
// Forwarded is not leased.
type Lease struct {
	Seq   uint64
	Gone  bool
	Key   detector.Key
	Claim Claim
}

// Ack tells a holder's node that its keeper has taken in the lease with that Seq.
type Ack struct{ Seq uint64 }

// Rival tells a holder's node of other holders, one to eight. Total counts all that the
// keeper knows.
type Rival struct {
	Key    detector.Key
	Total  int
	Claims []Claim
}

// Ask asks a holder's node whether it has an address now. Claims are the sender's own,
// eight at most.
type Ask struct {
	ID     uint64 // unique among the sender's, not 0
	Key    detector.Key
	Holder Holder // its member is the receiver and not on the wire
	Claims []Claim
}

// Details describe a holder for people. Longer texts are cut.
type Details struct {
	Interface string
	Netns     string
	Pod       detector.Pod
	// Created is the age of the pod's sandbox; zero if it is not known.
	Created time.Duration
	Sandbox detector.Sandbox
	// FoundAtStart is as in [detector.Binding].
	FoundAtStart bool
}

// age is that of what happened at a time, at least 1 ms; zero for never.
func age(at, now time.Time) time.Duration {
	if at.IsZero() {
		return 0
	}
	return max(now.Sub(at), time.Millisecond)
}

// before is the reverse of age.
func before(age time.Duration, now time.Time) time.Time {
	if age == 0 {
		return time.Time{}
	}
	return now.Add(-age)
}

// DetailsOf describes a holder. FoundAtStart is that of its binding.
func DetailsOf(h detector.Holder, foundAtStart bool, now time.Time) Details {
	return Details{
		Interface: h.InterfaceName, Netns: h.NetnsName, Pod: h.Pod,
		Created: age(h.CreatedAt, now), Sandbox: h.Sandbox, FoundAtStart: foundAtStart,
	}
}

// Describe adds the details to a holder.
func (d Details) Describe(h *detector.Holder, now time.Time) {
	h.InterfaceName, h.NetnsName, h.Pod = d.Interface, d.Netns, d.Pod
	h.CreatedAt, h.Sandbox = before(d.Created, now), d.Sandbox
}

// Verified answers an Ask, or with ID 0 tells unasked that a holder is gone. Of the Claim
// only the holder is told where the Outcome is Gone, and there are no Details.
type Verified struct {
	ID      uint64
	Key     detector.Key
	Outcome cluster.Outcome
	Answer  time.Duration // age of the holder's answer, where the outcome is Answered
	Claim   Claim
	Details Details
	Reason  string // one short clause for people; may be empty
	// Retry is after how long to ask again, where the outcome is Refused; zero for never.
	Retry time.Duration
}

// Query asks a member for page Page of what it knows; Page 0 makes the snapshot that the
// others are pages of.
type Query struct {
	ID   uint64 // the asker's, not 0
	Page int
	Kind cluster.QueryKind
	IP   netip.Addr // zero for all
	All  bool
}

// Answer is one page of Pages, which is at least 1; Entries are as [SplitDocument] made
// them.
type Answer struct {
	ID      uint64
	Page    int
	Pages   int
	Entries []byte
}

// Pair tells how many addresses two nodes share. It is broadcast and passed on, so the
// sender of the packet need not be its origin.
type Pair struct {
	A, B      string // NodeIDs, A the lesser one
	Origin    MemberID
	Seq       uint64 // grows with every pair of the origin
	Addresses int
	Examples  []detector.Key
	Since     time.Duration // age
}
