// Package books reads what bookkeeping says about addresses: what network plugins reported when they set up a pod's network, as
// libcni's cache and the container runtime have it, and what host-local and Azure CNS have reserved.
//
// Books are never taken to be true: the wire decides whether there is a conflict. A book that is missing, broken,
// huge or hostile is not used, and does no other harm.
package books

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/internal/bounds"
)

// The limits of one result: a pod has one or two addresses, and its first interface one host end.
const (
	maxHostEnds  = 16
	maxAddresses = 64
	// maxName is the longest name of a device (IFNAMSIZ without its zero byte).
	maxName = 15
)

var (
	tooManyHostEnds  = bounds.New("too many host ends in a CNI result")
	tooManyAddresses = bounds.New("too many addresses in a CNI result")
	tooManyRanges    = bounds.New("too many ranges of a host-local network")
	tooManyEntries   = bounds.New("too many files in libcni's cache")
	tooManySandboxes = bounds.New("too many sandboxes with one address of Azure CNS")
)

// Result is what the network plugins reported about the primary network of one sandbox (CNI specification 1.1, "ADD
// Success").
type Result struct {
	// HostEnds are the pod devices of the node that the result names: veth or netkit devices in this process's netns.
	// Without any, the result does not say which interface is the primary one: old plugins name none, and go-cni adds an
	// empty entry.
	HostEnds []string
	// Network is the name of the network in CNI's configuration, empty if it is not known: a runtime's status has none.
	Network string
	// Addresses are those of the pod's end with the lengths of their subnets; without a length in the result it is that
	// of the address itself.
	Addresses []netip.Prefix
	// Whole: Addresses are all that an engine gave a container, in all of its networks.
	Whole bool
}

// Usable reports whether the result says which interface is the primary one.
func (r *Result) Usable() bool { return r != nil && len(r.HostEnds) > 0 }

// Names reports whether the result names a host end.
func (r *Result) Names(hostEnd string) bool { return r != nil && slices.Contains(r.HostEnds, hostEnd) }

// cniInterface is one of the interfaces of a result. The sandbox of those of the node is empty.
type cniInterface struct{ Name, Sandbox string }

// newResult keeps what is used of a result.
func newResult(interfaces []cniInterface, addresses []netip.Prefix) *Result {
	r := &Result{Addresses: addresses}
	tooManyHostEnds.Exceeded(max(len(interfaces)-maxHostEnds, 0))
	for _, i := range interfaces[:min(len(interfaces), maxHostEnds)] {
		if i.Sandbox == "" && i.Name != "" && len(i.Name) <= maxName && isPodDevice(i.Name) {
			r.HostEnds = append(r.HostEnds, i.Name)
		}
	}
	return r
}

// isPodDevice reports whether a device of the node is of a kind whose other end is in a pod: results list bridges, too.
var isPodDevice = func(name string) bool {
	link, err := netlink.LinkByName(name)
	return err == nil && (link.Type() == "veth" || link.Type() == "netkit")
}

// FromRuntime reads the result in containerd's verbose status of a sandbox: go-cni's Result, which merges all networks
// of the pod. It returns nil if there is none.
func FromRuntime(info []byte) *Result {
	var status struct {
		CNIResult struct {
			Interfaces map[string]*struct {
				Sandbox   string
				IPConfigs []struct{ IP netip.Addr }
			}
		}
	}
	if json.Unmarshal(info, &status) != nil || len(status.CNIResult.Interfaces) == 0 {
		return nil
	}
	var interfaces []cniInterface
	var addresses []netip.Prefix
	for name, i := range status.CNIResult.Interfaces {
		if i == nil {
			continue
		}
		if i.Sandbox == "" && name != DefaultInterface { // go-cni adds one where a plugin names none
			interfaces = append(interfaces, cniInterface{Name: name})
		}
		if name == DefaultInterface && len(i.IPConfigs) > maxAddresses {
			tooManyAddresses.Exceeded(1)
			return nil // those that are not read would count as not given
		}
		for _, c := range i.IPConfigs {
			if ip := c.IP.Unmap(); name == DefaultInterface && ip.IsGlobalUnicast() {
				addresses = append(addresses, netip.PrefixFrom(ip, ip.BitLen()))
			}
		}
	}
	slices.SortFunc(interfaces, func(a, b cniInterface) int { return strings.Compare(a.Name, b.Name) })
	return newResult(interfaces, addresses)
}
