package observe

import (
	"net/netip"
	"slices"

	"github.com/dupip/dupip/detector"
)

// Given says whether a network plugin gave the pod behind the interface an address, by what the runtime and CNI's result
// have of its sandbox. "Not given" needs a result of this very interface, and an address that the pod's kernel has: the
// guest of a virtual machine may have been given its address by others.
func (i *Interface) Given(ip netip.Addr) detector.Given {
	switch {
	case i.Origin.Role == SecondaryByResult: // the runtime and the result have the primary network only
		return detector.GivenUnknown
	case i.given(ip):
		return detector.GivenYes
	case i.givenOthers(ip) && i.Seen && i.View.Has(ip):
		return detector.GivenNo
	}
	return detector.GivenUnknown
}

// given reports whether the runtime or CNI's result has an address.
func (i *Interface) given(ip netip.Addr) bool {
	return slices.Contains(i.Pod.IPs, ip) || i.Pod.Result != nil &&
		slices.ContainsFunc(i.Pod.Result.Addresses, func(p netip.Prefix) bool { return p.Addr() == ip })
}

// givenOthers reports whether CNI's result gives this very interface addresses, as the primary one, and neither the result nor the runtime
// has ip. It allocates nothing, because Given is called for each packet.
func (i *Interface) givenOthers(ip netip.Addr) bool {
	return i.Origin.Role != SecondaryByResult && i.Pod.Result.Names(i.Name) && len(i.Pod.Result.Addresses) > 0 && !i.given(ip)
}

// GivenOthers returns the addresses that CNI's result gives the interface, if it gives others than ip; nil if that is not known.
func (i *Interface) GivenOthers(ip netip.Addr) (others []netip.Addr) {
	if !i.givenOthers(ip) {
		return nil
	}
	for _, p := range i.Pod.Result.Addresses {
		others = append(others, p.Addr())
	}
	return others
}
