package wire

import (
	"encoding/binary"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
)

// The longest texts, in bytes. With them the largest entry fits a packet.
const (
	maxNetwork   = 128 // agent/config allows 63 and two VLAN tags
	maxNodeID    = 253 + 1 + 64
	maxInterface = 15
	maxNetns     = 253
	maxNamespace = 63
	maxPodName   = 253
	maxUID       = 64
	maxSandbox   = 13
	maxReason    = 120
	maxID        = 32  // of a conflict
	maxSentence  = 512 // a verdict or a note
)

// appendText writes a text that [reader.text] will accept: what nobody should see in a
// terminal becomes a question mark, and what is too long is cut.
func appendText(b []byte, s string, limit int) []byte {
	s = clean(s, limit)
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// text reads a copy of a text of printable characters.
func (r *reader) text(limit int) string {
	s := string(r.take(r.count(limit)))
	r.refuse(strings.ContainsFunc(s, unprintable))
	return s
}

// unprintable holds for control characters, for those that change the direction of
// text, and for bytes that are not UTF-8.
func unprintable(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }

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

func appendDetails(b []byte, d Details) []byte {
	b = appendText(b, d.Interface, maxInterface)
	b = appendText(b, d.Netns, maxNetns)
	b = appendText(b, d.Pod.Namespace, maxNamespace)
	b = appendText(b, d.Pod.Name, maxPodName)
	b = appendText(b, d.Pod.UID, maxUID)
	b = appendAge(b, d.Created)
	b = appendText(b, d.Sandbox.ID, maxSandbox)
	b = appendBool(b, d.Sandbox.Stopped)
	return appendBool(b, d.FoundAtStart)
}

func (r *reader) details() Details {
	return Details{
		Interface: r.text(maxInterface),
		Netns:     r.text(maxNetns),
		Pod: detector.Pod{
			Namespace: r.text(maxNamespace),
			Name:      r.text(maxPodName),
			UID:       r.text(maxUID),
		},
		Created:      r.age(),
		Sandbox:      detector.Sandbox{ID: r.text(maxSandbox), Stopped: r.bool()},
		FoundAtStart: r.bool(),
	}
}
