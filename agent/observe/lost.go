package observe

import (
	"net/netip"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
)

// lostPause is the least time between two log lines about lost addresses behind one interface.
const lostPause = 10 * time.Minute

// isLost excludes devices that are nested in the pod: what is on their link is the pod's own affair.
func isLost(a netns.Address) bool { return a.Lost && a.Where == netns.OnPeer }

// lostLog logs lost addresses, not too many.
type lostLog struct {
	opts    *Options
	lines   *rate.Limiter
	leftOut int // since the last line
}

// look logs addresses behind an interface that were not lost in an earlier view.
func (l *lostLog) look(i *Interface, before *netns.View, now time.Time) {
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
	if now.Sub(i.lostLogged) < lostPause || !l.lines.AllowN(now, 1) {
		l.leftOut++
		return
	}
	i.lostLogged = now
	key := i.key(lost[0])
	l.opts.Log.Warn("duplicate address detection failed in a pod, and its kernel does not use the address; \"dupip status\" lists all such addresses",
		"ip", key.IP, "network", key.Network, "interface", i.Name, "netns", i.Netns.Label(), "pod", i.Pod.Pod.String(),
		"others", len(lost)-1, "linesLeftOut", l.leftOut)
	l.leftOut = 0
}
