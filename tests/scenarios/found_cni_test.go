package scenarios

import (
	"net/netip"

	"github.com/dupip/dupip/tests/lab"
)

// realPlugins are CNI plugins with host-local, without their subnets.
var realPlugins = map[string]map[string]any{
	"ptp":    {"type": "ptp"},
	"bridge": {"type": "bridge", "bridge": "cni1", "isGateway": true},
}

// foundCNI are duplicates that real CNI plugins make.
var foundCNI = []Scenario{
	{ID: "D11", Want: Found, Text: "host-local's store is wiped, ten more pods by the real ptp", Play: func(s *Stage) {
		s.wipedStore("ptp")
	}},
	{ID: "D11", Want: Found, Text: "host-local's store is wiped, ten more pods by the real bridge", Play: func(s *Stage) {
		s.wipedStore("bridge")
	}},
}

// wipedStore makes ten pods, and ten more once host-local has forgotten the first ones:
// each of the ten gets an address of each family that is in use. With ptp the routes then
// show one holder each, and the other is dark.
func (s *Stage) wipedStore(plugin string) {
	s.Helper()
	const pods = 10
	c := s.CNI(s.Node)
	nw := lab.CNINetwork{Plugin: realPlugins[plugin], Subnets: []string{"10.99.0.0/24", "fd00:99::/64"}}
	olderPods, err := c.AddMany("older", pods, nw)
	s.Do(err)
	holder := map[netip.Addr]*lab.Pod{}
	for _, p := range olderPods {
		s.Sees(p.Pod, p.Addrs()...)
		for _, ip := range p.Addrs() {
			holder[ip] = p.Pod
		}
	}
	s.Do(c.Wipe())
	newcomers, err := c.AddMany("newcomer", pods, nw)
	s.Do(err)
	for _, p := range newcomers {
		for _, ip := range p.Addrs() {
			older := holder[ip]
			if older == nil {
				s.Fatal("host-local gave a newcomer ", ip, " that no older pod has")
			}
			s.FindsEarly(p.Started, p.Usable(ip), []*lab.Pod{older, p.Pod}, ip)
		}
	}
	s.onlyOpen(pods * len(nw.Subnets))
}
