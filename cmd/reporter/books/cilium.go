package books

import (
	"net/netip"
	"strings"
)

// newCilium returns the book of Cilium: CiliumNodes, which say what ranges a node has, or with a cloud's IPAM what addresses, and which pods use
// them. The agents write the pods up to 15 seconds late. Only the format is known, it never ran with Cilium. (github.com/cilium/cilium:
// pkg/k8s/apis/cilium.io/v2, pkg/ipam/types)
func newCilium() *ipam {
	return newNodeBook("ciliumnodes", "/apis/cilium.io/v2/", readCilium)
}

// ciliumUsed has the owners of addresses.
type ciliumUsed map[string]struct{ Owner string }

// ciliumObject is what is read of a CiliumNode.
type ciliumObject struct {
	object
	Spec struct {
		IPAM struct {
			PodCIDRs []string
			Pool     ciliumUsed
			Pools    struct{ Allocated []struct{ CIDRs []string } }
		}
	}
	Status struct{ IPAM struct{ Used ciliumUsed } }
}

func readCilium(o *ciliumObject) nodeAddresses {
	a := nodeAddresses{o.Spec.IPAM.PodCIDRs, make(map[netip.Addr]string)}
	for _, p := range o.Spec.IPAM.Pools.Allocated {
		a.ranges = append(a.ranges, p.CIDRs...)
	}
	for ip := range o.Spec.IPAM.Pool {
		a.ranges = append(a.ranges, ip)
	}
	for text, u := range o.Status.IPAM.Used {
		// Addresses of Cilium's own have other owners: "router", "health".
		namespace, pod, _ := strings.Cut(strings.TrimSuffix(u.Owner, " [restored]"), "/")
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" && podName(namespace, pod) != "" {
			a.pods[ip.Unmap()] = podName(namespace, pod)
		}
	}
	return a
}
