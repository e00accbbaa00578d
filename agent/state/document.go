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

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

const (
	// version of the format. Fields may be added under one version. What an older agent would
	// misunderstand needs a new one. The agent also reads version 1.
	version = 2

	maxOpen    = 10_000
	maxHistory = 10_000
	maxHolders = 64
	maxName    = 253 // bytes, as the longest names of Kubernetes
)

// document is the file. It begins with a field savedAt, for people.
type document struct {
	header
	Open       conflicts `json:"open"`
	History    conflicts `json:"history"`
	Interfaces origins   `json:"interfaces,omitzero"`
}

type header struct {
	Version int    `json:"version"`
	Node    string `json:"node"`
	BootID  string `json:"bootID"`
	NodeID  string `json:"nodeID"`
}

// conflict is the document of the API with a limit for holders.
type conflict struct {
	api.Conflict
	Holders holders `json:"holders"`
}

// holder is the document of the API, with the fields of version 1, in which Node is a NodeID.
type holder struct {
	api.Binding
	Cookie    uint64    `json:"cookie,omitzero"`
	CreatedAt time.Time `json:"createdAt,omitzero"`
	Device    struct {
		Name       string `json:"name"`
		Ifindex    uint32 `json:"ifindex"`
		Generation uint32 `json:"generation"`
	} `json:"device,omitzero"`
}

// upgrade converts a holder of version 1.
func (h *holder) upgrade() {
	id := h.Node
	h.Node, h.BootID, h.NetnsCookie = cluster.NodeName(id), cluster.BootID(id), h.Cookie
	h.Interface, h.Ifindex, h.Generation = h.Device.Name, h.Device.Ifindex, h.Device.Generation
	if h.Pod != nil {
		h.Pod.CreatedAt = h.CreatedAt
	}
}

type (
	conflicts []conflict
	holders   []holder
)

// UnmarshalJSON limits the number before it allocates memory.
func (c *conflicts) UnmarshalJSON(data []byte) (err error) {
	*c, err = bounded[conflict](data, max(maxOpen, maxHistory), "conflicts")
	return err
}

// UnmarshalJSON limits the number before it allocates memory.
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

// contents is a decoded document, with the number of invalid conflicts and the error of the first.
type contents struct {
	node, bootID, nodeID string
	snapshot             detector.Snapshot
	interfaces           []observe.Origin
	dropped              int
	dropCause            error
}

func decode(data []byte) (contents, error) {
	var format struct { // first: the version determines the other fields
		Version int `json:"version"`
	}
	if err := json.Unmarshal(data, &format); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	if format.Version < 1 || format.Version > version {
		return contents{}, fmt.Errorf("its version is %d, this agent knows versions 1 to %d", format.Version, version)
	}
	var d document
	if err := json.Unmarshal(data, &d); err != nil {
		return contents{}, fmt.Errorf("reading the document: %w", err)
	}
	if err := d.validate(); err != nil {
		return contents{}, err
	}
	c := contents{node: d.Node, bootID: d.BootID, nodeID: d.NodeID}
	parse := func(from conflicts, open bool) (list []detector.Conflict) {
		for i := range from {
			for n := range from[i].Holders {
				if format.Version == 1 {
					from[i].Holders[n].upgrade()
				}
			}
			parsed, err := from[i].parse()
			if err == nil && open == (parsed.State == detector.Resolved) {
				err = fmt.Errorf("%s is in the wrong list", parsed.State)
			}
			if err != nil {
				if c.dropped++; c.dropCause == nil {
					c.dropCause = fmt.Errorf("conflict %q: %w", shorten(from[i].ID), err)
				}
				continue
			}
			list = append(list, parsed)
		}
		return list
	}
	c.snapshot.Open, c.snapshot.History = parse(d.Open, true), parse(d.History, false)
	c.interfaces = slices.DeleteFunc(d.Interfaces, func(o observe.Origin) bool { return checkOrigin(o) != nil })
	return c, nil
}

func (d *header) validate() error {
	if d.NodeID == "" {
		return errors.New("no node id")
	}
	return errors.Join(checkName("node", d.Node), checkName("boot id", d.BootID))
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
	open, err := encodeNewest(s.Open, maxOpen, &room)
	if err != nil {
		return nil, err
	}
	origins, err := encodeOrigins(interfaces, &room)
	if err != nil {
		return nil, fmt.Errorf("encoding the state: %w", err)
	}
	history, err := encodeNewest(s.History, maxHistory, &room)
	if err != nil {
		return nil, err
	}
	return slices.Concat(head[:len(head)-1], []byte(`,"open":[`), bytes.Join(open, []byte(",")),
		[]byte(`],"history":[`), bytes.Join(history, []byte(",")), []byte(`],"interfaces":[`), bytes.Join(origins, []byte(",")), []byte("]}")), nil
}

// encodeNewest encodes as many of a list's last conflicts as fit into room, and reduces it.
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

// addTime adds savedAt to an encoded document.
func addTime(body []byte, now time.Time) []byte {
	head := `{"savedAt":"` + now.UTC().Format(time.RFC3339Nano) + `",`
	return append([]byte(head), body[1:]...)
}

func newConflict(c detector.Conflict) conflict {
	c.Holders = c.Holders[:min(len(c.Holders), maxHolders)]
	doc := conflict{Conflict: api.NewConflict(c), Holders: make(holders, 0, len(c.Holders))}
	for _, b := range doc.Conflict.Holders {
		b.Interface, b.Netns, b.Unreachable = sanitize(b.Interface), sanitize(b.Netns), false
		if b.Pod != nil {
			b.Pod.Namespace, b.Pod.Name, b.Pod.UID = sanitize(b.Pod.Namespace), sanitize(b.Pod.Name), sanitize(b.Pod.UID)
			if checkTime("", b.Pod.CreatedAt, false) != nil {
				b.Pod.CreatedAt = time.Time{} // an invalid time of another node
			}
		}
		doc.Holders = append(doc.Holders, holder{Binding: b})
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
		checkName("id", doc.ID), checkText("network", doc.Network),
		checkTime("second seen", doc.SecondSeen, true),
		checkTime("suspected", doc.SuspectedAt, true),
		checkTime("confirmed", doc.ConfirmedAt, c.State != detector.Suspected),
		checkTime("resolved", doc.ResolvedAt, c.State == detector.Resolved),
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

func (h *holder) parse(key detector.Key) (b detector.Binding, err error) {
	to := &b.Holder
	if err := to.MAC.UnmarshalText([]byte(h.MAC)); err != nil {
		return b, fmt.Errorf("%q is not a MAC", shorten(h.MAC))
	}
	if b.Evidence, err = detector.ParseEvidence(h.Evidence); err != nil || b.Evidence == 0 {
		return b, fmt.Errorf("%q is not an evidence", shorten(h.Evidence))
	}
	pod := api.Pod{}
	if h.Pod != nil {
		pod = *h.Pod
	}
	if err := errors.Join(
		checkName("node", h.Node), checkText("boot", h.BootID), checkText("interface", h.Interface), checkText("bridge", h.Bridge), checkText("netns", h.Netns),
		checkText("namespace", pod.Namespace), checkText("pod", pod.Name), checkText("uid", pod.UID), checkText("sandbox", pod.Sandbox),
		checkTime("created", pod.CreatedAt, false), checkTime("first seen", h.FirstSeen, true), checkTime("last seen", h.LastSeen, true),
	); err != nil {
		return b, err
	}
	to.Interface = detector.Interface{Ifindex: h.Ifindex, Generation: h.Generation}
	to.ID = detector.HolderID{Node: cluster.NodeID(h.Node, h.BootID), Netns: h.NetnsCookie}
	if h.NetnsCookie == 0 {
		if to.ID.Ifindex, to.ID.Generation = h.Ifindex, h.Generation; h.Ifindex == 0 {
			return b, errors.New("no identity")
		}
	}
	to.InterfaceName, to.Bridge, to.NetnsName = h.Interface, h.Bridge, h.Netns
	to.Pod = detector.Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}
	to.CreatedAt, to.Sandbox = pod.CreatedAt, detector.Sandbox{ID: pod.Sandbox, Stopped: pod.Stopped}
	b.Key, b.FirstSeen, b.LastSeen, b.FoundAtStart = key, h.FirstSeen, h.LastSeen, h.FoundAtStart
	return b, nil
}

// checkName requires a text that is not empty.
func checkName(what, s string) error {
	if s == "" {
		return fmt.Errorf("no %s", what)
	}
	return checkText(what, s)
}

// checkText requires at most maxName bytes of printable characters, for terminals and labels.
func checkText(what, s string) error {
	if len(s) > maxName || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return fmt.Errorf("%s is not a printable text of at most %d bytes", what, maxName)
	}
	return nil
}

// checkTime requires a time from a clock that was set, or zero unless needed. It may be in the future.
func checkTime(what string, t time.Time, needed bool) error {
	if (needed || !t.IsZero()) && (t.Year() < 2000 || t.Year() > 9999) {
		return fmt.Errorf("the time %s is not between the years 2000 and 9999", what)
	}
	return nil
}

// sanitize replaces characters that checkText refuses and shortens the name.
func sanitize(s string) string { return api.Text(s, maxName) }

// shorten limits invalid values in errors.
func shorten(s string) string { return api.Text(s, 64) }
