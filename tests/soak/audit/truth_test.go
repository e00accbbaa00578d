package audit

import (
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// key identifies a finding.
type key struct {
	kind, store          string
	ip                   netip.Addr
	sandbox, reservedFor string
}

func (k key) String() string {
	return fmt.Sprintf("%s %v of sandbox %.13s, reserved for %.13s in %s", k.kind, k.ip, k.sandbox, k.reservedFor, filepath.Base(k.store))
}

// book is a network whose addresses host-local gives out.
type book struct {
	store string
	cover netip.Prefix
	// primary: pods' eth0 is in this network.
	primary bool
}

// gives returns whether the book may give an address out: it is neither that of the subnet, of the gateway or of broadcasts.
func (b book) gives(ip netip.Addr) bool {
	first := b.cover.Addr().Next()
	return b.cover.Contains(ip) && b.cover.Contains(ip.Next()) && ip.Compare(first) > 0
}

// read returns for which sandbox each address is reserved, false if somebody has put anything else than files there.
func (b book) read() (map[netip.Addr]string, bool) {
	entries, err := os.ReadDir(b.store)
	if err != nil {
		return nil, os.IsNotExist(err)
	}
	all := make(map[netip.Addr]string)
	for _, e := range entries {
		ip, err := netip.ParseAddr(e.Name())
		if err != nil {
			continue
		}
		if e.Type() != 0 {
			return nil, false
		}
		data, err := os.ReadFile(filepath.Join(b.store, e.Name()))
		if err != nil {
			if os.IsNotExist(err) {
				continue
			}
			return nil, false
		}
		id, _, _ := strings.Cut(string(data), "\n")
		all[ip] = strings.TrimSpace(id)
	}
	return all, true
}

// snapshot is what is true at one time.
type snapshot struct {
	at    time.Time
	books []shelf
	// has are the addresses of each sandbox that was not told to end. ready is the runtime's list.
	has   map[string][]netip.Addr
	ready map[string]bool
	// ended are the ids of sandboxes that do not exist any more, or never did.
	ended map[string]time.Time
	// frozen: the runtime does not answer. settling: it has not been doing so for long.
	frozen, settling bool
}

// shelf is a book with what it has reserved, nil if it cannot be read.
type shelf struct {
	book
	reserved map[netip.Addr]string
}

// memory is since when a sandbox has a reservation of an address that it has; it stays while the sandbox has the address.
type memory map[key]time.Time

// expected returns the findings that are true. Those with true have to be found, the others may be: the agent may not have
// seen a reservation, or not know yet that a sandbox has ended.
func (s *snapshot) expected(m memory) map[key]bool {
	all := make(map[key]bool)
	remembered := make(memory)
	for id, ips := range s.has {
		for _, ip := range ips {
			s.compare(id, ip, m, remembered, all)
		}
	}
	clear(m)
	for k, since := range remembered {
		m[k] = since
	}
	for _, b := range s.books {
		for ip, id := range b.reserved {
			ended, gone := s.ended[id]
			if _, listed := s.ready[id]; !gone || listed {
				continue
			}
			// The agent reads the runtime's list once a minute.
			all[key{"unheld", b.store, ip, "", id}] = s.certain() && !s.isLive(ip) && s.at.Sub(ended) > time.Minute
		}
	}
	return all
}

func (s *snapshot) compare(id string, ip netip.Addr, m, remembered memory, all map[key]bool) {
	own, readable := false, true
	for _, b := range s.books {
		k := key{store: b.store, ip: ip, sandbox: id}
		own = own || b.reserved[ip] == id
		readable = readable && b.reserved != nil
		if since, known := m[k]; known {
			remembered[k] = since
		} else if b.reserved[ip] == id {
			remembered[k] = s.at
		}
	}
	if own || !s.ready[id] {
		return
	}
	for _, b := range s.books {
		since, known := remembered[key{store: b.store, ip: ip, sandbox: id}]
		covered := b.primary && b.gives(ip)
		if b.reserved == nil || !covered && !known {
			continue
		}
		must := s.certain() && readable && (covered || s.at.Sub(since) > 5*time.Second)
		other, exists := b.reserved[ip]
		switch {
		case !exists:
			all[key{"unreserved", b.store, ip, id, ""}] = must
		case s.ready[other]:
			all[key{"mismatched", b.store, ip, id, other}] = must
		}
	}
}

// certain returns whether the agent can know the runtime's list.
func (s *snapshot) certain() bool { return !s.frozen && !s.settling }

func (s *snapshot) isLive(ip netip.Addr) bool {
	for _, ips := range s.has {
		for _, live := range ips {
			if live == ip {
				return true
			}
		}
	}
	return false
}

// isMissing returns whether a file is not there, also because its folder is away.
func isMissing(err error) bool {
	return err != nil && (os.IsNotExist(err) || strings.Contains(err.Error(), fs.ErrNotExist.Error()))
}
