package othertools

import (
	"net/netip"
	"time"
)

// The duplicate detection of EVPN (RFC 7432, 15.1): this many moves within this time.
const (
	evpnMoves  = 5
	evpnWithin = 180 * time.Second
)

// location is where a provider edge (a node) has learned an address: MAC and port.
type location struct {
	node, mac string
	port      string
}

// host is an address in a broadcast domain.
type host struct {
	domain string
	ip     netip.Addr
}

// mobility is the rule of EVPN for addresses: RFC 7432, 15.1, on the moves of MAC/IP routes
// that RFC 9135 and RFC 9721 define. Where the RFC leaves a choice, the model finds more:
//
//   - All edges count together. The RFC has each count what it learns itself.
//   - A move is any change of node, MAC or port. Some count changes of the node only.
//   - An address is not frozen when it is found, so that it can be found again.
//   - A route is withdrawn the moment the port goes, so that what is re-created has not moved.
type mobility map[host]*route

// route is a MAC/IP advertisement.
type route struct {
	at    location
	moves int
	// since is the first of the moves, when the timer started.
	since time.Time
}

// update records what an edge has learned at a port. alive returns whether the port of a location still
// exists. update returns true when it finds the address duplicate.
func (m mobility) update(now time.Time, h host, at location, alive func(location) bool) (duplicate bool) {
	r := m[h]
	switch {
	case r == nil:
		m[h] = &route{at: at}
		return false
	case r.at == at:
		return false
	case !alive(r.at):
		// The route is gone with its port, and its sequence number.
		m[h] = &route{at: at}
		return false
	}
	r.at = at
	if r.moves == 0 || now.Sub(r.since) > evpnWithin {
		r.moves, r.since = 0, now
	}
	r.moves++
	if r.moves < evpnMoves {
		return false
	}
	r.moves = 0
	return true
}
