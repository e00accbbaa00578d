package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
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
	if err := f.validate(); err != nil {
		return contents{}, err
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

func (h *header) validate() error {
	if h.NodeID == "" || h.Node == "" || h.BootID == "" {
		return errors.New("it names no node, boot or node id")
	}
	return nil
}

// encode returns the document without savedAt. It omits conflicts that decode would refuse, and the
// oldest history if the document would be too large.
func encode(s detector.Snapshot, interfaces []observe.Origin, opts Options) ([]byte, error) {
	names := header{Version: version, Node: opts.Node, BootID: opts.BootID, NodeID: opts.NodeID}
	if err := names.validate(); err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	head, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	room := maxBytes - len(head) - 128 // savedAt and the lists' names
	open, err := encodeNewest(s.Open, maxOpen, true, &room)
	if err != nil {
		return nil, err
	}
	origins, err := encodeOrigins(interfaces, &room)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	history, err := encodeNewest(s.History, maxHistory, false, &room)
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"open":[`), bytes.Join(open, []byte(",")),
		[]byte(`],"history":[`), bytes.Join(history, []byte(",")), []byte(`],"interfaces":[`), bytes.Join(origins, []byte(",")), []byte("]}")), nil
}

// encodeNewest encodes as many of a list's last conflicts as fit into room, and reduces it.
func encodeNewest(list []detector.Conflict, limit int, open bool, room *int) ([][]byte, error) {
	var encoded [][]byte
	for _, c := range slices.Backward(list) {
		c.Holders = c.Holders[:min(len(c.Holders), document.MaxHolders)]
		doc := document.NewConflict(c)
		for i := range doc.Holders {
			doc.Holders[i].Unreachable = false
		}
		document.Clean(&doc, 0, time.Time{})
		if _, err := restored(doc, open); err != nil {
			continue
		}
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, fmt.Errorf("encoding conflict %s: %w", c.ID, err)
		}
		if *room -= len(data) + 1; *room < 0 || len(encoded) == limit {
			break
		}
		encoded = append(encoded, data)
	}
	slices.Reverse(encoded)
	return encoded, nil
}

// addTime adds savedAt to an encoded document.
func addTime(body []byte, now time.Time) []byte {
	head := `{"savedAt":"` + now.UTC().Format(time.RFC3339Nano) + `",`
	return append([]byte(head), body[1:]...)
}
