package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// What a pod had refused is counted, also if it did not live until the next reading.
func TestRefusedOfShortLivedPod(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	p := l.Pod(n, "short", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(35)}})
	_, err := a.Client.WaitBinding(within(l, patience), n.IPv4(35), func(b lab.Binding) bool { return b.Netns == p.Name })
	l.Do(err, a.Client.WaitInterface(within(l, patience), p.HostInterface, lab.Interface.Attached))
	// So many that a sample in the middle leaves enough for a line, also if the machine is busy and sends them slowly.
	var many []netip.Addr
	for i := range 20000 {
		many = append(many, netip.AddrFrom4([4]byte{10, 99, byte(i >> 8), byte(i)}))
	}
	l.Do(p.Spoof(many...))
	l.Do(p.Delete())
	l.Eventually("the packets are counted", func() error {
		m, err := a.Scrape(l.Context())
		if err == nil && m[`dupip_refused_packets_total{kind="data"}`] < 1000 {
			err = fmt.Errorf("%v of 20,000 counted", m[`dupip_refused_packets_total{kind="data"}`])
		}
		return err
	})
	// And it is named, though it did not live until the next sample.
	l.Eventually("the log names it", func() error {
		if !strings.Contains(a.Log(), "from more addresses than the limits allow") || !strings.Contains(a.Log(), p.Name) {
			return errors.New("no such line")
		}
		return nil
	})
}
