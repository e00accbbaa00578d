package wire

import (
	"math"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// JoinDocument is the reverse of [SplitDocument]; node is the one that answered, now
// when. It returns ErrMalformed for what is not a document.
func JoinDocument(pages [][]byte, node string, now time.Time) (cluster.Document, error) {
	j := joiner{node: node, now: now}
	for _, page := range pages {
		j.reader = reader{rest: page}
		for len(j.rest) > 0 {
			j.record()
		}
		if j.bad {
			return cluster.Document{}, ErrMalformed
		}
	}
	return j.doc, nil
}

// joiner puts records together. The pointers are to what the next holders and notes are
// of: the last of their kind, so that nothing moves them meanwhile.
type joiner struct {
	reader
	node    string
	now     time.Time
	doc     cluster.Document
	records int

	story    *detector.Story
	conflict *detector.Conflict
}

func (j *joiner) record() {
	if j.records++; j.records > maxRecords+1 {
		j.fail()
		return
	}
	switch tag := j.byte(); tag {
	case tagBinding:
		v := j.readBinding(keyFlags, detector.Key{})
		j.refuse(v.Holder.ID.Node != j.node)
		j.doc.Bindings = append(j.doc.Bindings, v)
		j.story, j.conflict = nil, nil
	case tagConflict:
		j.doc.Conflicts = append(j.doc.Conflicts, j.readConflict())
		j.story, j.conflict = nil, &j.doc.Conflicts[len(j.doc.Conflicts)-1]
	case tagHolder:
		if j.conflict == nil || len(j.conflict.Holders) == maxHolders {
			j.fail()
			return
		}
		j.conflict.Holders = append(j.conflict.Holders, j.readBinding(0, j.conflict.Key))
	case tagOmitted:
		j.refuse(j.doc.Omitted != 0)
		j.doc.Omitted = j.count(maxCount)
		j.refuse(j.doc.Omitted == 0)
	case tagLead:
		j.doc.NextHops = append(j.doc.NextHops, j.readLead())
		j.story, j.conflict = nil, nil
	default:
		j.storyRecord(tag)
	}
}

func (j *joiner) storyRecord(tag byte) {
	if tag == tagStory {
		key := j.key(j.flags(keyFlags))
		j.doc.Stories = append(j.doc.Stories, detector.Story{Key: key, Verdict: j.text(maxSentence)})
		j.story, j.conflict = &j.doc.Stories[len(j.doc.Stories)-1], nil
		return
	}
	s := j.story
	switch {
	case s == nil:
		j.fail()
	case tag == tagStoryBinding && s.Conflict == nil && s.Notes == nil && len(s.Bindings) < maxHolders:
		s.Bindings = append(s.Bindings, j.readBinding(0, s.Key))
	case tag == tagStoryConflict && s.Conflict == nil && s.Notes == nil:
		c := j.readConflict()
		s.Conflict, j.conflict = &c, &c
	case tag == tagNote && len(s.Notes) < maxNotes:
		s.Notes = append(s.Notes, j.readNote())
		j.conflict = nil
	default:
		j.fail()
	}
}

func (j *joiner) readBinding(known byte, key detector.Key) (v detector.Binding) {
	f := j.flags(known | claimFlags | flagRemote)
	if v.Key = key; known != 0 {
		v.Key = j.key(f)
	}
	v.Evidence = j.evidence(f)
	v.Holder.ID = j.holderID(f)
	if f&flagRemote != 0 {
		v.Unreachable = j.bool()
	}
	v.Holder.Interface.Ifindex = uint32(j.uvarint(math.MaxUint32))
	v.Holder.Interface.Generation = uint32(j.uvarint(math.MaxUint32))
	if f&flagMAC != 0 {
		v.Holder.MAC = j.mac()
	}
	d := j.details()
	d.Describe(&v.Holder, j.now)
	v.FoundAtStart = d.FoundAtStart
	v.FirstSeen, v.LastSeen = j.stamp(), j.stamp()
	return v
}

func (j *joiner) holderID(f byte) detector.HolderID {
	id := detector.HolderID{Node: j.node}
	if f&flagRemote != 0 {
		id.Node = j.text(maxNodeID)
		j.refuse(id.Node == "" || id.Node == j.node)
	}
	h := j.holder(f, 0)
	id.Netns, id.Ifindex, id.Generation = h.Netns, h.Ifindex, h.Generation
	return id
}

func (j *joiner) stamp() time.Time {
	age := j.age()
	if age == 0 {
		return time.Time{}
	}
	return j.now.Add(time.Millisecond - age)
}

func (j *joiner) readConflict() (c detector.Conflict) {
	f := j.flags(keyFlags | 3<<stateShift | 3<<scopeShift)
	c.State, c.Scope = detector.State(f>>stateShift&3), detector.Scope(f>>scopeShift&3)
	j.refuse(c.State == 0 || c.Scope == 0)
	c.Key = j.key(f)
	c.ID = j.text(maxID)
	for _, at := range []*time.Time{&c.SecondSeen, &c.SuspectedAt, &c.ConfirmedAt, &c.ResolvedAt} {
		*at = j.stamp()
	}
	return c
}

func (j *joiner) readNote() (n detector.Note) {
	f := j.flags(flagHolder | flagInterface | flagRemote)
	n.Kind = detector.NoteKind(j.byte())
	j.refuse(n.Kind < detector.NoteSeen || n.Kind > detector.NoteConflict)
	if f != 0 {
		j.refuse(f&flagHolder == 0)
		n.Holder = j.holderID(f)
	}
	n.At = j.stamp()
	n.Text = j.text(maxSentence)
	return n
}

func (j *joiner) readLead() (l cluster.NextHop) {
	f := j.flags(keyFlags | 7<<kindOfLeadShift | flagGateway | flagGatewayV6)
	l.Kind = cluster.NextHopKind(f >> kindOfLeadShift & 7)
	j.refuse(l.Kind == 0 || f&flagGatewayV6 != 0 && f&flagGateway == 0)
	l.Key = j.key(f)
	switch l.Kind {
	case cluster.NextHopHolder:
		l.Holder = j.holderID(j.flags(flagInterface | flagRemote))
	case cluster.NextHopNode:
		l.Node = j.text(maxNodeID)
		j.refuse(l.Node == "")
	}
	l.Device = j.text(maxInterface)
	if f&flagGateway != 0 {
		l.Gateway = j.ip(f&flagGatewayV6 != 0)
	}
	return l
}
