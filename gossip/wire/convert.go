package wire

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
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
	// maxHolders bounds the holders of a conflict or story in a document, maxNotes the notes of a story.
	maxHolders = 64
	maxNotes   = 64
	// maxTime is the longest time that travels.
	maxTime = 100 * 365 * 24 * time.Hour
)

// converter changes values as they are sent or received: times, texts and node IDs.
type converter struct {
	// The NodeID own becomes the other one: at the sender its own becomes empty, at the receiver it is the reverse.
	own, other string
	// Times travel as what they are before the moment of sending, because no clock of another node is compared with
	// ours: from here is the moment where they come from, and to where they go.
	from, to time.Time
	// text and holders are the bounds of texts and lists of holders.
	text, holders int
}

func sending(node string, now time.Time) converter {
	return converter{own: node, from: now, to: time.Unix(0, 0), text: maxText, holders: maxHolders}
}

func receiving(node string, now time.Time) converter {
	return converter{other: node, from: time.Unix(0, 0), to: now, text: maxText, holders: maxHolders}
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

func (c converter) node(id string) string {
	if id == c.own {
		return c.other
	}
	return clean(id, maxNodeID)
}

func (c converter) id(id *detector.HolderID) {
	if *id != (detector.HolderID{}) {
		id.Node = c.node(id.Node)
	}
}

func (c converter) holder(h *detector.Holder) {
	c.id(&h.ID)
	c.past(&h.CreatedAt)
	for _, text := range []*string{&h.InterfaceName, &h.NetnsName, &h.Pod.Namespace, &h.Pod.Name, &h.Pod.UID, &h.Sandbox.ID} {
		*text = clean(*text, c.text)
	}
}

// complete converts a binding of the sender's node with all that it says of the holder.
func (c converter) complete(b *cluster.Binding) {
	c.holder(&b.Holder)
	b.Holder.ID.Node = c.other
	c.past(&b.FirstSeen, &b.LastSeen)
	b.Occurrences = max(b.Occurrences, 0)
}

// brief converts a binding and leaves out what only its own node may say of the holder.
func (c converter) brief(b *cluster.Binding) {
	b.Holder, b.FoundAtStart = detector.Holder{ID: b.Holder.ID, MAC: b.Holder.MAC}, false
	c.id(&b.Holder.ID)
	c.past(&b.FirstSeen, &b.LastSeen)
	b.Occurrences = max(b.Occurrences, 0)
}

// others converts a copy of other holders, and leaves out those that are invalid.
func (c converter) others(list []cluster.Binding) (valid []cluster.Binding) {
	for _, b := range list[:min(len(list), c.holders, maxOthers)] {
		if c.brief(&b); validBinding(&b) {
			valid = append(valid, b)
		}
	}
	return valid
}

// The messages: each is converted, and reported to be valid or not.

func (c converter) lease(l *Lease) bool {
	c.brief(&l.Binding)
	l.Binding.Holder.ID.Node, l.Binding.LastSeen = c.other, time.Time{}
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
	e.Holder.Node = c.other
	return ValidKey(e.Key) && ValidHolder(e.Holder)
}

func (c converter) request(r *ProbeRequest) bool {
	r.Others = c.others(r.Others)
	for i := range r.Others {
		r.Others[i].Holder.ID.Node = c.other
	}
	return ValidKey(r.Key) && ValidHolder(r.Holder) && r.ID != 0
}

func (c converter) reply(r *ProbeReply) bool {
	c.complete(&r.Binding)
	c.past(&r.Answered)
	c.time(&r.RetryAt, maxTime)
	r.Reason = clean(r.Reason, c.sentence())
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
	r.Summary = &cluster.Summary{
		Version: clean(r.Summary.Version, c.text), Interfaces: c.counts(r.Summary.Interfaces), Findings: c.counts(r.Summary.Findings),
	}
	return true
}

// counts converts a copy of the first of named numbers.
func (c converter) counts(numbers map[string]int) map[string]int {
	list := make(map[string]int)
	for i, name := range slices.Sorted(maps.Keys(numbers)) {
		if i < 4*c.holders {
			list[clean(name, c.text)] = numbers[name]
		}
	}
	return list
}

func (c converter) sentence() int { return min(4*c.text, maxSentence) }

// documented converts a copy of the holders of a conflict or story. Their key travels once.
func (c converter) documented(list []detector.Binding, key detector.Key) []detector.Binding {
	list = slices.Clone(list[:min(len(list), c.holders)])
	for i := range list {
		c.documentedOne(&list[i])
		list[i].Key = detector.Key{}
		if c.other != "" {
			list[i].Key = key
		}
	}
	return list
}

func (c converter) documentedOne(b *detector.Binding) {
	c.holder(&b.Holder)
	c.past(&b.FirstSeen, &b.LastSeen)
}

func (c converter) conflict(v *detector.Conflict) {
	v.ID = clean(v.ID, c.text)
	c.past(&v.SecondSeen, &v.SuspectedAt, &v.ConfirmedAt, &v.ResolvedAt)
	v.Holders = c.documented(v.Holders, v.Key)
}

func (c converter) story(s *detector.Story) {
	s.Verdict, s.Bindings = clean(s.Verdict, maxSentence), c.documented(s.Bindings, s.Key)
	if s.Conflict != nil {
		conflict := *s.Conflict
		c.conflict(&conflict)
		s.Conflict = &conflict
	}
	s.Notes = slices.Clone(s.Notes[max(len(s.Notes)-maxNotes, 0):])
	for i := range s.Notes {
		n := &s.Notes[i]
		c.past(&n.At)
		c.id(&n.Holder)
		n.Text = clean(n.Text, maxSentence)
	}
}

func (c converter) nextHop(h *cluster.NextHop) {
	c.id(&h.Holder)
	h.Node, h.Device, h.Gateway = clean(h.Node, maxNodeID), clean(h.Device, c.text), h.Gateway.WithZone("")
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
