package agent

import (
	"net/netip"
	"slices"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
)

// maxHostKeys bounds the node's own addresses: a node with more has service addresses on
// its devices that are not its own.
const maxHostKeys = 64

// hostAddress is an address of the node itself in its network.
type hostAddress struct {
	key detector.Key
	links.HostAddress
}

// hostKeys puts the node's addresses into their networks; one that is on many devices
// counts once in each.
func (l *loop) hostKeys(list []links.HostAddress) []hostAddress {
	var keys []hostAddress
	known := make(map[detector.Key]bool)
	for _, address := range list {
		key := hostKey(l.config, address)
		if known[key] || len(keys) == maxHostKeys {
			continue
		}
		known[key] = true
		keys = append(keys, hostAddress{key, address})
	}
	return keys
}

// followHost follows the node's own addresses: they are bindings too, and are refreshed
// by every list.
func (l *loop) followHost(list []links.HostAddress, now time.Time) {
	present := l.hostKeys(list)
	for _, old := range l.hostBindings {
		if !slices.ContainsFunc(present, func(a hostAddress) bool { return a.key == old.key }) {
			l.apply(l.detector.Withdraw(old.key, l.host, "the address left the node, or its network", now))
		}
	}
	l.hostAddresses, l.hostBindings = list, present
	for _, address := range present {
		l.observe(l.hostSighting(address, now))
	}
}

// hostSighting is a look at one of the node's own addresses.
func (l *loop) hostSighting(address hostAddress, at time.Time) detector.Sighting {
	sighting := detector.Sighting{
		Key: address.key,
		Holder: detector.Holder{
			ID:            l.host,
			Interface:     detector.Interface{Ifindex: uint32(address.Index)},
			InterfaceName: address.Device,
			NetnsName:     "host",
		},
		Evidence: detector.Host,
		Answer:   true,
		At:       at,

		FoundAtStart: !l.ready,
	}
	if len(address.MAC) == len(sighting.Holder.MAC) {
		copy(sighting.Holder.MAC[:], address.MAC)
	}
	return sighting
}

// lookAtHost answers for the node itself by a look at its addresses.
func (l *loop) lookAtHost(s detector.Solicitation, now time.Time) (refusal string, until time.Time) {
	if !l.verifyRate.AllowN(now, 1) {
		l.dropped[dropRate]++
		return rateReason, now.Add(rateWait)
	}
	list, err := links.ListHostAddresses(func(int) bool { return false })
	if err != nil {
		return err.Error(), now.Add(time.Second)
	}
	l.detector.Solicited(s, now)
	for _, address := range list {
		if key := hostKey(l.config, address); key == s.Key {
			l.observe(l.hostSighting(hostAddress{key, address}, time.Now()))
			break
		}
	}
	return "", time.Time{}
}

// hostIPs lists the node's own addresses for people, each once.
func (l *loop) hostIPs() []string {
	var ips []netip.Addr
	for _, address := range l.hostBindings {
		ips = append(ips, address.IP)
	}
	slices.SortFunc(ips, netip.Addr.Compare)
	texts := []string{}
	for _, ip := range slices.Compact(ips) {
		texts = append(texts, ip.String())
	}
	return texts
}
