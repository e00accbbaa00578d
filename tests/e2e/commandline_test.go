package e2e

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// shown is a cluster of three nodes that has something to show everywhere. Two nodes give their pods addresses of one range,
// so that shop/web and stage/web have the same one; on the first, two pods without names have another, and host-local has
// lost a reservation. The third node has no pod.
type shown struct {
	*lab.T
	first, second *booked
	third         *lab.Agent
	// across is the address of the duplicate across nodes, local that of the other, and past that of one that has ended.
	across, local, past netip.Addr
}

// TestCommandLine is about what people and scripts see of one cluster.
func TestCommandLine(t *testing.T) {
	t.Parallel()
	s := newShown(t)
	for _, part := range []struct {
		name string
		test func(t *testing.T, s *shown)
	}{
		{"width", testWidth},
		{"colour", testColour},
		{"piped", testPiped},
		{"lists", testLists},
		{"last night", testLastNight},
		{"names", testNames},
		{"terminal", testTerminal},
		{"completion", testCompletion},
		{"offers", testOffers},
		{"full", testFull},
		{"parameters", testParameters},
		{"schema", testSchema},
		{"report", testReport},
		{"watch", testWatch},
		{"capture", testCaptureNames},
	} {
		t.Run(part.name, func(t *testing.T) { part.test(t, s) })
	}
}

func newShown(t *testing.T) *shown {
	s := &shown{T: lab.NewT(t)}
	nodes := []*lab.Node{s.Node(""), s.Node(""), s.Node("")}
	all := make([]*booked, 2)
	for i := range all {
		r, err := cri.New(s.Lab, nodes[i], hostLocal("10.94.0.0/24"))
		s.Do(err, r.Start(t.Context()))
		a := s.Agent(nodes[i], append(nodes[i].ClusterFlags(), "--cri-socket", r.Socket, "--cni-conf-dir", "auto", "--unheld-after", "2s")...)
		all[i] = &booked{s.T, r, a}
	}
	s.first, s.second = all[0], all[1]
	s.third = s.Agent(nodes[2], nodes[2].ClusterFlags()...)
	s.WaitCluster(s.first.agent, s.second.agent, s.third)

	web, db := s.first.run("web"), s.first.runIn("bank", "db")
	s.second.runIn("stage", "web")
	s.across, s.local, s.past = web.IPs[0], nodes[0].IPv4(5), nodes[0].IPv4(6)
	var twins []*lab.Pod
	for _, name := range []string{"left", "right"} {
		twins = append(twins, s.Pod(nodes[0], name, lab.PodOptions{Addrs: []netip.Addr{s.local, s.past}}))
	}
	watch := s.Watch(s.first.agent)
	for _, ip := range []netip.Addr{s.across, s.local, s.past} {
		_, err := watch.WaitConfirmed(ip, patience)
		s.Do(err)
	}
	s.Do(twins[0].DelAddr(s.past), os.Remove(s.first.reservation(db.IPs[0])))
	_, err := watch.WaitType("resolved", s.past, patience)
	s.Do(err)
	// Other nodes' answers have the conflict, too, and the audit its finding.
	s.Eventually("conflicts of the cluster", func() error {
		if got := s.ips("conflicts", "--cluster"); !slices.Equal(got, []string{s.local.String(), s.across.String()}) {
			return fmt.Errorf("there are %q", got)
		}
		if got := s.ips("audit", "--cluster"); !slices.Equal(got, []string{db.IPs[0].String()}) {
			return fmt.Errorf("there are findings about %q", got)
		}
		return nil
	})
	return s
}

// ask runs a command against the agent of the first node.
func (s *shown) ask(args ...string) outcome {
	s.Helper()
	return dupip(s.TB, nil, append(args, "--api-socket", s.first.agent.Socket)...)
}

// ips are the addresses that the document of a list is about, sorted by text and each once.
func (s *shown) ips(args ...string) (ips []string) {
	s.Helper()
	got := s.ask(append(args, "-o", "json")...)
	var doc struct{ Bindings, Conflicts, Findings []struct{ IP string } }
	if err := json.Unmarshal([]byte(got.stdout), &doc); err != nil {
		s.Fatalf("dupip %v: %v: %+v", args, err, got)
	}
	for _, element := range slices.Concat(doc.Bindings, doc.Conflicts, doc.Findings) {
		ips = append(ips, element.IP)
	}
	slices.Sort(ips)
	return slices.Compact(ips)
}
