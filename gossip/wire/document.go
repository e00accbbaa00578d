package wire

import (
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector/cluster"
)

// document is the reply to a [Query]: lists of elements as they are in a [cluster.Document].
type document struct {
	Bindings  []cbor.RawMessage `cbor:"1,keyasint,omitempty"`
	Conflicts []cbor.RawMessage `cbor:"2,keyasint,omitempty"`
	Stories   []cbor.RawMessage `cbor:"3,keyasint,omitempty"`
	NextHops  []cbor.RawMessage `cbor:"4,keyasint,omitempty"`
	Omitted   int               `cbor:"5,keyasint,omitempty"`
}

// MarshalDocument encodes what the agent of a node knows, in at most limit bytes. What does not fit is counted as
// omitted. Bindings of other nodes are left out: only stories and conflicts have those.
func MarshalDocument(d cluster.Document, node string, limit int, now time.Time) []byte {
	c := sending(node, now)
	w := document{Omitted: d.Omitted}
	room := limit - 64
	add := func(to *[]cbor.RawMessage, v any) {
		raw := Marshal(v)
		if len(raw) > room || len(*to) == maxElements {
			w.Omitted++
			return
		}
		room -= len(raw)
		*to = append(*to, raw)
	}
	for _, s := range d.Stories {
		c.story(&s)
		add(&w.Stories, s)
	}
	for _, v := range d.Conflicts {
		c.conflict(&v)
		add(&w.Conflicts, v)
	}
	for _, h := range d.NextHops {
		c.nextHop(&h)
		add(&w.NextHops, h)
	}
	for _, b := range d.Bindings {
		if c.listed(&b) {
			add(&w.Bindings, b)
		}
	}
	return Marshal(w)
}

// UnmarshalDocument is the reverse of [MarshalDocument], at the node that asked. Elements that are invalid are
// counted as omitted. It reports whether there were fields that this version does not know, and fails with ErrMalformed.
func UnmarshalDocument(b []byte, node string, now time.Time) (d cluster.Document, unknown bool, err error) {
	var w document
	if unknown, err = Unmarshal(b, &w); err != nil {
		return d, unknown, err
	}
	c := receiving(node, now)
	d.Omitted = min(max(w.Omitted, 0), maxElements) + read(&unknown, &d.Bindings, w.Bindings, c.listed) +
		read(&unknown, &d.Conflicts, w.Conflicts, c.conflict) + read(&unknown, &d.Stories, w.Stories, c.story) +
		read(&unknown, &d.NextHops, w.NextHops, c.nextHop)
	return d, unknown, nil
}

// read decodes the elements that are valid, and returns the number of the others.
func read[E any](unknown *bool, to *[]E, list []cbor.RawMessage, convert func(*E) bool) (refused int) {
	for _, raw := range list {
		var e E
		more, err := Unmarshal(raw, &e)
		if *unknown = *unknown || more; err != nil || !convert(&e) {
			refused++
			continue
		}
		*to = append(*to, e)
	}
	return refused
}
