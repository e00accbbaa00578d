package config

import (
	"net/netip"
	"path"
	"strings"
)

// rule puts addresses into a network. Every list that is not empty must match; the
// entries of one list are alternatives.
type rule struct {
	network                    Network
	interfaces, peers, bridges []glob
	cidrs                      []netip.Prefix
}

func (r *rule) matches(s Subject) bool {
	return (len(r.interfaces) == 0 || anyMatch(r.interfaces, s.Interface)) &&
		(len(r.peers) == 0 || anyMatch(r.peers, s.Peer)) &&
		(len(r.bridges) == 0 || anyMatch(r.bridges, s.Bridge))
}

func (r *rule) matchesHost(device string) bool {
	if len(r.peers) > 0 {
		return false
	}
	return len(r.interfaces) == 0 && len(r.bridges) == 0 ||
		anyMatch(r.interfaces, device) || anyMatch(r.bridges, device)
}

func (r *rule) holds(ip netip.Addr) bool {
	if len(r.cidrs) == 0 {
		return true
	}
	for _, p := range r.cidrs {
		if p.Contains(ip) {
			return true
		}
	}
	return false
}

// glob is a pattern in the syntax of [path.Match]. The usual forms, a name and a
// beginning of one, need no matcher.
type glob struct {
	pattern string
	prefix  string
	kind    globKind
}

type globKind uint8

const (
	globAny globKind = iota
	globName
	globPrefix
)

const globMeta = `*?[\`

// newGlob takes a pattern that is known to be well-formed.
func newGlob(pattern string) glob {
	switch meta := strings.IndexAny(pattern, globMeta); {
	case meta < 0:
		return glob{pattern: pattern, kind: globName}
	case meta == len(pattern)-1 && pattern[meta] == '*':
		return glob{pattern: pattern, prefix: pattern[:meta], kind: globPrefix}
	}
	return glob{pattern: pattern}
}

func (g *glob) match(name string) bool {
	switch g.kind {
	case globName:
		return name == g.pattern
	case globPrefix:
		return strings.HasPrefix(name, g.prefix)
	}
	ok, _ := path.Match(g.pattern, name)
	return ok
}

// anyMatch says whether one of the globs matches. No name matches none, not even "*":
// "*" for a bridge means any bridge, not none.
func anyMatch(globs []glob, name string) bool {
	if name == "" {
		return false
	}
	for i := range globs {
		if globs[i].match(name) {
			return true
		}
	}
	return false
}
