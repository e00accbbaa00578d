package detector

import (
	"cmp"
	"fmt"
	"net"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// The names below are part of the JSON documents and metric labels; index 0 is the zero value,
// which has no name.
var (
	evidenceNames = []string{"", "forwarded", "silent", "claimed", "configured", "data", "announced", "host"}
	scopeNames    = []string{"", "same-node", "cross-node", "pod-host", "node-node"}
	stateNames    = []string{"", "suspected", "confirmed", "resolved"}
)

type enum interface{ ~uint8 }

func nameOf[E enum](e E, what string, names []string) string {
	if int(e) < len(names) && e != 0 {
		return names[e]
	}
	return fmt.Sprintf("%s(%d)", what, e)
}

func text[E enum](e E, names []string) ([]byte, error) {
	if e == 0 {
		return nil, nil
	}
	return []byte(nameOf(e, "unknown", names)), nil
}

// unknown is what a name becomes that this version does not know. It is no evidence, scope or state.
const unknown = 255

func valueOf[E enum](name []byte, names []string) E {
	if i := slices.Index(names, string(name)); i >= 0 {
		return E(i)
	}
	return unknown
}

// String returns the name used in documents and labels.
func (e Evidence) String() string { return nameOf(e, "evidence", evidenceNames) }

// String returns the name used in documents and labels.
func (s Scope) String() string { return nameOf(s, "scope", scopeNames) }

// String returns the name used in documents and labels.
func (s State) String() string { return nameOf(s, "state", stateNames) }

// MarshalText returns the name, empty for the zero value.
func (e Evidence) MarshalText() ([]byte, error) { return text(e, evidenceNames) }

// MarshalText returns the name, empty for the zero value.
func (s Scope) MarshalText() ([]byte, error) { return text(s, scopeNames) }

// MarshalText returns the name, empty for the zero value.
func (s State) MarshalText() ([]byte, error) { return text(s, stateNames) }

// UnmarshalText is the reverse of MarshalText. It never fails: a name that is unknown becomes an invalid value.
func (e *Evidence) UnmarshalText(b []byte) error {
	*e = valueOf[Evidence](b, evidenceNames)
	return nil
}

// UnmarshalText is the reverse of MarshalText. It never fails: a name that is unknown becomes an invalid value.
func (s *Scope) UnmarshalText(b []byte) error { *s = valueOf[Scope](b, scopeNames); return nil }

// UnmarshalText is the reverse of MarshalText. It never fails: a name that is unknown becomes an invalid value.
func (s *State) UnmarshalText(b []byte) error { *s = valueOf[State](b, stateNames); return nil }

// MarshalJSON returns true or false, null if no book says it.
func (g Given) MarshalJSON() ([]byte, error) {
	return []byte(cmp.Or(map[Given]string{GivenYes: "true", GivenNo: "false"}[g], "null")), nil
}

// UnmarshalJSON is the reverse of MarshalJSON; anything else is that no book says it.
func (g *Given) UnmarshalJSON(b []byte) error {
	*g = map[string]Given{"true": GivenYes, "false": GivenNo}[string(b)]
	return nil
}

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
		return fmt.Errorf("parsing MAC %q: unknown name", b)
	}
	*m = MAC(raw)
	return nil
}

// String names the workload, "namespace/name" or "container name", or is empty.
func (p Pod) String() string {
	switch {
	case p.Name == "":
		return ""
	case p.Engine != "":
		return "container " + p.Name
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

// named says which pod a holder turns out to be; nothing if that was known, or is not known.
func named(was, is Holder) string {
	if is.Pod.Name == "" || is.Pod.String() == was.Pod.String() {
		return ""
	}
	return fmt.Sprintf("%s is %s", was, is)
}

// evidenceNumbers are the numbers of evidence between nodes (CBOR, RFC 8949, of one byte). They do not change, whatever
// the order of strength is.
var evidenceNumbers = [...]byte{0: 0, Forwarded: 1, Data: 2, Announced: 3, Host: 4, Claimed: 5, Configured: 6}

// MarshalCBOR returns the number of the evidence, 0 for one that does not exist.
func (e Evidence) MarshalCBOR() ([]byte, error) {
	if int(e) >= len(evidenceNumbers) {
		e = 0
	}
	return []byte{evidenceNumbers[e]}, nil
}

// UnmarshalCBOR sets the evidence with a number: 0 for one that is not known, which a later version may have. It fails
// if that is no number of eight bits.
func (e *Evidence) UnmarshalCBOR(number []byte) error {
	if len(number) == 0 || len(number) > 2 || number[0]>>5 != 0 {
		return fmt.Errorf("evidence: %x is no number of eight bits", number)
	}
	*e = Evidence(max(0, slices.Index(evidenceNumbers[:], number[0])))
	return nil
}
