package wire

import (
	"encoding/binary"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// The bounds of a document.
const (
	// MaxPages is how many pages a document may have.
	MaxPages = 1000

	maxRecords = 32_768
	maxHolders = 64 // of a conflict or in a story
	maxNotes   = 64 // in a story

	// maxPage is what a packet has room for beside the other fields of an Answer.
	maxPage = MaxPacket - headerSize - binary.MaxVarintLen64 - 3*2
	// maxOmitted is the size of the record that is always to fit.
	maxOmitted = 1 + binary.MaxVarintLen32
)

// A page has whole records, each a tag and what belongs to it. Holders and notes follow
// the conflict or story that they are of.
const (
	tagBinding byte = iota + 1
	tagConflict
	tagHolder
	tagStory
	tagStoryBinding
	tagStoryConflict
	tagNote
	tagOmitted
	tagLead
)

// SplitDocument makes pages of what the agent of a node knows: at least one, at most
// [MaxPages]. What does not fit is counted as omitted. Bindings of other nodes are
// left out: only stories and conflicts tell of those.
func SplitDocument(d cluster.Document, node string, now time.Time) [][]byte {
	p := pager{pages: make([][]byte, 1), node: node, now: now}
	for i := range d.Stories {
		p.item(func() { p.story(&d.Stories[i]) })
	}
	for i := range d.Conflicts {
		p.item(func() { p.conflict(tagConflict, &d.Conflicts[i]) })
	}
	for _, l := range d.NextHops {
		p.item(func() { p.lead(l) })
	}
	for i := range d.Bindings {
		if d.Bindings[i].Holder.ID.Node == node {
			p.item(func() { p.binding(tagBinding, &d.Bindings[i]) })
		}
	}
	if n := d.Omitted + p.omitted; n > 0 {
		last := &p.pages[len(p.pages)-1]
		*last = appendCount(append(*last, tagOmitted), n, maxCount)
	}
	return p.pages
}

// pager fills pages with records.
type pager struct {
	node    string
	now     time.Time
	pages   [][]byte
	records int
	omitted int
	full    bool
	buffer  []byte
}

// item adds all records of one thing, or none.
func (p *pager) item(add func()) {
	pages, records := len(p.pages), p.records
	end := len(p.pages[pages-1])
	add()
	if p.full {
		p.full = false
		p.omitted++
		p.pages, p.records = p.pages[:pages], records
		p.pages[pages-1] = p.pages[pages-1][:end]
	}
}

func (p *pager) record(b []byte) {
	p.buffer = b[:0]
	last := &p.pages[len(p.pages)-1]
	if len(*last)+len(b) > maxPage-maxOmitted {
		if len(p.pages) == MaxPages {
			p.full = true
			return
		}
		p.pages = append(p.pages, nil)
		last = &p.pages[len(p.pages)-1]
	}
	if p.records++; p.records > maxRecords {
		p.full = true
		return
	}
	*last = append(*last, b...)
}

func (p *pager) binding(tag byte, v *detector.Binding) {
	f := byte(v.Evidence)<<evidenceShift | p.holderFlags(v.Holder.ID)
	if tag == tagBinding {
		f |= keyFlag(v.Key)
	}
	if v.Holder.MAC != (detector.MAC{}) {
		f |= flagMAC
	}
	b := append(p.buffer, tag, f)
	if tag == tagBinding {
		b = appendKey(b, v.Key)
	}
	b = p.holder(b, v.Holder.ID)
	if f&flagRemote != 0 {
		b = appendBool(b, v.Unreachable)
	}
	b = binary.AppendUvarint(b, uint64(v.Holder.Interface.Ifindex))
	b = binary.AppendUvarint(b, uint64(v.Holder.Interface.Generation))
	if v.Holder.MAC != (detector.MAC{}) {
		b = append(b, v.Holder.MAC[:]...)
	}
	b = appendDetails(b, DetailsOf(v.Holder, v.FoundAtStart, p.now))
	b = p.stamp(b, v.FirstSeen)
	p.record(p.stamp(b, v.LastSeen))
}

// flagRemote: the holder is of another node, which is named.
const flagRemote = flagLast

func (p *pager) holderFlags(id detector.HolderID) (f byte) {
	if id.Node != p.node {
		f |= flagRemote
	}
	if id.Netns == 0 {
		f |= flagInterface
	}
	return f
}

func (p *pager) holder(b []byte, id detector.HolderID) []byte {
	if id.Node != p.node {
		b = appendText(b, id.Node, maxNodeID)
	}
	return appendHolder(b, Holder{Netns: id.Netns, Ifindex: id.Ifindex, Generation: id.Generation})
}

// stamp writes a time as an age; zero stays zero.
func (p *pager) stamp(b []byte, t time.Time) []byte {
	if t.IsZero() {
		return append(b, 0)
	}
	return appendAge(b, min(max(p.now.Sub(t), 0), maxAge-time.Millisecond)+time.Millisecond)
}

// State and scope of a conflict share the byte of the key's flags.
const (
	stateShift = 2 // two bits
	scopeShift = 4 // two bits
)

func (p *pager) conflict(tag byte, c *detector.Conflict) {
	b := append(p.buffer, tag, keyFlag(c.Key)|byte(c.State)<<stateShift|byte(c.Scope)<<scopeShift)
	b = appendKey(b, c.Key)
	b = appendText(b, c.ID, maxID)
	for _, at := range []time.Time{c.SecondSeen, c.SuspectedAt, c.ConfirmedAt, c.ResolvedAt} {
		b = p.stamp(b, at)
	}
	p.record(b)
	for i := range c.Holders[:min(len(c.Holders), maxHolders)] {
		p.binding(tagHolder, &c.Holders[i])
	}
}

func (p *pager) story(s *detector.Story) {
	b := appendKey(append(p.buffer, tagStory, keyFlag(s.Key)), s.Key)
	p.record(appendText(b, s.Verdict, maxSentence))
	for i := range s.Bindings[:min(len(s.Bindings), maxHolders)] {
		p.binding(tagStoryBinding, &s.Bindings[i])
	}
	if s.Conflict != nil {
		p.conflict(tagStoryConflict, s.Conflict)
	}
	for _, n := range s.Notes[max(len(s.Notes)-maxNotes, 0):] {
		p.note(n)
	}
}

// flagHolder: the note is of a holder.
const flagHolder = 1 << 0

func (p *pager) note(n detector.Note) {
	var f byte
	if n.Holder != (detector.HolderID{}) {
		f = flagHolder | p.holderFlags(n.Holder)
	}
	b := append(p.buffer, tagNote, f, byte(n.Kind))
	if f != 0 {
		b = p.holder(b, n.Holder)
	}
	p.record(appendText(p.stamp(b, n.At), n.Text, maxSentence))
}

// The kind of a lead and that it has a gateway share the byte of the key's flags.
const (
	kindOfLeadShift = 2 // three bits
	flagGateway     = 1 << 5
	flagGatewayV6   = 1 << 6
)

func (p *pager) lead(l cluster.NextHop) {
	f := keyFlag(l.Key) | byte(l.Kind)<<kindOfLeadShift
	if l.Gateway.IsValid() {
		f |= flagGateway
		if !l.Gateway.Is4() {
			f |= flagGatewayV6
		}
	}
	b := appendKey(append(p.buffer, tagLead, f), l.Key)
	switch l.Kind {
	case cluster.NextHopHolder:
		b = append(b, p.holderFlags(l.Holder))
		b = p.holder(b, l.Holder)
	case cluster.NextHopNode:
		b = appendText(b, l.Node, maxNodeID)
	}
	b = appendText(b, l.Device, maxInterface)
	if l.Gateway.IsValid() {
		b = appendIP(b, l.Gateway)
	}
	p.record(b)
}
