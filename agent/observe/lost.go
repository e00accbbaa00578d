package observe

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/netns"
)

// lostPause is the least time between two log lines about lost addresses behind one interface.
const lostPause = 10 * time.Minute

// Lost counts the addresses of pods whose IPv6 duplicate address detection failed (RFC 4862 section 5.4.5), and
// returns up to limit of them, ordered by interface name. The pod's kernel does not use the address: it takes another holder on
// the link to have it, or its own packets came back. An address that two interfaces lead to counts twice.
func (t *Table) Lost(limit int) (list []Listed, total int) {
	interfaces := slices.SortedFunc(t.All(), func(x, y *Interface) int { return cmp.Compare(x.Name, y.Name) })
	for _, i := range interfaces {
		for _, a := range i.View.Addresses {
			if !isLost(a) {
				continue
			}
			if total++; total <= limit {
				list = append(list, Listed{t.key(i, a), vlanOf(a), i, a})
			}
		}
	}
	return list, total
}

// isLost excludes devices that are nested in the pod: what is on their link is the pod's own affair.
func isLost(a netns.Address) bool { return a.Lost && a.Where == netns.OnPeer }

// logLost logs addresses behind an interface that were not lost in an earlier view.
func (t *Table) logLost(i *Interface, before *netns.View, now time.Time) {
	known := make(map[netip.Addr]bool)
	for _, a := range before.Addresses {
		if isLost(a) {
			known[a.IP] = true
		}
	}
	var lost []netns.Address
	for _, a := range i.View.Addresses {
		if isLost(a) && !known[a.IP] {
			lost = append(lost, a)
		}
	}
	if len(lost) == 0 {
		return
	}
	if now.Sub(i.lostLogged) < lostPause || !t.lostLines.AllowN(now, 1) {
		t.lostLeftOut++
		return
	}
	i.lostLogged = now
	key := t.key(i, lost[0])
	t.Log.Warn("duplicate address detection failed in a pod, and its kernel does not use the address; \"dupip status\" lists all such addresses",
		"ip", key.IP, "network", key.Network, "interface", i.Name, "netns", i.Netns.Label(), "pod", i.Pod.Pod.String(),
		"others", len(lost)-1, "linesLeftOut", t.lostLeftOut)
	t.lostLeftOut = 0
}
