package document

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/bounds"
)

// Answer is what the agent of a node says to another one: what it knows of a [Query]. What was not asked for is absent.
type Answer struct {
	// Node and BootID are who answers, and Self: that is who asks. They do not travel.
	Node   string `json:"-"`
	BootID string `json:"-"`
	Self   bool   `json:"-"`

	At        time.Time  `json:"at"`    // on the clock of its node
	Count     int        `json:"count"` // of elements, with those that did not fit
	Bindings  []Binding  `json:"bindings,omitzero"`
	Conflicts []Conflict `json:"conflicts,omitzero"` // each with the route of this node, at most
	Stories   []Story    `json:"stories,omitzero"`
	Findings  []Finding  `json:"findings,omitzero"`
	Captures  []Capture  `json:"captures,omitzero"`
	Status    *Status    `json:"status,omitzero"`
	// Unchecked says which findings the node did not look for, or which packets it did not capture, and why. Checked are the networks of
	// CNI's configuration whose books it has compared with what the findings were asked for.
	Unchecked []string `json:"unchecked,omitzero" text:"sentence"`
	Checked   []string `json:"checked,omitzero"`
	// NoBook is that which was not checked because the node has no book that an agent reads, and says so.
	NoBook string `json:"noBook,omitzero" text:"sentence"`
	Books  []Book `json:"books,omitzero"` // about the address of its stories
	// Routes are this node's own to that address, if no conflict of it has one: several if the kernel spreads connections over them.
	Routes []Route `json:"routes,omitzero"`
	// Absences are of nodes with holders of its conflicts.
	Absences []Absence `json:"absences,omitzero"`
	Omitted  int       `json:"omitted,omitzero"` // elements that did not fit
}

func (a *Answer) elements() int {
	return len(a.Bindings) + len(a.Conflicts) + len(a.Stories) + len(a.Findings) + len(a.Captures) + len(a.Books)
}

// Absence is when a node and the one that says so had lost each other for the last time.
type Absence struct {
	Node   string    `json:"node"`
	BootID string    `json:"boot,omitzero"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
}

// NodeID identifies the node that answers, as [cluster.NodeID].
func (a *Answer) NodeID() string { return cluster.NodeID(a.Node, a.BootID) }

// answerSize bounds the JSON of an answer.
var answerSize = size{bytes: 12 << 20, elements: 1 << 16, fields: 1 << 19}

// The bounds of the parts of an answer.
const (
	maxStories  = 16
	maxNotes    = 64
	maxAbsences = 256
	maxCaptures = 64
	maxFrames   = 64
	maxFrame    = 512
	maxRoutes   = 8
	maxTexts    = 8
	maxOmitted  = 1_000_000
)

// Encode returns the answer in JSON, packed by gzip, in at most limit bytes. What does not fit is counted as omitted.
func (a Answer) Encode(limit int) ([]byte, error) {
	a.Count = a.elements() + a.Omitted
	shortened := false
	for {
		text, packed, err := pack(a, quick)
		if err != nil {
			return nil, err
		}
		had, ok := measure(text)
		need := max(had.times(answerSize), float64(len(packed))/float64(limit))
		switch {
		case !ok && shortened:
			return nil, errors.New("an answer is too deep, or has too long frames")
		case !ok: // the configuration of CNI may have a text of any length; all of a is the caller's
			var short Answer
			if err := json.Unmarshal(text, &short); err != nil {
				return nil, fmt.Errorf("encoding a document: %w", err)
			}
			shorten(&short, maxSentence)
			a, shortened = short, true
			continue
		case need <= 1:
			return packed, nil
		case a.elements() == 0 && a.Status == nil:
			return nil, fmt.Errorf("an answer without its elements needs %d bytes", len(packed))
		case a.elements() == 0:
			a.Status = nil
			a.Omitted++
			continue
		}
		a.Omitted += fit(&a.Bindings, need) + fit(&a.Conflicts, need) + fit(&a.Stories, need) +
			fit(&a.Findings, need) + fit(&a.Captures, need) + fit(&a.Books, need)
	}
}

// fit leaves so many elements of a list that it needs that many times less room, and returns the number of the others.
func fit[E any](list *[]E, times float64) (omitted int) {
	kept := int(float64(len(*list)) / times * 0.98)
	omitted, *list = len(*list)-kept, (*list)[:kept]
	return omitted
}

var tooManyTexts = bounds.New("too many texts or absences in an answer")

// DecodeAnswer is the reverse of [Answer.Encode] at the node that asked: the answer is that of the agent of a node, and was made now.
// What is invalid in it, or not for that node to say, is counted as omitted. memory is what it takes, about, in bytes.
func DecodeAnswer(packed []byte, node, boot string, now time.Time) (a Answer, memory int, err error) {
	had, err := unpack(packed, &a, answerSize, func() time.Time { return a.At }, now)
	if err != nil {
		return Answer{}, 0, fmt.Errorf("reading the answer of node %s: %w", node, err)
	}
	a.Node, a.BootID, a.At, a.Count = node, boot, now, 0
	a.Omitted = min(max(a.Omitted, 0), maxOmitted)
	own := a.NodeID()
	a.Omitted += keep(&a.Bindings, func(b *Binding) bool {
		b.Facts, b.Listing = nil, nil // holders of conflicts have them
		return b.Check() == nil && b.NodeID() == own
	}) +
		keep(&a.Conflicts, func(c *Conflict) bool { return c.saidBy(node, boot) }) +
		keep(&a.Stories, func(s *Story) bool { return s.saidBy(node, boot) }) + cut(&a.Stories, maxStories) +
		keep(&a.Findings, func(f *Finding) bool {
			f.Node, f.BootID, f.ReservedNode, f.FreedBy, f.OwnerUID, f.Ranges, f.Pods = node, boot, "", time.Time{}, "", nil, 0
			cut(&f.Through, maxRoutes)
			if f.Kind != Misrouted && f.Kind != Diverted {
				f.Through, f.End, f.Partly = nil, "", false
			}
			if f.Kind != TwoNodes || f.Prefix.Addr() != f.IP {
				f.Prefix = netip.Prefix{}
			}
			if f.Kind != TwoNodes {
				f.Prefix, f.Gateway = netip.Prefix{}, false
			}
			if f.Kind != Stranger {
				f.By = detector.MAC{}
			}
			if !slices.Contains([]string{Misrouted, Diverted, TwoNodes, Stranger}, f.Kind) {
				f.HeldBy = ""
			}
			return detector.ValidIP(f.IP) && !slices.Contains(OfReporters, f.Kind)
		}) +
		keep(&a.Captures, func(c *Capture) bool { return c.saidBy(node, boot) }) + cut(&a.Captures, maxCaptures)
	keep(&a.Books, func(b *Book) bool {
		b.Node, b.BootID, b.Former = node, boot, nil
		b.Unreserved = max(b.Unreserved, 0)
		return true
	})
	keep(&a.Routes, func(r *Route) bool {
		r.Node, r.BootID = node, boot
		return r.To != ToHolder && r.Holder == nil
	})
	cut(&a.Routes, maxRoutes)
	keep(&a.Absences, func(b *Absence) bool { return b.Node != "" && !b.From.IsZero() && b.From.Before(b.Until) })
	tooManyTexts.Exceeded(cut(&a.Absences, maxAbsences) + cut(&a.Unchecked, maxTexts) + cut(&a.Checked, maxTexts))
	if a.Status != nil {
		a.Status.Node, a.Status.BootID = node, boot
	}
	return a, had.memory(), nil
}

// CountAnswer is [DecodeAnswer] where there is no room for the answer: all of it is counted as omitted.
func CountAnswer(packed []byte, node, boot string, now time.Time) (a Answer, memory int, err error) {
	a = Answer{Node: node, BootID: boot, At: now}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return a, 0, fmt.Errorf("reading the answer of node %s: %w", node, err)
	}
	head := json.NewDecoder(io.LimitReader(r, 256)) // where the count is
	for name := json.Token(nil); ; {
		value, err := head.Token()
		if err != nil {
			return a, 0, fmt.Errorf("reading the answer of node %s: it has no count: %w", node, err)
		}
		if n, ok := value.(float64); ok && name == "count" {
			a.Omitted = int(min(max(n, 0), maxOmitted))
			return a, 0, nil
		}
		name = value
	}
}

// keep removes what is invalid from a list, and returns its number.
func keep[E any](list *[]E, valid func(*E) bool) (removed int) {
	all := len(*list)
	kept := (*list)[:0]
	for i := range *list {
		if e := &(*list)[i]; valid(e) {
			kept = append(kept, *e)
		}
	}
	if *list = kept; len(kept) < all {
		*list = slices.Clone(kept) // the others must not stay in memory
	}
	return all - len(kept)
}

// cut leaves at most n elements in a list, and returns the number of the others.
func cut[E any](list *[]E, n int) (omitted int) {
	if omitted = len(*list) - n; omitted <= 0 {
		return 0
	}
	*list = slices.Clone((*list)[:n])
	return omitted
}

// saidBy reports whether a node may say so of a conflict, without what it may not: the judgement, the routes of others, and facts of
// their holders.
func (c *Conflict) saidBy(node, boot string) bool {
	made, err := c.Detector()
	if err != nil {
		return false
	}
	// Of a report that was too long, the holder is missing that shows that it is no drill.
	c.Judgement, c.Drill = nil, c.Drill && made.IsDrill()
	c.Shared = min(max(c.Shared, 0), maxShared)
	if a := c.Acknowledged; a != nil && (a.Check() != nil || a.Seconds == 0 || c.State != detector.Confirmed) {
		c.Acknowledged = nil
	}
	checkFacts(c.Holders, cluster.NodeID(node, boot))
	keep(&c.Routes, func(r *Route) bool {
		r.Node, r.BootID, r.Ends, r.Policy = node, boot, false, false
		return r.To == ToHolder && r.Holder != nil && *r.Holder >= 0 && *r.Holder < len(c.Holders) || r.To != ToHolder && r.Holder == nil
	})
	cut(&c.Routes, 1)
	for i := range c.Books {
		c.Books[i].Node, c.Books[i].Former, c.Books[i].OwnerUID = node, nil, "" // perhaps before its last boot
		if r := c.Books[i].Reservation; r != nil && len(r.Sandboxes) > maxTexts {
			tooManyTexts.Exceeded(len(r.Sandboxes))
			r.Sandboxes = nil // one that is cut off may be a holder's
		}
	}
	cut(&c.Books, maxTexts)
	return true
}

func (s *Story) saidBy(node, boot string) bool {
	s.Nodes, s.Verdicts = nil, nil
	for _, list := range [][]Binding{s.Bindings, s.Former} {
		checkFacts(list, "") // the holders of its conflict have them
	}
	s.Notes = s.Notes[max(len(s.Notes)-maxNotes, 0):]
	keep(&s.Former, func(b *Binding) bool {
		return b.Check() == nil && b.Network == s.Network && b.IP == s.IP && b.Node == node // perhaps before its last boot
	})
	cut(&s.Former, detector.MaxFormer)
	for i := range s.Notes {
		s.Notes[i].Node, s.Notes[i].BootID = node, boot
	}
	return detector.Key{Network: s.Network, IP: s.IP}.Valid() && len(s.Bindings) <= MaxHolders && checkHolders(s.Network, s.IP, s.Bindings) == nil &&
		(s.Conflict == nil || s.Conflict.Network == s.Network && s.Conflict.IP == s.IP && s.Conflict.saidBy(node, boot))
}

func (c *Capture) saidBy(node, boot string) bool {
	c.Node, c.BootID = node, boot
	c.Lost = max(c.Lost, 0)
	cut(&c.Frames, maxFrames)
	for i := range c.Frames {
		f := &c.Frames[i]
		f.Data = f.Data[:min(len(f.Data), maxFrame)]
		f.Length = min(max(f.Length, len(f.Data)), 1<<20)
	}
	return detector.Key{Network: c.Network, IP: c.IP}.Valid()
}
