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
	result := i.Pod.Result
	given := slices.Contains(i.Pod.IPs, ip) ||
		result != nil && slices.ContainsFunc(result.Addresses, func(p netip.Prefix) bool { return p.Addr() == ip })
	switch {
	case i.Origin.Role == SecondaryByResult: // the runtime and the result have the primary network only
		return detector.GivenUnknown
	case given:
		return detector.GivenYes
	case result.Names(i.Name) && len(result.Addresses) > 0 && i.Seen && i.View.Has(ip):
		return detector.GivenNo
	}
	return detector.GivenUnknown
}
