package wire

import (
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// The longest texts, in bytes.
const (
	maxNetwork  = 128 // agent/config allows 63 and two VLAN tags
	maxNodeID   = 253 + 1 + 64
	maxText     = 253 // the longest names of Kubernetes
	maxSentence = 512
	// maxOthers bounds the other holders in a message: with them it fits a datagram.
	maxOthers = 8
)

// converter changes values as they are sent or received: times, texts and node IDs. No clock of another node is
// compared with ours: a time travels as the negative time that it was before the moment of sending.
type converter struct {
	// from is the NodeID of the sender at the receiver, and empty at the sender.
	from string
	time func(time.Time) time.Time
	node func(string) string
}

// sending returns a converter for what a node sends now. Its own NodeID becomes empty.
func sending(node string, now time.Time) converter {
	return converter{
		time: func(t time.Time) time.Time { return time.UnixMicro(0).Add(max(min(t.Sub(now), maxTime), -maxTime)) },
		node: func(id string) string {
			if id == node {
				return ""
			}
			return clean(id, maxNodeID)
		},
	}
}

// receiving is the reverse of sending.
func receiving(node string, now time.Time) converter {
	return converter{
		from: node,
		time: func(t time.Time) time.Time { return now.Add(max(min(t.Sub(time.UnixMicro(0)), maxTime), -maxTime)) },
		node: func(id string) string {
			if id == "" {
				return node
			}
			return clean(id, maxNodeID)
		},
	}
}

// maxTime is the longest time that travels.
const maxTime = 100 * 365 * 24 * time.Hour

func (c converter) times(times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = c.time(*t)
		}
	}
}

func (c converter) id(id *detector.HolderID) {
	if *id != (detector.HolderID{}) {
		id.Node = c.node(id.Node)
	}
}

func (c converter) holder(h *detector.Holder) {
	c.id(&h.ID)
	c.times(&h.CreatedAt)
	for _, text := range []*string{&h.InterfaceName, &h.NetnsName, &h.Pod.Namespace, &h.Pod.Name, &h.Pod.UID, &h.Sandbox.ID} {
		*text = clean(*text, maxText)
	}
}

func (c converter) binding(b *cluster.Binding) {
	c.holder(&b.Holder)
	c.times(&b.FirstSeen, &b.LastSeen)
	b.Occurrences = max(b.Occurrences, 0)
}

// own converts a binding of the sender's node.
func (c converter) own(b *cluster.Binding) {
	c.binding(b)
	b.Holder.ID.Node = c.from
}

// others converts a copy of other holders, and leaves out those that are invalid.
func (c converter) others(list []cluster.Binding) (valid []cluster.Binding) {
	for _, b := range list[:min(len(list), maxOthers)] {
		if c.binding(&b); validBinding(&b) {
			valid = append(valid, b)
		}
	}
	return valid
}

// The messages: each is converted, and reported to be valid or not.

func (c converter) lease(l *Lease) bool {
	c.own(&l.Binding)
	return ValidKey(l.Key) && ValidHolder(l.Binding.Holder.ID) && (l.Gone || validBinding(&l.Binding))
}

func (c converter) ack(a *Ack) bool {
	a.Others = c.others(a.Others)
	return true
}

func (c converter) notice(n *Notice) bool {
	n.Others = c.others(n.Others)
	return ValidKey(n.Key)
}

func (c converter) end(e *End) bool {
	e.Holder.Node = c.from
	return ValidKey(e.Key) && ValidHolder(e.Holder)
}

func (c converter) request(r *ProbeRequest) bool {
	r.Others = c.others(r.Others)
	for i := range r.Others {
		r.Others[i].Holder.ID.Node = c.from
	}
	return ValidKey(r.Key) && ValidHolder(r.Holder) && r.ID != 0
}

func (c converter) reply(r *ProbeReply) bool {
	c.own(&r.Binding)
	c.times(&r.Answered, &r.RetryAt)
	r.Reason = clean(r.Reason, maxSentence)
	return ValidKey(r.Key) && ValidHolder(r.Binding.Holder.ID) && r.Outcome >= cluster.Answered && r.Outcome <= cluster.Refused
}

func (c converter) report(r *Report) bool {
	if r.Conflict != nil {
		conflict := *r.Conflict
		c.conflict(&conflict)
		r.Conflict = &conflict
		return validConflict(&conflict)
	}
	if r.Summary == nil {
		return false
	}
	summary := *r.Summary
	summary.Version = clean(summary.Version, maxText)
	r.Summary = &summary
	return true
}

// documented converts a copy of the holders of a conflict or story. Their key travels once.
func (c converter) documented(list []detector.Binding, key detector.Key) []detector.Binding {
	list = append([]detector.Binding(nil), list[:min(len(list), maxHolders)]...)
	for i := range list {
		c.documentedOne(&list[i])
		list[i].Key = detector.Key{}
		if c.from != "" {
			list[i].Key = key
		}
	}
	return list
}

func (c converter) documentedOne(b *detector.Binding) {
	c.holder(&b.Holder)
	c.times(&b.FirstSeen, &b.LastSeen)
}

func (c converter) conflict(v *detector.Conflict) {
	v.ID = clean(v.ID, maxText)
	c.times(&v.SecondSeen, &v.SuspectedAt, &v.ConfirmedAt, &v.ResolvedAt)
	v.Holders = c.documented(v.Holders, v.Key)
}

func (c converter) story(s *detector.Story) {
	s.Verdict, s.Bindings = clean(s.Verdict, maxSentence), c.documented(s.Bindings, s.Key)
	if s.Conflict != nil {
		conflict := *s.Conflict
		c.conflict(&conflict)
		s.Conflict = &conflict
	}
	s.Notes = append([]detector.Note(nil), s.Notes[max(len(s.Notes)-maxNotes, 0):]...)
	for i := range s.Notes {
		n := &s.Notes[i]
		c.times(&n.At)
		c.id(&n.Holder)
		n.Text = clean(n.Text, maxSentence)
	}
}

func (c converter) nextHop(h *cluster.NextHop) {
	c.id(&h.Holder)
	h.Node, h.Device = clean(h.Node, maxNodeID), clean(h.Device, maxText)
}

// ValidKey reports whether other agents accept a key.
func ValidKey(k detector.Key) bool {
	return k.Network != "" && len(k.Network) <= maxNetwork && !strings.ContainsFunc(k.Network, unprintable) &&
		k.IP.IsValid() && !k.IP.IsUnspecified() && !k.IP.Is4In6() && k.IP.Zone() == ""
}

// ValidHolder reports whether other agents accept a holder: it is a netns or, where that is not seen, an interface.
func ValidHolder(h detector.HolderID) bool { return (h.Netns != 0) != (h.Ifindex != 0) }

// validBinding reports whether a holder has an identity, and evidence that supports a suspicion.
func validBinding(b *cluster.Binding) bool {
	return ValidHolder(b.Holder.ID) && b.Evidence >= detector.Data && b.Evidence <= detector.Host
}

func validDocumented(b *detector.Binding) bool {
	return ValidHolder(b.Holder.ID) && b.Evidence >= detector.Forwarded && b.Evidence <= detector.Host
}

// unprintable holds for control characters, for those that change the direction of text, and for bytes that are not
// UTF-8.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

// clean replaces what nobody should see in a terminal by question marks, and cuts what is too long.
func clean(s string, limit int) string {
	if strings.ContainsFunc(s, unprintable) {
		// One byte for a character of one or more: it cannot grow.
		s = strings.Map(func(r rune) rune {
			if unprintable(r) {
				return '?'
			}
			return r
		}, s)
	}
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
