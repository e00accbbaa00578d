package wire

import (
	"cmp"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// The longest texts, in bytes, and lists.
const (
	maxNetwork  = 128 // agent/config allows 63 and two VLAN tags
	maxNodeID   = 253 + 1 + 64
	maxText     = 253 // the longest names of Kubernetes
	maxSentence = 512
	// maxOthers bounds the holders in a message. One that is too long for a packet has fewer, and texts of
	// minText at least.
	maxOthers = 8
	minText   = 24
	// maxTime is the longest time that travels.
	maxTime = 100 * 365 * 24 * time.Hour
)

// converter changes values as they are sent or received: times, texts and node IDs.
type converter struct {
	// sender is a NodeID, empty at the sender itself: its own does not travel.
	sender string
	// Times travel as ages, how long they are before the moment of sending, because no clock of another node is compared with
	// ours: from here is the moment where they come from, and to where they go.
	from, to time.Time
	// text and holders are the bounds of texts and lists of holders.
	text, holders int
}

// time converts a time that is not later than a moment from now.
func (c converter) time(t *time.Time, latest time.Duration) {
	if !t.IsZero() {
		*t = c.to.Add(max(min(t.Sub(c.from), latest), -maxTime))
	}
}

// past converts times that are over.
func (c converter) past(times ...*time.Time) {
	for _, t := range times {
		c.time(t, 0)
	}
}

// complete converts a binding of the sender's node with all that it says of the holder.
func (c converter) complete(b *cluster.Binding) {
	h := &b.Holder
	h.ID.Node = c.sender
	for _, text := range h.Texts() {
		*text = Clean(*text, c.text)
	}
	h.Place = h.Place.Known()
	if h.Given > detector.GivenNo {
		h.Given = detector.GivenUnknown
	}
	c.past(&h.CreatedAt, &b.FirstSeen, &b.LastSeen)
	b.Occurrences = max(b.Occurrences, 0)
}

// brief converts a binding that supports a suspicion, and leaves out what only its own node may say of the holder.
func (c converter) brief(b *cluster.Binding) bool {
	b.Holder, b.FoundAtStart, b.Life = detector.Holder{ID: b.Holder.ID, MAC: b.Holder.MAC, Place: b.Holder.Place.Known()}, false, 0
	b.Holder.ID.Node = cmp.Or(Clean(b.Holder.ID.Node, maxNodeID), c.sender)
	c.past(&b.FirstSeen, &b.LastSeen)
	b.Occurrences = max(b.Occurrences, 0)
	return ValidHolder(b.Holder.ID) && b.Evidence >= detector.Claimed && b.Evidence <= detector.Host
}

// others converts a copy of other holders, and leaves out those that are invalid.
func (c converter) others(list []cluster.Binding) (valid []cluster.Binding) {
	for _, b := range list[:min(len(list), c.holders)] {
		if c.brief(&b) {
			valid = append(valid, b)
		}
	}
	return valid
}

// The messages: each is converted, and reported to be valid or not.

func (c converter) lease(l *Lease) bool {
	if l.Gone {
		l.Binding = cluster.Binding{Holder: detector.Holder{ID: l.Binding.Holder.ID}}
	}
	ok := c.brief(&l.Binding) || l.Gone && ValidHolder(l.Binding.Holder.ID)
	l.Binding.Holder.ID.Node, l.Binding.LastSeen = c.sender, time.Time{}
	return ok && ValidKey(l.Key)
}

func (c converter) ack(a *Ack) bool {
	a.Others = c.others(a.Others)
	return true
}

func (c converter) notice(n *Notice) bool {
	n.Others = c.others(n.Others)
	return ValidKey(n.Key)
}

func (c converter) request(r *ProbeRequest) bool {
	r.Others = c.others(r.Others)
	for i := range r.Others {
		r.Others[i].Holder.ID.Node = c.sender
	}
	return ValidKey(r.Key) && ValidHolder(r.Holder) && r.ID != 0
}

func (c converter) reply(r *ProbeReply) bool {
	c.complete(&r.Binding)
	c.past(&r.Answered)
	c.time(&r.RetryAt, maxTime)
	r.Reason = Clean(r.Reason, min(4*c.text, maxSentence))
	return ValidKey(r.Key) && ValidHolder(r.Binding.Holder.ID) && r.Outcome >= detector.Answered && r.Outcome <= detector.Refused
}

func (c converter) report(r *Report) bool {
	if r.Summary == nil {
		return len(r.Conflict) > 0
	}
	r.Conflict, r.Summary = nil, &cluster.Summary{
		Version: Clean(r.Summary.Version, c.text), Audit: Clean(r.Summary.Audit, c.text),
		Interfaces: c.counts(r.Summary.Interfaces), Findings: c.counts(r.Summary.Findings),
		Bindings: r.Summary.Bindings, Ranges: c.texts(r.Summary.Ranges),
	}
	return true
}

// texts converts a copy of the first of some texts.
func (c converter) texts(list []string) (clean []string) {
	for _, text := range list[:min(len(list), c.holders)] {
		clean = append(clean, Clean(text, c.text))
	}
	return clean
}

// counts converts a copy of the first of named numbers.
func (c converter) counts(numbers map[string]int) map[string]int {
	names := slices.Sorted(maps.Keys(numbers))
	list := make(map[string]int)
	for _, name := range names[:min(len(names), 4*c.holders)] {
		list[Clean(name, c.text)] = numbers[name]
	}
	return list
}

// ValidKey reports whether other agents accept a key.
func ValidKey(k detector.Key) bool {
	return k.Valid() && len(k.Network) <= maxNetwork && detector.Printable(k.Network) == k.Network
}

// ValidHolder reports whether other agents accept a holder: it is a netns or, where that is not seen, an interface.
func ValidHolder(h detector.HolderID) bool { return (h.Netns != 0) != (h.Ifindex != 0) }

// Clean replaces what nobody should see in a terminal by question marks, and cuts what is too long.
func Clean(s string, limit int) string {
	if s = detector.Printable(s); len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
