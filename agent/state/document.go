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
	Interfaces []json.RawMessage `json:"interfaces"` // of observe.Origin
}

// contents is a decoded document, with the number of invalid conflicts and the error of the first.
type contents struct {
	header
	snapshot   detector.Snapshot
	interfaces []observe.Origin
	dropped    int
	dropCause  error
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
	if len(f.Open) > maxOpen || len(f.History) > maxHistory || len(f.Interfaces) > observe.MaxOrigins {
		return contents{}, fmt.Errorf("it has %d and %d conflicts and %d interfaces", len(f.Open), len(f.History), len(f.Interfaces))
	}
	c := contents{header: f.header}
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
			} else if c.dropped++; c.dropCause == nil {
				c.dropCause = err
			}
		}
		return list
	}
	c.snapshot.Open, c.snapshot.History = parse(f.Open, true), parse(f.History, false)
	for _, raw := range f.Interfaces {
		var o observe.Origin
		if json.Unmarshal(raw, &o) == nil && cleanOrigin(&o) {
			c.interfaces = append(c.interfaces, o)
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

// encode returns the document without savedAt. It omits what decode would refuse, and the oldest history if the document would
// be too large.
func encode(s detector.Snapshot, interfaces []observe.Origin, opts Options) []byte {
	head, _ := json.Marshal(header{version, opts.Node, opts.BootID, opts.NodeID}) // it cannot fail
	room := maxBytes - len(head) - 128                                            // savedAt and the lists' names
	open := encodeNewest(s.Open, maxOpen, true, &room)
	slices.SortFunc(interfaces, func(a, b observe.Origin) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	origins := encodeList(slices.All(interfaces), observe.MaxOrigins, &room, func(o observe.Origin) (any, bool) {
		valid := cleanOrigin(&o)
		return o, valid
	})
	history := encodeNewest(s.History, maxHistory, false, &room)
	return slices.Concat(head[:len(head)-1], []byte(`,"open":[`), bytes.Join(open, []byte(",")),
		[]byte(`],"history":[`), bytes.Join(history, []byte(",")), []byte(`],"interfaces":[`), bytes.Join(origins, []byte(",")), []byte("]}"))
}

// encodeNewest encodes the last conflicts of a list.
func encodeNewest(list []detector.Conflict, limit int, open bool, room *int) [][]byte {
	encoded := encodeList(slices.Backward(list), limit, room, func(c detector.Conflict) (any, bool) {
		c.Holders = c.Holders[:min(len(c.Holders), document.MaxHolders)]
		doc := document.NewConflict(c)
		document.Clean(&doc, 0, time.Time{})
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
