package books

import (
	"cmp"
	"encoding/json"
	"net/netip"
	"path"
	"regexp"
	"slices"
	"strings"
)

// flannel delegates to host-local; flannelSubnets is where its daemon writes the node's subnets.
const flannel, flannelSubnets = "flannel", "/run/flannel/subnet.env"

// networkConfig is a CNI network configuration (CNI specification 1.1, "Network configuration format"), or one plugin of it.
type networkConfig struct {
	Name, Type string
	Plugins    []networkConfig
	SubnetFile string // flannel's
	IPAM       struct {
		Type, DataDir string
		rangeConfig
		Ranges [][]rangeConfig
	}
}

// rangeConfig is one of host-local's ranges.
type rangeConfig struct{ Subnet, RangeStart, RangeEnd, Gateway string }

// networkName matches the names that libcni accepts (ValidateNetworkName, github.com/containernetworking/cni/pkg/utils).
var networkName = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.\-]*$`)

// parseNetwork returns the network of a configuration, nil if it has none of these books.
func parseNetwork(data []byte) *Reserved {
	var c networkConfig
	if json.Unmarshal(data, &c) != nil || len(c.Name) > maxNetworkName || !networkName.MatchString(c.Name) {
		return nil
	}
	for _, p := range append(c.Plugins, c) {
		switch {
		case p.Type == flannel: // it delegates to host-local, with a range that is in a file of its own
			p = networkConfig{Type: p.Type, SubnetFile: cmp.Or(p.SubnetFile, flannelSubnets)}
		case slices.Contains(cnsPlugins, p.IPAM.Type):
			return &Reserved{Book: BookAzureCNS, Network: c.Name, Plugin: p.Type, Store: cnsEndpoints}
		case p.IPAM.Type != BookHostLocal:
			continue
		}
		n := &Reserved{Book: BookHostLocal, Network: c.Name, Plugin: p.Type, Store: path.Join(cmp.Or(p.IPAM.DataDir, hostLocalDir), c.Name)}
		if p.Type == flannel {
			n.subnets = p.SubnetFile
		}
		for _, set := range append(p.IPAM.Ranges, []rangeConfig{p.IPAM.rangeConfig}) {
			for _, r := range set {
				if parsed, ok := r.parse(); ok && len(n.Ranges) < maxAddresses {
					n.Ranges = append(n.Ranges, parsed)
				} else if ok {
					tooManyRanges.Exceeded(1)
				}
			}
		}
		return n
	}
	return nil
}

// flannelRanges returns the subnets of the node in flannel's file, which it hands to host-local (loadFlannelSubnetEnv,
// github.com/flannel-io/cni-plugin); none if it cannot be read.
func flannelRanges(root hostRoot, file string) (ranges []Range) {
	data, err := root.read(file, maxConfig)
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		subnet, err := netip.ParsePrefix(value)
		if name != "FLANNEL_SUBNET" && name != "FLANNEL_IPV6_SUBNET" || err != nil {
			continue
		}
		if r, ok := (rangeConfig{Subnet: subnet.Masked().String()}).parse(); ok && len(ranges) < maxAddresses {
			ranges = append(ranges, r)
		}
	}
	return ranges
}

// parse returns a range with host-local's defaults (Range.Canonicalize, plugins/ipam/host-local/backend/allocator): the first
// address of the subnet is the gateway's, the last one of IPv4 is for broadcasts.
func (c rangeConfig) parse() (r Range, ok bool) {
	subnet, err := netip.ParsePrefix(c.Subnet)
	if err != nil || subnet.Bits() > subnet.Addr().BitLen()-2 {
		return r, false // as "usePodCidr"
	}
	first := subnet.Masked().Addr().Next()
	last := lastOf(subnet)
	if last.Is4() {
		last = last.Prev()
	}
	r = Range{First: first, Last: last, Gateway: first}
	for _, set := range []struct {
		to   *netip.Addr
		text string
	}{{&r.First, c.RangeStart}, {&r.Last, c.RangeEnd}, {&r.Gateway, c.Gateway}} {
		if set.text == "" {
			continue
		}
		if *set.to, err = netip.ParseAddr(set.text); err != nil {
			return r, false
		}
	}
	return r, r.First.Is4() == r.Last.Is4() && r.First.Is4() == r.Gateway.Is4() && r.First.Compare(r.Last) <= 0
}

// lastOf returns the last address of a subnet.
func lastOf(subnet netip.Prefix) netip.Addr {
	last := subnet.Masked().Addr().AsSlice()
	for bit := subnet.Bits(); bit < 8*len(last); bit++ {
		last[bit/8] |= 0x80 >> (bit % 8)
	}
	ip, _ := netip.AddrFromSlice(last)
	return ip
}
