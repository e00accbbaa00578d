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
	// A MAC that is heard for so many addresses passes packets on for others: a router with proxy ARP, a firewall, a load balancer.
	manyAddresses = 4

	maxStrangers = 256  // addresses of this node with a MAC that is not its own
	maxMACs      = 4096 // whose addresses are counted
)

var tooManyStrangers = bounds.New("strangers on the segment of the nodes")

// Stranger is somebody else who announces, or answers for, an address that this node or a pod of it has.
type Stranger struct {
	Key         detector.Key
	MAC         detector.MAC
	First, Last time.Time
}

// Strangers are those who were heard. The zero value is empty. It is not safe for concurrent use.
type Strangers struct {
	heard     map[stranger]*Stranger
	addresses map[detector.MAC][]netip.Addr // at most manyAddresses of each
}

type stranger struct {
	key detector.Key
	mac detector.MAC
}

// Count counts an address that was heard with a MAC, whoever has it.
func (s *Strangers) Count(ip netip.Addr, mac detector.MAC) {
	if s.addresses == nil {
		s.addresses, s.heard = make(map[detector.MAC][]netip.Addr), make(map[stranger]*Stranger)
	}
	known := s.addresses[mac]
	if len(known) == manyAddresses || slices.Contains(known, ip) {
		return
	}
	if known == nil && len(s.addresses) == maxMACs {
		clear(s.addresses) // they are heard again
	}
	s.addresses[mac] = append(known, ip)
}

// Hear takes an address of this node, or of a pod of it, that was heard with a MAC which is not that of its holder.
func (s *Strangers) Hear(key detector.Key, mac detector.MAC, at time.Time) {
	who := stranger{key, mac}
	if h := s.heard[who]; h != nil && at.Sub(h.Last) < strangerFor {
		h.Last = at
		return
	}
	if len(s.heard) == maxStrangers {
		tooManyStrangers.Exceeded(1)
		for other, h := range s.heard {
			if at.Sub(h.Last) >= strangerFor {
				delete(s.heard, other)
			}
		}
		if len(s.heard) == maxStrangers {
			return
		}
	}
	s.heard[who] = &Stranger{key, mac, at, at}
}

// Keys returns the addresses for which somebody was heard, also once.
func (s *Strangers) Keys(now time.Time) (keys []detector.Key) {
	for who, h := range s.heard {
		if now.Sub(h.Last) < strangerFor {
			keys = append(keys, who.key)
		}
	}
	return keys
}

// List returns those that were heard twice, some time apart, and do not pass packets on for others, by address.
func (s *Strangers) List(now time.Time) (list []Stranger) {
	for _, h := range s.heard {
		if h.Last.Sub(h.First) >= strangerAfter && now.Sub(h.Last) < strangerFor && len(s.addresses[h.MAC]) < manyAddresses {
			list = append(list, *h)
		}
	}
	slices.SortFunc(list, func(a, b Stranger) int { return cmp.Or(a.Key.Compare(b.Key), slices.Compare(a.MAC[:], b.MAC[:])) })
	return list
}
