package observe

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

func TestGiven(t *testing.T) {
	const own, other = "10.0.0.5", "10.0.0.6"
	result := func(hostEnd string, ips ...string) *books.Result {
		r := &books.Result{HostEnds: []string{hostEnd}}
		for _, ip := range ips {
			r.Addresses = append(r.Addresses, netip.MustParsePrefix(ip+"/24"))
		}
		return r
	}
	// engine is a container whose engine was asked that long after the addresses were there.
	const ago = time.Minute
	engine := func(after time.Duration, given ...string) pods.Change {
		r := &books.Result{Whole: true}
		for _, p := range given {
			r.Addresses = append(r.Addresses, netip.MustParsePrefix(p))
		}
		return pods.Change{Result: r, ListedAt: time.Now().Add(after)}
	}
	for name, test := range map[string]struct {
		pod  pods.Change
		ip   string
		want detector.Given
	}{
		"no runtime":                           {pods.Change{}, own, detector.GivenUnknown},
		"by the runtime":                       {pods.Change{IPs: []netip.Addr{netip.MustParseAddr(own)}}, own, detector.GivenYes},
		"another than the runtime says":        {pods.Change{IPs: []netip.Addr{netip.MustParseAddr(own)}}, other, detector.GivenUnknown},
		"by the result":                        {pods.Change{Result: result("veth0", own)}, own, detector.GivenYes},
		"another than the result says":         {pods.Change{Result: result("veth0", own)}, other, detector.GivenNo},
		"a result without addresses":           {pods.Change{Result: result("veth0")}, own, detector.GivenUnknown},
		"the result of another interface":      {pods.Change{Result: result("veth9", own)}, other, detector.GivenUnknown},
		"and an address that its result gives": {pods.Change{Result: result("veth9", own)}, own, detector.GivenUnknown},
		"by an engine":                         {engine(ago, own+"/24"), own, detector.GivenYes},
		"another than an engine says":          {engine(ago, own+"/24"), other, detector.GivenNo},
		"the engine was asked too early":       {engine(0, own+"/24"), other, detector.GivenUnknown},
		"of a subnet that no engine has":       {engine(ago, own+"/32"), other, detector.GivenUnknown},
		"the engine gave another device one":   {engine(ago, "10.0.0.8/24"), other, detector.GivenUnknown},
		"the engine gave none":                 {engine(ago), own, detector.GivenUnknown},
		"a guest's address":                    {pods.Change{Result: result("veth0", own)}, "10.0.0.7", detector.GivenUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			w := newHarness(t, "")
			i := w.add("veth0", "cni0", "eth0", 2, 7, own, other)
			w.change(i, func(l *links.Interface) { l.View.Taken = time.Now().Add(time.Hour) })
			if test.pod.Result != nil || test.pod.IPs != nil {
				test.pod.Cookie, test.pod.Pod = 7, detector.Pod{Namespace: "shop", Name: "web"}
				w.Name(test.pod, time.Now())
			}
			if got := i.Given(netip.MustParseAddr(test.ip)); got != test.want {
				t.Errorf("got %d, want %d", got, test.want)
			}
			if n := testing.AllocsPerRun(10, func() { i.Given(netip.MustParseAddr(test.ip)) }); n != 0 {
				t.Errorf("%v allocations, for each packet", n)
			}
			if o, _ := w.Record(i.packet(bpf.Announced, test.ip, time.Now())); o.Sighting.Holder.Given != test.want {
				t.Errorf("the sighting has %d, want %d", o.Sighting.Holder.Given, test.want)
			}
		})
	}
}
