package wire

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/internal/bounds"
)

const (
	// strangerAfter is the least time between the first and the last time that a stranger was heard, and strangerFor how long it counts after that.
	strangerAfter, strangerFor = 10 * time.Second, 5 * time.Minute
	// A MAC that is heard for so many addresses within strangerFor passes packets on for others: a router with proxy ARP, a firewall, a load balancer.
	manyAddresses = 4
	// At each look so many addresses are asked for. Strangers that did not answer in so many looks, one after the other, do not count any more: a
	// virtual address that has moved was announced by the node that had it for a while.
	asksPerLook, silentLooks = 16, 2

	maxStrangers = 256  // addresses of this node with a MAC that is not its own
	maxOfOne     = 8    // MACs of one address among them
	maxMACs      = 4096 // whose addresses are counted
)

var tooManyStrangers = bounds.New("strangers on the segment of the nodes")

// Stranger is somebody else who announces, or answers for, an address that this node or a pod of it has.
type Stranger struct {
	IP          netip.Addr
	MAC         detector.MAC
	First, Last time.Time

	asked  time.Time // at the last look; zero if it was not
	silent int       // in how many looks it did not answer
}

// Strangers are those who were heard. The zero value is empty. It is not safe for concurrent use.
type Strangers struct {
	heard     map[stranger]*Stranger
	addresses map[detector.MAC][]counted
}

type stranger struct {
	ip  netip.Addr
	mac detector.MAC
}

// counted is an address that a MAC was heard for, and when last.
type counted struct {
	ip netip.Addr
	at time.Time
}

// Count counts an address that was heard with a MAC, whoever has it.
func (s *Strangers) Count(ip netip.Addr, mac detector.MAC, at time.Time) {
	if s.addresses == nil {
		s.addresses, s.heard = make(map[detector.MAC][]counted), make(map[stranger]*Stranger)
	}
	known := slices.DeleteFunc(s.addresses[mac], func(c counted) bool { return c.ip == ip || at.Sub(c.at) >= strangerFor })
	if len(known) == manyAddresses {
		known = known[1:]
	}
	if s.addresses[mac] == nil && len(s.addresses) == maxMACs {
		for other := range s.addresses { // any one: it is heard again
			delete(s.addresses, other)
			break
		}
	}
	s.addresses[mac] = append(known, counted{ip, at})
}

// passes reports whether a MAC passes packets on for others.
func (s *Strangers) passes(mac detector.MAC, now time.Time) bool {
	all := s.addresses[mac]
	return len(all) == manyAddresses && now.Sub(all[0].at) < strangerFor
}

// Hear takes an address of this node, or of a pod of it, that was heard with a MAC which is not that of its holder.
func (s *Strangers) Hear(ip netip.Addr, mac detector.MAC, at time.Time) {
	who := stranger{ip, mac}
	if h := s.heard[who]; h != nil && at.Sub(h.Last) < strangerFor {
		h.Last, h.silent = at, 0
		return
	}
	if !s.room(ip, at) {
		tooManyStrangers.Exceeded(1)
		return
	}
	s.heard[who] = &Stranger{IP: ip, MAC: mac, First: at, Last: at}
}

// room makes room for another stranger: those that were heard once make it first, and an address that somebody makes up MACs for leaves room for
// others.
func (s *Strangers) room(ip netip.Addr, now time.Time) bool {
	var once *Stranger
	ofOne := 0
	for who, h := range s.heard {
		switch {
		case now.Sub(h.Last) >= strangerFor:
			delete(s.heard, who)
		case h.IP == ip:
			ofOne++
			fallthrough
		default:
			if h.First.Equal(h.Last) && (once == nil || h.IP == ip && once.IP != ip || (h.IP == ip) == (once.IP == ip) && h.Last.Before(once.Last)) {
				once = h
			}
		}
	}
	full := ofOne >= maxOfOne
	if !full && len(s.heard) < maxStrangers {
		return true
	}
	if once == nil || full && once.IP != ip {
		return false
	}
	delete(s.heard, stranger{once.IP, once.MAC})
	return true
}

// Look returns those that were heard twice, some time apart and while the address had the same holder here, and do not pass packets on for others, by
// address. holder says since when the address has had its holder, false for none; ask asks on the segment who has it, and reports whether it did: it
// must not for pods'.
func (s *Strangers) Look(now time.Time, holder func(netip.Addr) (since time.Time, ok bool), ask func(netip.Addr) bool) (list []Stranger) {
	asked := make(map[netip.Addr]bool)
	for who, h := range s.heard {
		if h.Last.Before(h.asked) {
			h.silent++
		}
		if since, ok := holder(h.IP); !ok || since.After(h.First) || h.silent == silentLooks || now.Sub(h.Last) >= strangerFor {
			delete(s.heard, who)
			continue
		}
		if h.Last.Sub(h.First) >= strangerAfter && !s.passes(h.MAC, now) {
			list = append(list, *h)
		}
		does, known := asked[h.IP]
		if !known && len(asked) < asksPerLook {
			does = ask(h.IP)
			asked[h.IP] = does
		}
		if h.asked = (time.Time{}); does {
			h.asked = now
		}
	}
	slices.SortFunc(list, func(a, b Stranger) int { return cmp.Or(a.IP.Compare(b.IP), slices.Compare(a.MAC[:], b.MAC[:])) })
	return list
}
