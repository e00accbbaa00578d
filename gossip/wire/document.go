package wire

import (
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"github.com/dupip/dupip/detector/cluster"
)

// maxAway bounds the nodes that one says were cut off, maxCaptures the holders of one address whose packets it captured.
const (
	maxAway     = 256
	maxCaptures = 64
)

// MarshalDocument encodes what the agent of a node knows, the reply to a [Query], in at most limit bytes. What does not
// fit is counted as omitted. Bindings of other nodes are left out: only stories and conflicts have those.
func MarshalDocument(d cluster.Document, node string, limit int, now time.Time) []byte {
	c := sending(node, now)
	d.Bindings, d.Conflicts, d.Stories, d.NextHops = slices.Clone(d.Bindings), slices.Clone(d.Conflicts), slices.Clone(d.Stories), slices.Clone(d.NextHops)
	d.Findings, d.Books, d.Captures = slices.Clone(d.Findings), slices.Clone(d.Books), slices.Clone(d.Captures)
	d.Unchecked, d.Checked = sentences(d.Unchecked), sentences(d.Checked)
	keep(&d.Bindings, c.listed)
	d.Omitted += keep(&d.Conflicts, c.conflict) + keep(&d.Stories, c.story) + keep(&d.NextHops, c.nextHop) + keep(&d.Findings, c.finding)
	d.Away = slices.Clone(d.Away)
	d.Omitted += keep(&d.Captures, c.capture) + cut(&d.Captures, maxCaptures)
	keep(&d.Books, c.book)
	keep(&d.Away, c.away)
	cut(&d.Away, maxAway)
	d.Omitted += cut(&d.Bindings, maxElements) + cut(&d.Conflicts, maxElements) + cut(&d.Stories, maxElements) +
		cut(&d.NextHops, maxElements) + cut(&d.Findings, maxElements) + cut(&d.Books, maxElements)
	if len(d.Status) > limit/2 {
		d.Status = nil
		d.Omitted++
	}
	for {
		b := Marshal(d)
		if len(b) <= limit {
			return b
		}
		share := func(n int) int { return n * limit / len(b) }
		d.Omitted += cut(&d.Bindings, share(len(d.Bindings))) + cut(&d.NextHops, share(len(d.NextHops))) +
			cut(&d.Conflicts, share(len(d.Conflicts))) + cut(&d.Stories, share(len(d.Stories))) +
			cut(&d.Findings, share(len(d.Findings))) + cut(&d.Books, share(len(d.Books))) +
			cut(&d.Captures, share(len(d.Captures)))
	}
}

// sentences returns the first few of them, without what nobody should see in a terminal.
func sentences(list []string) (clean []string) {
	for _, s := range list[:min(len(list), maxOthers)] {
		clean = append(clean, Clean(s, maxSentence))
	}
	return clean
}

// cut leaves at most n elements in a list, and returns the number of the others.
func cut[E any](list *[]E, n int) (omitted int) {
	n = min(n, len(*list))
	omitted, *list = len(*list)-n, (*list)[:n]
	return omitted
}

// UnmarshalDocument is the reverse of [MarshalDocument], at the node that asked. Elements that are invalid are
// counted as omitted. It reports whether there were fields that this version does not know, and fails with ErrMalformed.
func UnmarshalDocument(b []byte, node string, now time.Time) (d cluster.Document, unknown bool, err error) {
	// Element by element: a hostile one can have more holders than it keeps.
	var raw struct {
		Bindings  []cbor.RawMessage `cbor:"1,keyasint"`
		Conflicts []cbor.RawMessage `cbor:"2,keyasint"`
		Stories   []cbor.RawMessage `cbor:"3,keyasint"`
		NextHops  []cbor.RawMessage `cbor:"4,keyasint"`
		Omitted   int               `cbor:"5,keyasint"`
		Findings  []cbor.RawMessage `cbor:"6,keyasint"`
		Unchecked []string          `cbor:"8,keyasint"`
		Books     []cbor.RawMessage `cbor:"7,keyasint"`
		Away      []cbor.RawMessage `cbor:"9,keyasint"`
		Status    []byte            `cbor:"10,keyasint"`
		Captures  []cbor.RawMessage `cbor:"11,keyasint"`
		Checked   []string          `cbor:"12,keyasint"`
	}
	if unknown, err = Unmarshal(b, &raw); err != nil {
		return d, unknown, err
	}
	c := receiving(node, now)
	d.Unchecked, d.Checked, d.Status = sentences(raw.Unchecked), sentences(raw.Checked), raw.Status
	d.Omitted = min(max(raw.Omitted, 0), maxElements) + read(&unknown, &d.Bindings, raw.Bindings, c.listed) +
		read(&unknown, &d.Conflicts, raw.Conflicts, c.conflict) + read(&unknown, &d.Stories, raw.Stories, c.story) +
		read(&unknown, &d.NextHops, raw.NextHops, c.nextHop) + read(&unknown, &d.Findings, raw.Findings, c.finding) +
		read(&unknown, &d.Books, raw.Books, c.book) + read(&unknown, &d.Away, raw.Away[:min(len(raw.Away), maxAway)], c.away) +
		read(&unknown, &d.Captures, raw.Captures[:min(len(raw.Captures), maxCaptures)], c.capture) + max(len(raw.Captures)-maxCaptures, 0)
	return d, unknown, nil
}

// read decodes the elements that are valid, and returns the number of the others.
func read[E any](unknown *bool, to *[]E, list []cbor.RawMessage, convert func(*E) bool) (invalid int) {
	for _, raw := range list {
		var e E
		more, err := Unmarshal(raw, &e)
		if *unknown = *unknown || more; err != nil || !convert(&e) {
			invalid++
			continue
		}
		*to = append(*to, e)
	}
	return invalid
}
