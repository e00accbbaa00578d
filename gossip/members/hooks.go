package members

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

var (
	errCrowd    = errors.New("there are too many members")
	errProtocol = errors.New("it has another protocol version")
)

// maxBroadcasts is how many broadcasts may wait; the oldest make room.
const maxBroadcasts = 256

// hooks are what memberlist calls. None of them waits or calls memberlist: it holds locks,
// or its only goroutine that takes packets.
type hooks Members

// NodeMeta implements memberlist.Delegate.
func (h *hooks) NodeMeta(int) []byte { return h.metadata }

// NotifyMsg implements memberlist.Delegate.
func (h *hooks) NotifyMsg(payload []byte) {
	if len(payload) > wire.MaxPacket {
		h.drops.add(dropOversize)
		return
	}
	h.handler.Packet(payload)
}

// GetBroadcasts implements memberlist.Delegate.
func (h *hooks) GetBroadcasts(overhead, limit int) [][]byte {
	return h.broadcasts.GetBroadcasts(overhead, limit)
}

// LocalState implements memberlist.Delegate. There is none: what a node knows would not
// fit, see package gossip.
func (h *hooks) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (h *hooks) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate: who returns an error is no member.
func (h *hooks) NotifyAlive(node *memberlist.Node) error {
	member, _, err := h.vet(node)
	if err != nil {
		h.drops.add(dropMetadata)
		return err
	}
	if h.table.refuses(member.ID) {
		h.drops.add(dropCrowd)
		return errCrowd
	}
	return nil
}

// vet reads what a node says of itself.
func (h *hooks) vet(node *memberlist.Node) (Member, netip.AddrPort, error) {
	id, err := decodeIdentity(node.Name, node.Meta)
	if err != nil {
		return Member{}, netip.AddrPort{}, err
	}
	// One member that claims to speak other protocols would end all state exchange:
	// memberlist wants a version that everybody understands.
	if node.PMin > memberlist.ProtocolVersion2Compatible || node.PMax < memberlist.ProtocolVersion2Compatible ||
		node.PCur != memberlist.ProtocolVersion2Compatible || node.DMin != 0 || node.DCur != 0 {
		return Member{}, netip.AddrPort{}, errProtocol
	}
	at, err := addressOf(node.Addr, node.Port)
	return id.member(), at, err
}

// NotifyJoin implements memberlist.EventDelegate.
func (h *hooks) NotifyJoin(node *memberlist.Node) {
	if member, at, err := h.vet(node); err == nil {
		h.table.joined(member, at, node, time.Now())
	}
}

// NotifyUpdate implements memberlist.EventDelegate.
func (h *hooks) NotifyUpdate(node *memberlist.Node) {
	if member, _, err := h.vet(node); err == nil {
		h.table.updated(member)
	}
}

// NotifyLeave implements memberlist.EventDelegate.
func (h *hooks) NotifyLeave(node *memberlist.Node) {
	id, ok := nameID(node.Name)
	switch {
	case !ok:
	case id == h.table.me().ID:
		h.leaving.Store(true)
	default:
		h.table.left(id, time.Now())
	}
}

// AckPayload implements memberlist.PingDelegate.
func (h *hooks) AckPayload() []byte { return nil }

// NotifyPingComplete implements memberlist.PingDelegate: a member answered by UDP.
func (h *hooks) NotifyPingComplete(node *memberlist.Node, _ time.Duration, _ []byte) {
	if id, ok := nameID(node.Name); ok {
		h.table.heardFrom(id, time.Now())
		h.trouble.answered(id)
	}
}

// nameID is the id in a name that memberlist knows.
func nameID(name string) (wire.MemberID, bool) {
	_, text, ok := strings.Cut(name, "/")
	id, err := strconv.ParseUint(text, 16, 64)
	return wire.MemberID(id), ok && err == nil
}

// Broadcast gives a payload of at most [wire.MaxPacket] bytes to all members. It takes the
// place of one with the same key that still waits. Members do not pass it on: their
// handlers have to, once each.
func (m *Members) Broadcast(key string, payload []byte) {
	if len(payload) > wire.MaxPacket {
		m.drops.add(dropOversize)
		return
	}
	m.broadcasts.QueueBroadcast(broadcast{key, bytes.Clone(payload)})
	if more := m.broadcasts.NumQueued() - maxBroadcasts; more > 0 {
		m.broadcasts.Prune(maxBroadcasts)
		for range more {
			m.drops.add(dropBroadcast)
		}
	}
}

// broadcast implements memberlist.NamedBroadcast.
type broadcast struct {
	key     string
	payload []byte
}

func (b broadcast) Name() string                          { return b.key }
func (b broadcast) Message() []byte                       { return b.payload }
func (b broadcast) Finished()                             {}
func (b broadcast) Invalidates(memberlist.Broadcast) bool { return false }
