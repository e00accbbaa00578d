package books

import (
	"encoding/json"
	"net/netip"
	"strings"
)

// newCilium returns the book of Cilium: CiliumNodes, which say what ranges a node has, or with a cloud's IPAM what addresses, and which pods use
// them. The agents write the pods up to 15 seconds late. Only the format is known, it never ran with Cilium. (github.com/cilium/cilium:
// pkg/k8s/apis/cilium.io/v2, pkg/ipam/types)
func newCilium() ipam {
	return newNodeBook("ciliumnodes", "/apis/cilium.io/v2/", readCilium)
}

func readCilium(text json.RawMessage) (o nodeObject, err error) {
	type used map[string]struct{ Owner string }
	var body struct {
		Spec struct {
			IPAM struct {
				PodCIDRs []string
				Pool     used
				Pools    struct{ Allocated []struct{ CIDRs []string } }
			}
		}
		Status struct{ IPAM struct{ Used used } }
	}
	if err := json.Unmarshal(text, &body); err != nil {
		return o, err
	}
	o.ranges, o.pods = body.Spec.IPAM.PodCIDRs, make(map[netip.Addr]string)
	for _, a := range body.Spec.IPAM.Pools.Allocated {
		o.ranges = append(o.ranges, a.CIDRs...)
	}
	for ip := range body.Spec.IPAM.Pool {
		o.ranges = append(o.ranges, ip)
	}
	for text, u := range body.Status.IPAM.Used {
		// Addresses of Cilium's own have other owners: "router", "health".
		namespace, pod, _ := strings.Cut(strings.TrimSuffix(u.Owner, " [restored]"), "/")
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" && podName(namespace, pod) != "" {
			o.pods[ip.Unmap()] = podName(namespace, pod)
		}
	}
	return o, nil
}
