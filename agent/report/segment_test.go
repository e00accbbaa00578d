package report

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/wire"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// has gives the node of the report these addresses, those of one subnet on uplink0 and others on a bridge without pods.
func (r *Report) has(ips ...string) {
	var list []links.HostAddress
	for _, ip := range ips {
		a := links.HostAddress{IP: netip.MustParseAddr(ip), Subnet: netip.MustParsePrefix("192.0.2.0/24"), Device: "uplink0", Index: 1 << 30}
		if !a.Subnet.Contains(a.IP) {
			a.Subnet, a.Device, a.Index = netip.PrefixFrom(a.IP, 24).Masked(), "cbr0", 1<<31
		}
		list = append(list, a)
	}
	_, all := r.Table.Update(links.Event{Kind: links.HostAddresses, Host: list}, time.Now())
	for _, o := range all {
		r.Detector.Observe(o.Sighting, time.Now())
	}
}

// elsewhere has another node have an address for itself.
func (r *Report) elsewhere(node, ip string, place detector.Place) {
	s := detector.Sighting{Evidence: detector.Host, At: time.Now()}
	for _, b := range r.Detector.Bindings(func(b *detector.Binding) bool { return b.Key.IP == netip.MustParseAddr(ip) }) {
		s.Key = b.Key
	}
	s.Holder = detector.Holder{ID: detector.HolderID{Node: cluster.NodeID(node, "b"), Netns: 1 << 41}, Place: place}
	r.Detector.Observe(s, time.Now())
}

// What else has addresses of the node is found at each look, each once, and no longer than it is so.
func TestSegment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		others := &fakeCluster{members: []cluster.Member{member("n1", cluster.Alive), member("n2", cluster.Alive)}}
		r := newReport(t, others)
		var heard []wire.Stranger
		r.OnSegment = func(time.Time) []wire.Stranger { return heard }
		if _, looked := r.bookStats(nil).Findings[document.TwoNodes]; looked {
			t.Error("the metrics have a kind that nobody looked for")
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go r.FollowSegment(ctx)
		check := func(when string, want ...string) {
			t.Helper()
			_ = r.Do(ctx, func() {}) // the parts are the other goroutine's now
			time.Sleep(lookEvery)
			synctest.Wait()
			var got []string
			for _, f := range r.findings(cluster.Query{}).Findings {
				got = append(got, fmt.Sprintf("%s %s on %s of %s, also %s%s", f.Kind, f.Prefix, f.Interface, f.Node, f.HeldBy, f.By))
				if f.Pods > 0 {
					got[len(got)-1] += fmt.Sprint(", pods ", f.Pods)
				}
				if f.Kind == document.Stranger {
					got[len(got)-1] = fmt.Sprintf("%s %s", f.IP, f.By)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", when, got, want)
			}
		}
		stranger := func(ip string, last byte) wire.Stranger {
			return wire.Stranger{IP: netip.MustParseAddr(ip), MAC: detector.MAC{2, 9, 9, 9, 9, last}, First: time.Now(), Last: time.Now()}
		}
		r.has("192.0.2.1", "192.0.2.200", "192.0.2.201")
		check("alone")
		if n, looked := r.bookStats(nil).Findings[document.TwoNodes]; n != 0 || !looked {
			t.Error("the metrics do not have a kind that was looked for")
		}
		r.elsewhere("n2", "192.0.2.200", detector.PlaceUplink)
		r.elsewhere("n2", "192.0.2.201", 0) // on lo, perhaps
		twin := "two-nodes 192.0.2.200/24 on uplink0 of n1, also n2"
		check("a fail-over, perhaps")
		check("a twin", twin)
		heard = []wire.Stranger{stranger("192.0.2.200", 1), stranger("192.0.2.201", 1), stranger("192.0.2.202", 1)}
		check("a stranger; of the twin it says nothing new, and the third address is nobody's", twin, "192.0.2.201 02:09:09:09:09:01")
		want := []string{twin}
		heard = nil
		for n := range byte(maxOfOne + 4) {
			heard = append(heard, stranger("192.0.2.201", n))
			if n < maxOfOne {
				want = append(want, fmt.Sprint("192.0.2.201 ", heard[n].MAC))
			}
		}
		check("many MACs", want...)
		if a := r.findings(cluster.Query{}); a.Omitted != 4 {
			t.Errorf("%d are left out, want 4", a.Omitted)
		}
		if n := r.bookStats(nil).Findings; n[document.Stranger] != maxOfOne+4 || n[document.TwoNodes] != 1 {
			t.Errorf("the metrics have %v", n)
		}
		heard = nil
		check("they are not heard any more", twin)
		others.members[1].State = cluster.Dead
		check("the other node is lost, and this one has the address instead")
		others.members[1].State = cluster.Alive
		check("it is there again", twin)
		r.has("192.0.2.1", "192.0.2.200", "10.7.0.1")
		r.elsewhere("n2", "10.7.0.1", detector.PlaceBridge)
		for _, pod := range []struct {
			node string
			last byte
		}{{r.Self.NodeID(), 20}, {r.Self.NodeID(), 21}, {cluster.NodeID("n2", "b"), 21}} {
			s := detector.Sighting{Key: detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 7, 0, pod.last})}, Evidence: detector.Configured, At: time.Now()}
			s.Holder = detector.Holder{ID: detector.HolderID{Node: pod.node, Netns: 7}}
			r.Detector.Observe(s, time.Now())
		}
		check("a gateway of pods, perhaps", twin)
		check("a gateway of pods there, and pods of this node have addresses of its subnet, too", "two-nodes 10.7.0.1/24 on cbr0 of n1, also n2, pods 2", twin)
		if n, looked := r.bookStats(nil).Findings[document.Stranger]; n != 0 || !looked {
			t.Error("the metrics do not have strangers, of which there are none now")
		}
		r.has()
		heard = []wire.Stranger{stranger("192.0.2.200", 1)}
		check("without a segment")
		if of := r.bookStats(nil).Findings; len(of) != 0 {
			t.Errorf("the metrics have %v, and nobody looks", of)
		}
	})
}
