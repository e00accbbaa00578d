package scenarios

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// quietCNI is about what real CNI plugins do.
var quietCNI = []Scenario{
	{ID: "Q11", Want: Quiet, MaySuspect: true, MinOverlap: longOverlap, Text: "real plugins release an address before eth0 is gone", Play: func(s *Stage) {
		c := s.CNI(s.Node)
		for i, plugin := range []string{"ptp", "bridge"} {
			s.handOver(func(try int) (*lab.Pod, []netip.Addr, time.Time, func() error) {
				name := fmt.Sprintf("%s%d", plugin, try)
				// Only this address is to be had. With IPv6 ADD takes longer than the overlap may.
				nw := lab.CNINetwork{Plugin: realPlugins[plugin], Subnets: []string{fmt.Sprintf("10.9%d.0.%d/24", 8+i, 5+try)}}
				older, err := c.Add("older-"+name, nw)
				s.Do(err)
				s.Talk(older.Pod, older.Addrs()...)
				s.Sees(older.Pod, older.Addrs()...)
				s.Do(c.Release(older, nw))
				newcomer, err := c.Add("newcomer-"+name, nw)
				s.Do(err)
				s.Talk(newcomer.Pod, newcomer.Addrs()...)
				return newcomer.Pod, newcomer.Addrs(), newcomer.Started, func() error { return c.Del(older, nw) }
			})
		}
	}},
}
