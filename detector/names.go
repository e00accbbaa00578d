package detector

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ErrUnknownName is returned (wrapped) by the Parse functions of this package and by
// MAC.UnmarshalText for a text they do not know.
var ErrUnknownName = errors.New("unknown name")

// The names below are part of the JSON documents and metric labels; index 0 is the zero value,
// which has no name.
var (
	evidenceNames = []string{"", "forwarded", "claimed", "configured", "data", "announced", "host"}
	scopeNames    = []string{"", "same-node", "cross-node", "pod-host"}
	stateNames    = []string{"", "suspected", "confirmed", "resolved"}
	noteNames     = []string{
		"", "seen", "evidence", "withdrawn", "expired", "solicited",
		"not-solicited", "answered", "unanswered", "conflict",
	}
)

type enum interface{ ~uint8 }

func nameOf[E enum](e E, what string, names []string) string {
	if int(e) < len(names) && e != 0 {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", what, e)
}

func parse[E enum](s, what string, names []string) (E, error) {
	if i := slices.Index(names, s); i >= 0 {
		return E(i), nil
	}
	return 0, fmt.Errorf("parsing %s %q: %w", what, s, ErrUnknownName)
}

// String returns the name used in documents and labels.
func (e Evidence) String() string { return nameOf(e, "evidence", evidenceNames) }

// String returns the name used in documents and labels.
func (s Scope) String() string { return nameOf(s, "scope", scopeNames) }

// String returns the name used in documents and labels.
func (s State) String() string { return nameOf(s, "state", stateNames) }

// String returns the name used in documents.
func (k NoteKind) String() string { return nameOf(k, "note", noteNames) }

// ParseEvidence returns the evidence with that name, or ErrUnknownName.
func ParseEvidence(s string) (Evidence, error) {
	return parse[Evidence](s, "evidence", evidenceNames)
}

// ParseScope returns the scope with that name, or ErrUnknownName.
func ParseScope(s string) (Scope, error) { return parse[Scope](s, "scope", scopeNames) }

// ParseState returns the state with that name, or ErrUnknownName.
func ParseState(s string) (State, error) { return parse[State](s, "state", stateNames) }

// String returns the colon form, empty for an unknown address.
func (m MAC) String() string {
	if m == (MAC{}) {
		return ""
	}
	return net.HardwareAddr(m[:]).String()
}

// MarshalText returns what String does.
func (m MAC) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// UnmarshalText is the reverse of MarshalText; it returns an error for anything that is not a
// 48-bit address or empty.
func (m *MAC) UnmarshalText(b []byte) error {
	*m = MAC{}
	if len(b) == 0 {
		return nil
	}
	raw, err := net.ParseMAC(string(b))
	if err != nil || len(raw) != len(m) {
		return fmt.Errorf("parsing MAC %q: %w", b, ErrUnknownName)
	}
	*m = MAC(raw)
	return nil
}

// String names the workload, "namespace/name", or is empty.
func (p Pod) String() string {
	if p.Name == "" {
		return ""
	}
	return strings.TrimPrefix(p.Namespace+"/"+p.Name, "/")
}

// String names the holder for people: the pod, else the netns, else the interface.
func (h Holder) String() string {
	if name := cmp.Or(h.Pod.String(), h.NetnsName, h.InterfaceName); name != "" {
		return name
	}
	if h.ID.Netns != 0 {
		return fmt.Sprintf("netns %d", h.ID.Netns)
	}
	return fmt.Sprintf("interface %d", max(h.Interface.Ifindex, h.ID.Ifindex))
}

// Printable replaces what a terminal would obey: control characters, those that change the direction of writing, and bytes
// that are not UTF-8. The text does not grow.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// List joins names with commas for people, the first three if there are more.
func List(names []string) string {
	if more := len(names) - 3; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), more)
	}
	return strings.Join(names, ", ")
}
