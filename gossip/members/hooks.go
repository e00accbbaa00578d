package members

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/gossip/wire"
)

var (
	errTooMany  = errors.New("there are too many members")
	errProtocol = errors.New("it has another protocol version")
)

// hooks are what memberlist calls. It holds locks meanwhile: none of them waits or calls memberlist.
type hooks Members

// NodeMeta implements memberlist.Delegate.
func (h *hooks) NodeMeta(int) []byte { return (*Members)(h).metadata().encode() }

// NotifyMsg implements memberlist.Delegate. Agents send nothing through memberlist.
func (h *hooks) NotifyMsg([]byte) {}

// GetBroadcasts implements memberlist.Delegate.
func (h *hooks) GetBroadcasts(int, int) [][]byte { return nil }

// LocalState implements memberlist.Delegate. There is none: what a node knows would not fit, see
// package gossip.
func (h *hooks) LocalState(bool) []byte { return nil }

// MergeRemoteState implements memberlist.Delegate.
func (h *hooks) MergeRemoteState([]byte, bool) {}

// NotifyAlive implements memberlist.AliveDelegate: who returns an error is no member.
func (h *hooks) NotifyAlive(node *memberlist.Node) error {
	member, err := h.read(node)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.present[member.ID]; !known && len(h.present) >= maxMembers {
		return errTooMany
	}
	return nil
}

// read reads what a node says of itself.
func (h *hooks) read(node *memberlist.Node) (p presence, err error) {
	data, err := decodeMetadata(node.Name, node.Meta)
	if err != nil {
		return p, err
	}
	// One member that claims to speak other protocols would end all state exchange: memberlist wants a
	// version that everybody understands.
	if node.PMin > memberlist.ProtocolVersion2Compatible || node.PMax < memberlist.ProtocolVersion2Compatible ||
		node.PCur != memberlist.ProtocolVersion2Compatible || node.DMin != 0 || node.DCur != 0 {
		return p, errProtocol
	}
	at, err := addressOf(node.Addr, node.Port)
	p = presence{data.member(), at, data.Leaving}
	p.Address = at.String()
	return p, err
}

// NotifyJoin implements memberlist.EventDelegate.
func (h *hooks) NotifyJoin(node *memberlist.Node) { h.changed(node) }

// NotifyUpdate implements memberlist.EventDelegate.
func (h *hooks) NotifyUpdate(node *memberlist.Node) { h.changed(node) }

func (h *hooks) changed(node *memberlist.Node) {
	p, err := h.read(node)
	if err != nil || p.ID == h.self.ID {
		return
	}
	h.mu.Lock()
	was, there := h.present[p.ID]
	h.present[p.ID] = p
	if len(h.present) == 1 && !there {
		h.health.since(time.Now())
	}
	h.mu.Unlock()
	switch {
	case !p.left:
		h.opts.Handler.Joined(p.Member)
	case there && !was.left:
		h.opts.Handler.Left(p.Member, true)
	}
}

// NotifyLeave implements memberlist.EventDelegate.
func (h *hooks) NotifyLeave(node *memberlist.Node) {
	id, _ := nameID(node.Name)
	h.mu.Lock()
	was, there := h.present[id]
	delete(h.present, id)
	h.mu.Unlock()
	if there && !was.left {
		h.joins.lost(was.at, time.Now())
		h.opts.Handler.Left(was.Member, false)
	}
}

// AckPayload implements memberlist.PingDelegate.
func (h *hooks) AckPayload() []byte { return nil }

// NotifyPingComplete implements memberlist.PingDelegate: a member answered by UDP.
func (h *hooks) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.health.answered = time.Now()
}

// receiver is what the transport calls.
type receiver Members

// Receive implements transport.Handler.
func (r *receiver) Receive(from wire.MemberID, at netip.AddrPort, payload []byte) {
	m := (*Members)(r)
	if _, ok := m.at(from); !ok {
		m.unknown.note(from, at, m.count(), time.Now())
		return
	}
	m.opts.Handler.Receive(from, at, payload)
}

// Serve implements transport.Handler.
func (r *receiver) Serve(ctx context.Context, request []byte) []byte {
	return r.opts.Handler.Serve(ctx, request)
}
