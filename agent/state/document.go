package state

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dupip/dupip/detector"
)

const (
	// version of the format. Fields may be added under one version; whatever an older
	// agent would misunderstand needs a new one.
	version = 1

	maxOpen    = 10_000
	maxHistory = 10_000
	maxHolders = 64
	// maxName bounds every name in bytes: the longest of Kubernetes are 253.
	maxName = 253
	// maxNodeID is a name with the boot's id and room for more: older agents added theirs.
	maxNodeID = maxName + 64
)

// document is the whole of it. A field savedAt goes before the others, for people.
type document struct {
	header
	Open    conflicts `json:"open"`
	History conflicts `json:"history"`
}

type header struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	BootID  string `json:"bootID"`
	NodeID  string `json:"nodeID"`
}

type conflict struct {
	ID          string    `json:"id"`
	Network     string    `json:"network"`
	IP          string    `json:"ip"`
	State       string    `json:"state"`
	Scope       string    `json:"scope"`
	SecondSeen  time.Time `json:"secondSeen,omitzero"`
	SuspectedAt time.Time `json:"suspectedAt,omitzero"`
	ConfirmedAt time.Time `json:"confirmedAt,omitzero"`
	ResolvedAt  time.Time `json:"resolvedAt,omitzero"`
	Holders     holders   `json:"holders"`
}

// holder is identified by the node and the cookie of its netns or, without one, by
// ifindex and generation; the device is where it was seen last.
type holder struct {
	Node       string    `json:"node"`
	Cookie     uint64    `json:"cookie,omitzero"`
	Ifindex    uint32    `json:"ifindex,omitzero"`
	Generation uint32    `json:"generation,omitzero"`
	Device     device    `json:"device,omitzero"`
	MAC        string    `json:"mac,omitzero"`
	Netns      string    `json:"netns,omitzero"`
	Pod        pod       `json:"pod,omitzero"`
	CreatedAt  time.Time `json:"createdAt,omitzero"`
	Evidence   string    `json:"evidence"`
	FirstSeen  time.Time `json:"firstSeen"`
	AtStart    bool      `json:"foundAtStart,omitzero"`
	LastSeen   time.Time `json:"lastSeen"`
}

type device struct {
	Name       string `json:"name,omitzero"`
	Ifindex    uint32 `json:"ifindex,omitzero"`
	Generation uint32 `json:"generation,omitzero"`
}

type pod struct {
	Namespace string `json:"namespace,omitzero"`
	Name      string `json:"name,omitzero"`
	UID       string `json:"uid,omitzero"`
}

type (
	conflicts []conflict
	holders   []holder
)

// UnmarshalJSON stops at the bound, before memory is taken for more.
func (c *conflicts) UnmarshalJSON(data []byte) (err error) {
	*c, err = bounded[conflict](data, max(maxOpen, maxHistory), "conflicts")
	return err
}

// UnmarshalJSON stops at the bound, before memory is taken for more.
func (h *holders) UnmarshalJSON(data []byte) (err error) {
	*h, err = bounded[holder](data, maxHolders, "holders")
	return err
}

func bounded[T any](data []byte, limit int, what string) ([]T, error) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	if token, err := decoder.Token(); err != nil || token != json.Delim('[') {
		return nil, fmt.Errorf("%s are not a list", what)
	}
	var list []T
	for decoder.More() {
		if len(list) == limit {
			return nil, fmt.Errorf("more than %d %s", limit, what)
		}
		var element T
		if err := decoder.Decode(&element); err != nil {
			return nil, err
		}
		list = append(list, element)
	}
	return list, nil
}

// contents are what a document says. leftOut conflicts of it make no sense, the first
// of them because of why.
type contents struct {
	node, bootID, nodeID string
	snapshot             detector.Snapshot
	leftOut              int
	why                  error
}

func decode(data []byte) (contents, error) {
	var format struct { // first: whatever else there is has a meaning by its version only
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	if format.Version != version {
		return contents{}, fmt.Errorf("its version is %d, this agent knows version %d", format.Version, version)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	if err := d.identified(); err != nil {
		return contents{}, err
	}
	c := contents{node: d.Node, bootID: d.BootID, nodeID: d.NodeID}
	take := func(from conflicts, open bool) (list []detector.Conflict) {
		for i := range from {
			parsed, err := from[i].parse()
			if err == nil && open == (parsed.State == detector.Resolved) {
				err = fmt.Errorf("%s is in the wrong list", parsed.State)
			}
			if err != nil {
				if c.leftOut++; c.why == nil {
					c.why = fmt.Errorf("conflict %q: %w", shorten(from[i].ID), err)
				}
				continue
			}
			list = append(list, parsed)
		}
		return list
	}
	c.snapshot.Open, c.snapshot.History = take(d.Open, true), take(d.History, false)
	return c, nil
}

// identified requires the names of the node.
func (d *header) identified() error {
	if d.NodeID == "" {
		return errors.New("no node id")
	}
	return errors.Join(isName("node", d.Node), isName("boot id", d.BootID), isText("node id", d.NodeID, maxNodeID))
}

// encode returns the document without the time at which it is saved. What decode would
// not accept is left out, and the oldest history where it would be too large.
func encode(s detector.Snapshot, opts Options) ([]byte, error) {
	names := header{Version: version, Node: opts.Node, BootID: opts.BootID, NodeID: opts.NodeID}
	if err := names.identified(); err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	head, err := json.Marshal(names)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	room := maxBytes - len(head) - 128 // the time and the lists' names
	open, err := encodeNewest(s.Open, maxOpen, &room)
	if err != nil {
		return nil, err
	}
	history, err := encodeNewest(s.History, maxHistory, &room)
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"open":[`), bytes.Join(open, []byte(",")),
		[]byte(`],"history":[`), bytes.Join(history, []byte(",")), []byte("]}")), nil
}

// encodeNewest encodes the last conflicts of a list, as many as there is room for.
func encodeNewest(list []detector.Conflict, limit int, room *int) ([][]byte, error) {
	var encoded [][]byte
	for _, c := range slices.Backward(list) {
		doc := newConflict(c)
		if _, err := doc.parse(); err != nil {
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

// stamp adds the time to an encoded document.
func stamp(body []byte, now time.Time) []byte {
	head := `{"savedAt":"` + now.UTC().Format(time.RFC3339Nano) + `",`
	return append([]byte(head), body[1:]...)
}

func newConflict(c detector.Conflict) conflict {
	doc := conflict{
		ID: c.ID, Network: c.Key.Network, IP: c.Key.IP.String(), State: c.State.String(), Scope: c.Scope.String(),
		SecondSeen: c.SecondSeen.UTC(), SuspectedAt: c.SuspectedAt.UTC(), ConfirmedAt: c.ConfirmedAt.UTC(), ResolvedAt: c.ResolvedAt.UTC(),
		Holders: make(holders, 0, min(len(c.Holders), maxHolders)),
	}
	for _, b := range c.Holders[:min(len(c.Holders), maxHolders)] {
		h, id := b.Holder, b.Holder.ID
		if isTime("", h.CreatedAt, false) != nil {
			h.CreatedAt = time.Time{} // as another node told it
		}
		doc.Holders = append(doc.Holders, holder{
			Node: id.Node, Cookie: id.Netns, Ifindex: id.Ifindex, Generation: id.Generation,
			Device: device{clean(h.InterfaceName, maxName), h.Interface.Ifindex, h.Interface.Generation},
			MAC:    h.MAC.String(), Netns: clean(h.NetnsName, maxName),
			Pod:      pod{clean(h.Pod.Namespace, maxName), clean(h.Pod.Name, maxName), clean(h.Pod.UID, maxName)},
			Evidence: b.Evidence.String(), FirstSeen: b.FirstSeen.UTC(), LastSeen: b.LastSeen.UTC(),
			CreatedAt: h.CreatedAt.UTC(), AtStart: b.FoundAtStart,
		})
	}
	return doc
}

// parse validates a conflict.
func (doc *conflict) parse() (c detector.Conflict, err error) {
	if c.Key.IP, err = netip.ParseAddr(doc.IP); err != nil || c.Key.IP.String() != doc.IP || c.Key.IP.Is4In6() || c.Key.IP.Zone() != "" {
		return c, fmt.Errorf("%q is not an address", shorten(doc.IP))
	}
	if c.State, err = detector.ParseState(doc.State); err != nil || c.State == 0 {
		return c, fmt.Errorf("%q is not a state", shorten(doc.State))
	}
	if c.Scope, err = detector.ParseScope(doc.Scope); err != nil || c.Scope == 0 {
		return c, fmt.Errorf("%q is not a scope", shorten(doc.Scope))
	}
	if err := errors.Join(
		isName("id", doc.ID), isText("network", doc.Network, maxName),
		isTime("second seen", doc.SecondSeen, true),
		isTime("suspected", doc.SuspectedAt, true),
		isTime("confirmed", doc.ConfirmedAt, c.State != detector.Suspected),
		isTime("resolved", doc.ResolvedAt, c.State == detector.Resolved),
	); err != nil {
		return c, err
	}
	c.ID, c.Key.Network = doc.ID, doc.Network
	c.SecondSeen, c.SuspectedAt, c.ConfirmedAt, c.ResolvedAt = doc.SecondSeen, doc.SuspectedAt, doc.ConfirmedAt, doc.ResolvedAt
	if len(doc.Holders) < 2 || len(doc.Holders) > maxHolders {
		return c, fmt.Errorf("%d holders", len(doc.Holders))
	}
	for i := range doc.Holders {
		b, err := doc.Holders[i].parse(c.Key)
		if err != nil {
			return c, fmt.Errorf("holder %d: %w", i+1, err)
		}
		c.Holders = append(c.Holders, b)
	}
	return c, nil
}

func (doc *holder) parse(key detector.Key) (b detector.Binding, err error) {
	h := &b.Holder
	if err := h.MAC.UnmarshalText([]byte(doc.MAC)); err != nil {
		return b, fmt.Errorf("%q is not a MAC", shorten(doc.MAC))
	}
	if b.Evidence, err = detector.ParseEvidence(doc.Evidence); err != nil || b.Evidence == 0 {
		return b, fmt.Errorf("%q is not an evidence", shorten(doc.Evidence))
	}
	if err := errors.Join(
		isText("node", doc.Node, maxNodeID), isText("interface", doc.Device.Name, maxName), isText("netns", doc.Netns, maxName),
		isText("namespace", doc.Pod.Namespace, maxName), isText("pod", doc.Pod.Name, maxName), isText("uid", doc.Pod.UID, maxName),
		isTime("created", doc.CreatedAt, false), isTime("first seen", doc.FirstSeen, true), isTime("last seen", doc.LastSeen, true),
	); err != nil {
		return b, err
	}
	if doc.Node == "" || doc.Cookie == 0 && doc.Ifindex == 0 || doc.Cookie != 0 && (doc.Ifindex != 0 || doc.Generation != 0) {
		return b, errors.New("no identity")
	}
	h.ID = detector.HolderID{Node: doc.Node, Netns: doc.Cookie, Ifindex: doc.Ifindex, Generation: doc.Generation}
	h.Interface = detector.Interface{Ifindex: doc.Device.Ifindex, Generation: doc.Device.Generation}
	h.InterfaceName, h.NetnsName = doc.Device.Name, doc.Netns
	h.Pod = detector.Pod{Namespace: doc.Pod.Namespace, Name: doc.Pod.Name, UID: doc.Pod.UID}
	h.CreatedAt, b.FoundAtStart = doc.CreatedAt, doc.AtStart
	b.Key, b.FirstSeen, b.LastSeen = key, doc.FirstSeen, doc.LastSeen
	return b, nil
}

// isName requires a text of at most maxName bytes, and not none.
func isName(what, s string) error {
	if s == "" {
		return fmt.Errorf("no %s", what)
	}
	return isText(what, s, maxName)
}

// isText requires printable characters only: names end up on terminals and in labels.
func isText(what, s string, limit int) error {
	if len(s) > limit || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s is not a printable text of at most %d bytes", what, limit)
	}
	return nil
}

// isTime requires a time from a clock that was set; zero only where none is needed.
// One that is ahead of ours may be nobody's fault.
func isTime(what string, t time.Time, needed bool) error {
	if t.IsZero() && !needed {
		return nil
	}
	if t.Year() < 2000 || t.Year() > 9999 {
		return fmt.Errorf("the time %s makes no sense", what)
	}
	return nil
}

// clean makes a name fit for the document: the interesting part of a longer one is
// its beginning.
func clean(s string, limit int) string {
	if isText("", s, limit) == nil {
		return s
	}
	s = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	for len(s) > limit {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// shorten bounds what is repeated of a document that makes no sense.
func shorten(s string) string {
	const most = 64
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
