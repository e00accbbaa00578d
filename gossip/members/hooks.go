package members

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/bounds"
)

// hooks are what memberlist and the transport call. Memberlist holds locks meanwhile: none of them waits or calls memberlist.
type hooks Members

func (h *hooks) NodeMeta(int) []byte { return wire.Marshal((*Members)(h).metadata()) }

// Agents send nothing through memberlist, and what a node knows would not fit there: see package gossip.

func (h *hooks) NotifyMsg([]byte)                {}
func (h *hooks) GetBroadcasts(int, int) [][]byte { return nil }
func (h *hooks) LocalState(bool) []byte          { return nil }
func (h *hooks) MergeRemoteState([]byte, bool)   {}
func (h *hooks) AckPayload() []byte              { return nil }

// tooMany counts each time that somebody names a member more than there may be.
var tooMany = bounds.New("too many members")

// NotifyAlive refuses, by an error, who is no member.
func (h *hooks) NotifyAlive(node *memberlist.Node) error {
	p, err := h.read(node)
	if err != nil {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.proofs[p.ID]; !known && len(h.proofs) >= maxMembers {
		tooMany.Exceeded(1)
		return errors.New("there are too many members")
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
		return p, errors.New("it has another protocol version")
	}
	addr, _ := netip.AddrFromSlice(node.Addr)
	at := netip.AddrPortFrom(addr.Unmap(), node.Port)
	if err := h.transport.Reachable(at); err != nil {
		return p, err
	}
	p = presence{data.member(), at, data.Leaving}
	p.Address = at.String()
	return p, nil
}

func (h *hooks) NotifyJoin(node *memberlist.Node)   { h.changed(node) }
func (h *hooks) NotifyUpdate(node *memberlist.Node) { h.changed(node) }

func (h *hooks) changed(node *memberlist.Node) {
	p, err := h.read(node)
	if err != nil || p.ID == h.self.ID {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	_, there := h.present[p.ID]
	h.present[p.ID] = p
	if len(h.present) == 1 && !there {
		h.hasAnswered(time.Now()) // from now on somebody can
	}
	(*Members)(h).listed(p)
}

// NotifyLeave: a member has left, or does not answer any more.
func (h *hooks) NotifyLeave(node *memberlist.Node) {
	id, _ := nameID(node.Name)
	h.mu.Lock()
	was, there := h.present[id]
	delete(h.present, id)
	proved := (*Members)(h).unlisted(id)
	if there && len(h.present) == 0 {
		select {
		case h.alone <- struct{}{}:
		default:
		}
	}
	h.mu.Unlock()
	if proved && !was.left && was.Role != cluster.Reporter { // which finds the agents itself; its address is another pod's soon
		h.joins.lost(was.at, time.Now())
	}
}

// NotifyPingComplete: a member answered by UDP.
func (h *hooks) NotifyPingComplete(*memberlist.Node, time.Duration, []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.hasAnswered(time.Now())
}

// hasAnswered notes that a member answers. Call it with the lock.
func (h *hooks) hasAnswered(now time.Time) {
	if !h.answered.IsZero() && now.Sub(h.answered) >= cutAfter {
		h.cut.from, h.cut.until = h.answered, now
	}
	h.answered = now
}

// Receive implements [transport.Handler].
func (h *hooks) Receive(from wire.MemberID, at netip.AddrPort, payload []byte) {
	h.opts.Handler.Receive(from, at, payload)
	if m := (*Members)(h); !m.at(from).IsValid() { // memberlist has given it up
		m.receivedUnknown(from, at)
	}
}

// Serve implements [transport.Handler].
func (h *hooks) Serve(ctx context.Context, r []byte) []byte { return h.opts.Handler.Serve(ctx, r) }
