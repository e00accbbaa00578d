package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// version of the format. Fields may be added under one version. What an older agent would
	// misunderstand needs a new one.
	version = 2

	maxOpen    = 10_000
	maxHistory = 10_000
	maxFormer  = 10_000
	maxBooks   = 8 // of a conflict
)

// header begins the file, after a field savedAt, for people.
type header struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	BootID  string `json:"bootID"`
	NodeID  string `json:"nodeID"`
}

// file is the rest. Its elements are read one by one, so that an invalid one costs no other.
type file struct {
	header
	Open       []json.RawMessage `json:"open"`       // of document.Conflict
	History    []json.RawMessage `json:"history"`    // of document.Conflict
	Former     []json.RawMessage `json:"former"`     // of document.Binding
	Interfaces []json.RawMessage `json:"interfaces"` // of observe.Origin
}

// contents is a decoded document, with the number of invalid conflicts and the error of the first.
type contents struct {
	header
	State
	dropped   int
	dropCause error
}

func decode(data []byte) (contents, error) {
	var f file
	if err := json.Unmarshal(data, &f.header); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	if f.Version != version { // which says what the other fields are
		return contents{}, fmt.Errorf("its version is %d, this agent knows version %d", f.Version, version)
	}
	if err := json.Unmarshal(data, &f); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	document.Clean(&f.header, 0, time.Time{})
	if f.NodeID == "" || f.Node == "" || f.BootID == "" {
		return contents{}, errors.New("it names no node, boot or node id")
	}
	if len(f.Open) > maxOpen || len(f.History) > maxHistory || len(f.Former) > maxFormer || len(f.Interfaces) > observe.MaxOrigins {
		return contents{}, fmt.Errorf("it has %d and %d conflicts, %d former holders and %d interfaces",
			len(f.Open), len(f.History), len(f.Former), len(f.Interfaces))
	}
	c := contents{header: f.header, State: State{Books: make(map[string][]document.Book)}}
	parse := func(from []json.RawMessage, open bool) (list []detector.Conflict) {
		for _, raw := range from {
			var doc document.Conflict
			err := json.Unmarshal(raw, &doc)
			document.Clean(&doc, 0, time.Time{})
			var parsed detector.Conflict
			if err == nil {
				parsed, err = restored(doc, open)
			}
			if err == nil {
				list = append(list, parsed)
				if n := min(len(doc.Books), maxBooks); n > 0 {
					c.Books[doc.ID] = doc.Books[:n]
				}
			} else if c.dropped++; c.dropCause == nil {
				c.dropCause = err
			}
		}
		return list
	}
	c.Open, c.History = parse(f.Open, true), parse(f.History, false)
	for _, raw := range f.Former {
		var b document.Binding
		if json.Unmarshal(raw, &b) == nil && cleanFormer(&b) {
			c.Former = append(c.Former, b.Detector())
		}
	}
	for _, raw := range f.Interfaces {
		var o observe.Origin
		if json.Unmarshal(raw, &o) == nil && cleanOrigin(&o) {
			c.Interfaces = append(c.Interfaces, o)
		}
	}
	return c, nil
}

// restored returns the conflict of a document.
func restored(doc document.Conflict, open bool) (detector.Conflict, error) {
	c, err := doc.Detector()
	switch {
	case err != nil:
	case open == (c.State == detector.Resolved):
		err = fmt.Errorf("%s is in the wrong list", c.State)
	case len(c.Holders) < 2:
		err = fmt.Errorf("%d holders", len(c.Holders))
	}
	if err != nil {
		return c, fmt.Errorf("conflict %q: %w", document.Text(doc.ID, 64), err)
	}
	return c, nil
}

// cleanOrigin cleans an origin, which holds for one boot of the node only, and reports whether it is valid.
func cleanOrigin(o *observe.Origin) bool {
	document.Clean(o, 0, time.Time{})
	return o.Ifindex > 0 && o.Role <= observe.PrimaryByRoute && o.Name != ""
}

// cleanFormer cleans a holder that is gone, and reports whether it is valid.
func cleanFormer(b *document.Binding) bool {
	document.Clean(b, 0, time.Time{})
	return b.Check() == nil
}

// encode returns the document without savedAt. It omits what decode would refuse, and the oldest history if the document would
// be too large.
func encode(s State, opts Options) []byte {
	head, _ := json.Marshal(header{version, opts.Node, opts.BootID, opts.NodeID}) // it cannot fail
	room := maxBytes - len(head) - 128                                            // savedAt and the lists' names
	open := encodeNewest(s.Open, s.Books, maxOpen, true, &room)
	slices.SortFunc(s.Interfaces, func(a, b observe.Origin) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	origins := encodeList(slices.All(s.Interfaces), observe.MaxOrigins, &room, func(o observe.Origin) (any, bool) {
		valid := cleanOrigin(&o)
		return o, valid
	})
	history := encodeNewest(s.History, s.Books, maxHistory, false, &room)
	former := encodeList(slices.Backward(s.Former), maxFormer, &room, func(b detector.Binding) (any, bool) {
		doc := document.NewBinding(b)
		valid := cleanFormer(&doc)
		return doc, valid
	})
	slices.Reverse(former)
	body := head[:len(head)-1]
	for _, list := range []struct {
		name     string
		elements [][]byte
	}{{"open", open}, {"history", history}, {"former", former}, {"interfaces", origins}} {
		body = fmt.Appendf(body, `,%q:[%s]`, list.name, bytes.Join(list.elements, []byte(",")))
	}
	return append(body, '}')
}

// encodeNewest encodes the last conflicts of a list.
func encodeNewest(list []detector.Conflict, books map[string][]document.Book, limit int, open bool, room *int) [][]byte {
	encoded := encodeList(slices.Backward(list), limit, room, func(c detector.Conflict) (any, bool) {
		c.Holders = c.Holders[:min(len(c.Holders), document.MaxHolders)]
		doc := document.NewConflict(c)
		document.Clean(&doc, 0, time.Time{})
		doc.Books = books[c.ID]
		_, err := restored(doc, open)
		return doc, err == nil
	})
	slices.Reverse(encoded)
	return encoded
}

// encodeList encodes the first valid elements of a list, as many as fit into room, and reduces it.
func encodeList[T any](list iter.Seq2[int, T], limit int, room *int, element func(T) (doc any, valid bool)) (encoded [][]byte) {
	for _, e := range list {
		doc, valid := element(e)
		data, err := json.Marshal(doc)
		if !valid || err != nil { // an error would be of a time, and invalid ones are not left
			continue
		}
		if *room -= len(data) + 1; *room < 0 || len(encoded) == limit {
			break
		}
		encoded = append(encoded, data)
	}
	return encoded
}

// addTime adds savedAt to an encoded document.
func addTime(body []byte, now time.Time) []byte {
	head := `{"savedAt":"` + now.UTC().Format(time.RFC3339Nano) + `",`
	return append([]byte(head), body[1:]...)
}
