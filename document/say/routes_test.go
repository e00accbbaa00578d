package say

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
)

// Steps repair the routes that lead to a removed holder, and no others.
func TestRepairedRoutes(t *testing.T) {
	own := func(*document.Conflict) {}
	bridged := func(c *document.Conflict) { c.Routes[0].Device = "cni0" }
	both := func(a, b func(*document.Conflict)) func(*document.Conflict) {
		return func(c *document.Conflict) { a(c); b(c) }
	}
	gateway := func(c *document.Conflict) { c.Routes[0].Gateway = netip.MustParseAddr("192.0.2.1") }
	for name, test := range map[string]struct {
		change func(*document.Conflict)
		want   string
	}{
		"its own interface":           {own, "ip route replace"},
		"a bridge":                    {bridged, "ip neigh flush"},
		"by a gateway":                {gateway, ""},
		"a bridge, by a gateway":      {both(bridged, gateway), ""},
		"to the one that stays":       {both(bridged, func(c *document.Conflict) { *c.Routes[0].Holder = 1 }), ""},
		"from another node":           {func(c *document.Conflict) { c.Routes[0].Node = "n2" }, ""},
		"no interface is known":       {func(c *document.Conflict) { c.Routes[0].Device, c.Holders[0].Interface = "", "" }, ""},
		"a node stays":                {func(c *document.Conflict) { host("eth0", false, noon)(&c.Holders[1]) }, ""},
		"it is not known what stays":  {func(c *document.Conflict) { c.Holders[1].Ifindex = 0 }, ""},
		"an interface of unsafe name": {func(c *document.Conflict) { c.Routes[0].Device = "x;reboot" }, ""},
	} {
		c := judged(document.CauseLost, certain, "0 remove not-reserved, 1 keep reserved", holder("web-0", given(yes)), holder("web-11", given(yes)))
		c.Routes = []document.Route{route("a", document.ToHolder, 0, "vethweb-0")}
		test.change(&c)
		Fill(&c, at)
		var got []string
		for _, s := range c.Judgement.Steps {
			if strings.HasPrefix(s.Text, "Then let node") {
				got = append(got, s.Command)
			}
		}
		if len(got) > 1 || !strings.Contains(strings.Join(got, ""), test.want) || len(got) == 1 && test.want == "" {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// Where packets go, and which holder gets none, with the boots of nodes that have one name.
func TestRoutes(t *testing.T) {
	to := func(node, kind string, n int, device string) document.Route {
		return document.Route{Node: node, BootID: "a", To: kind, Holder: &n, Device: device}
	}
	over := func(node, to, boot string) document.Route {
		return document.Route{Node: node, BootID: "a", To: document.ToNode, ToNode: to, ToBootID: boot}
	}
	two := func(_ *document.Conflict) {}
	oneNode := func(c *document.Conflict) { c.Holders[1].Node = "n1" }
	hosts := func(c *document.Conflict) { host("eth1", false, noon)(&c.Holders[0]) }
	namesake := to("n1", document.ToHolder, 0, "eth0")
	namesake.BootID = "b"
	gateway := to("n1", document.ToAway, 0, "eth0")
	gateway.Gateway = netip.MustParseAddr("192.0.2.1")
	for _, test := range []struct {
		change func(*document.Conflict)
		routes []document.Route
		want   string
	}{
		{two, nil, ""},
		{two, []document.Route{to("n1", document.ToHolder, 0, "vethweb-0")}, "Packets to it go from n1 to shop/web-0. shop/web-1 gets no traffic from n1."},
		{two, []document.Route{to("n1", document.ToHolder, 0, "vethweb-0"), to("n2", document.ToHolder, 1, "vethweb-1")}, "Packets to it go from n1 to shop/web-0 and from n2 to shop/web-1."},
		{
			two,
			[]document.Route{to("n1", document.ToHolder, 0, "vethweb-0"), over("n2", "n1", "a"), to("n3", document.ToHolder, 0, "vethweb-0")},
			"Packets to it go from n1 and n3 to shop/web-0 and from n2 to node n1. shop/web-1 gets no traffic from n1, n2 and n3.",
		},
		{oneNode, []document.Route{to("n1", document.ToHolder, 0, "cni0")}, "Packets to it go from n1 itself to shop/web-0 by cni0. shop/web-1 gets no traffic from n1 itself."},
		{two, []document.Route{to("n1", document.ToUnknown, 0, "cni0")}, "Packets to it go from n1 into cni0, which has no neighbour entry for it now."},
		{
			two,
			[]document.Route{gateway, to("n2", document.ToNowhere, 0, ""), to("n3", document.ToDevice, 0, "ovn0")},
			"Packets to it go from n1 off the node by eth0 via 192.0.2.1, from n2 nowhere, for lack of a route and from n3 into ovn0.",
		},
		{hosts, []document.Route{to("n1", document.ToHolder, 0, ""), over("n2", "n1", "a")}, "Packets to it go from n1 to itself and from n2 to node n1. shop/web-1 gets no traffic from n1 and n2."},
		{
			two,
			[]document.Route{to("n1", document.ToHolder, 0, "vethweb-0"), over("n2", "n1", "a"), over("n3", "n1", "b")},
			"Packets to it go from n1 (boot a) to shop/web-0, from n2 to node n1 (boot a) and from n3 to node n1 (boot b). shop/web-1 gets no traffic from n1 (boot a), n2 and n3.",
		},
		{
			hosts,
			[]document.Route{to("n1", document.ToHolder, 0, ""), namesake},
			"Packets to it go from n1 (boot a) to itself and from n1 (boot b) itself to node n1 by eth0. shop/web-1 gets no traffic from n1 (boot a) and n1 (boot b) itself.",
		},
	} {
		c := document.Conflict{IP: ip, Network: "default", Holders: []document.Binding{holder("web-0"), holder("web-1", node("b"))}, Routes: test.routes}
		for n := range c.Holders {
			c.Holders[n].BootID = "a"
		}
		test.change(&c)
		c.Judgement = new(document.Judgement)
		if got := newVoice(&c, nil).routes(); got != test.want {
			t.Errorf("%q\nwant\n%q", got, test.want)
		}
	}
}
