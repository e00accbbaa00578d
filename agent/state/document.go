package state

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/bounds"
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
}

// file is the rest. Its elements are read one by one, so that an invalid one costs no other.
type file struct {
	header
	Open       []json.RawMessage `json:"open"`       // of document.Conflict
	History    []json.RawMessage `json:"history"`    // of document.Conflict
	Former     []json.RawMessage `json:"former"`     // of document.Binding
	Interfaces []json.RawMessage `json:"interfaces"` // of observe.Origin
}

// contents is a decoded document, with the errors of invalid conflicts.
type contents struct {
	header
	State
	invalid []error
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
	if f.Node == "" || f.BootID == "" {
		return contents{}, errors.New("it names no node or no boot")
	}
	if len(f.Open) > maxOpen || len(f.History) > maxHistory || len(f.Former) > maxFormer || len(f.Interfaces) > observe.MaxOrigins {
		return contents{}, fmt.Errorf("it has %d and %d conflicts, %d former holders and %d interfaces",
			len(f.Open), len(f.History), len(f.Former), len(f.Interfaces))
	}
	c := contents{header: f.header, State: State{
		Books: make(map[string][]document.Book), Facts: make(map[string]map[detector.HolderID]*document.Facts), Acks: make(map[string]*document.Ack),
	}}
	conflicts := func(from []json.RawMessage, open bool) []detector.Conflict {
		list, invalid := decodeList(from, func(doc *document.Conflict) (detector.Conflict, error) {
			made, err := restored(doc, open)
			tooMuchState.Exceeded(max(len(doc.Books)-maxBooks, 0))
			if n := min(len(doc.Books), maxBooks); err == nil && n > 0 {
				c.Books[doc.ID] = doc.Books[:n]
			}
			if known := factsOf(doc); err == nil && len(known) > 0 {
				c.Facts[doc.ID] = known
			}
			if a := doc.Acknowledged; err == nil && open && a != nil && a.Check() == nil {
				c.Acks[doc.ID] = a
			}
			return made, err
		})
		c.invalid = append(c.invalid, invalid...)
		return list
	}
	c.Open, c.History = conflicts(f.Open, true), conflicts(f.History, false)
	c.Former, _ = decodeList(f.Former, restoredFormer)
	c.Interfaces, _ = decodeList(f.Interfaces, restoredOrigin)
	return c, nil
}

// decodeList decodes the elements of a list. It returns those that are valid, with clean texts, and the errors of the others.
func decodeList[D, E any](from []json.RawMessage, restored func(*D) (E, error)) (list []E, invalid []error) {
	for _, raw := range from {
		var doc D
		var element E
		err := json.Unmarshal(raw, &doc)
		document.Clean(&doc, 0, time.Time{})
		if err == nil {
			element, err = restored(&doc)
		}
		if err != nil {
			invalid = append(invalid, err)
			continue
		}
		list = append(list, element)
	}
	return list, invalid
}

// factsOf returns the facts of holders.
func factsOf(doc *document.Conflict) map[detector.HolderID]*document.Facts {
	known := make(map[detector.HolderID]*document.Facts)
	for _, b := range doc.Holders {
		if b.Facts != nil {
			b.Facts.Check(b.IP)
			known[b.ID()] = b.Facts
		}
	}
	return known
}

// restored returns the conflict of a document.
func restored(doc *document.Conflict, open bool) (detector.Conflict, error) {
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

// restoredFormer returns the holder of a document, which is gone.
func restoredFormer(doc *document.Binding) (detector.Binding, error) {
	return doc.Detector(), doc.Check()
}

// restoredOrigin returns an origin, which holds for one boot of the node only.
func restoredOrigin(o *observe.Origin) (observe.Origin, error) {
	if o.Ifindex <= 0 || o.Role > observe.PrimaryByRoute || o.Name == "" {
		return *o, errors.New("no interface")
	}
	return *o, nil
}

// encode returns the document without savedAt. It omits what decode would refuse, and the oldest history if the document would
// be too large.
func encode(s State, opts Options) []byte {
	head, _ := json.Marshal(header{version, opts.Node, opts.BootID}) // it cannot fail
	conflict := func(c detector.Conflict) document.Conflict {
		c.Holders = c.Holders[:min(len(c.Holders), document.MaxHolders)]
		doc := cleaned(document.NewConflict(c))
		doc.Books, doc.Acknowledged = s.Books[c.ID], s.Acks[c.ID] // clean already, and not ours to change
		for i, b := range c.Holders {
			doc.Holders[i].Facts = s.Facts[c.ID][b.Holder.ID]
		}
		return doc
	}
	restoredAs := func(open bool) func(*document.Conflict) (detector.Conflict, error) {
		return func(doc *document.Conflict) (detector.Conflict, error) { return restored(doc, open) }
	}
	slices.SortFunc(s.Interfaces, func(a, b observe.Origin) int { return cmp.Compare(a.Ifindex, b.Ifindex) })
	body := head[:len(head)-1]
	// What there is no room for is at the end, and of former holders, of which pods can make many.
	body = appendList(body, "interfaces", s.Interfaces, 1, observe.MaxOrigins, cleaned[observe.Origin], restoredOrigin)
	former := func(b detector.Binding) document.Binding { return cleaned(document.NewBinding(b)) }
	body = appendList(body, "former", s.Former, 0.25, maxFormer, former, restoredFormer)
	body = appendList(body, "open", s.Open, 1, maxOpen, conflict, restoredAs(true))
	body = appendList(body, "history", s.History, 1, maxHistory, conflict, restoredAs(false))
	return append(body, '}')
}

var tooMuchState = bounds.New("state file full")

// cleaned returns a document with texts and times that decode leaves as they are.
func cleaned[D any](doc D) D {
	document.Clean(&doc, 0, time.Time{})
	return doc
}

// appendList appends the last valid elements of a list, as many as there is room for in that share of what is left.
func appendList[D, E any](body []byte, name string, list []E, share float64, limit int, docOf func(E) D, restored func(*D) (E, error)) []byte {
	room := int(share * float64(maxBytes-len(body)-256)) // savedAt and the lists' names
	var encoded [][]byte
	for _, e := range slices.Backward(list) {
		doc := docOf(e)
		_, err := restored(&doc)
		data, failed := json.Marshal(doc)
		if err != nil || failed != nil { // failed would be for a time, and invalid ones are not left
			continue
		}
		if room -= len(data) + 1; room < 0 || len(encoded) == limit {
			tooMuchState.Exceeded(len(list) - len(encoded))
			break
		}
		encoded = append(encoded, data)
	}
	slices.Reverse(encoded)
	return fmt.Appendf(body, `,%q:[%s]`, name, bytes.Join(encoded, []byte(",")))
}

// Encode returns the document that [Decode] reads, saved now.
func Encode(s State, opts Options, now time.Time) []byte { return addTime(encode(s, opts), now) }

// addTime adds savedAt to an encoded document.
func addTime(body []byte, now time.Time) []byte {
	head := `{"savedAt":"` + now.UTC().Format(time.RFC3339Nano) + `",`
	return append([]byte(head), body[1:]...)
}
