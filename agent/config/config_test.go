package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func mustParse(t testing.TB, text string) *Config {
	t.Helper()
	c, err := Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

const rules = `
networks:
  - name: storage
    solicit: off
    match:
      interfaces: ["cali*", veth0]
      peers: [net1]
      bridges: ["br-stor*"]
      cidrs: [10.9.0.0/16, "fd09::/16"]
  - name: bridged
    match: {bridges: ["*"], cidrs: [10.8.0.0/16]}
  - name: port
    match: {interfaces: ["eth[12]", "br-?"]}
  - name: either
    match: {interfaces: [lan0], bridges: [br-lan]}
  - name: prefix
    scope: node
    match: {cidrs: [10.7.0.0/24, "fd07::/64"]}
  - name: late
    match: {cidrs: [10.0.0.0/8]}
`

// The networks of [rules].
var (
	storage = Network{"storage", Cluster, false}
	bridged = Network{"bridged", Cluster, true}
	port    = Network{"port", Cluster, true}
	either  = Network{"either", Cluster, true}
	prefix  = Network{"prefix", Node, true}
	late    = Network{"late", Cluster, true}
)

func TestNetwork(t *testing.T) {
	c := mustParse(t, rules)
	behind := Subject{"cali1", "net1", "br-storage"}
	for _, test := range []struct {
		name    string
		subject Subject
		ip      string
		want    Network
	}{
		{"every key matches", behind, "10.9.1.1", storage},
		{"the other alternatives", Subject{"veth0", "net1", "br-stor"}, "fd09::1", storage},
		{"a mapped address is as the plain one", behind, "::ffff:10.9.1.1", storage},
		{"a zone does not matter", behind, "fd09::1%eth0", storage},
		{"another interface", Subject{"veth1", "net1", "br-storage"}, "10.9.1.1", late},
		{"more than the name", Subject{"veth00", "net1", "br-stor"}, "fd09::1", Network{}},
		{"another peer", Subject{"cali1", "eth0", "br-storage"}, "10.9.1.1", late},
		{"another bridge", Subject{"cali1", "net1", "br0"}, "10.9.1.1", late},
		{"another prefix", behind, "11.9.1.1", Network{}},
		{"unknown peer", Subject{"cali1", "", "br-storage"}, "10.9.1.1", late},
		{"the first rule wins", Subject{Interface: "a", Bridge: "br9"}, "10.8.0.1", bridged},
		{"* is any bridge, not none", Subject{Interface: "a"}, "10.8.0.1", late},
		{"a class", Subject{Interface: "eth2"}, "192.0.2.1", port},
		{"not in the class", Subject{Interface: "eth3"}, "192.0.2.1", Network{}},
		{"a question mark", Subject{Interface: "br-x"}, "192.0.2.1", port},
		{"a prefix of any interface", Subject{}, "fd07::2", prefix},
		{"names are whole", Subject{Interface: "xlan0", Bridge: "br-lan"}, "192.0.2.1", Network{}},
		{"both keys", Subject{Interface: "lan0", Bridge: "br-lan"}, "192.0.2.1", either},
		{"one of both keys", Subject{Interface: "lan0"}, "192.0.2.1", Network{}},
	} {
		if got, ok := c.Network(test.subject, ip(test.ip)); got != test.want || ok != (test.want != Network{}) {
			t.Errorf("%s: %v, %t, want %v", test.name, got, ok, test.want)
		}
	}
	if got, ok := c.Network(Subject{}, netip.Addr{}); ok {
		t.Errorf("no address is in %v", got)
	}
}

func TestHostNetwork(t *testing.T) {
	c := mustParse(t, rules)
	for _, test := range []struct {
		name, device, ip string
		want             Network
	}{
		{"the bridge itself", "br-lan", "192.0.2.1", either},
		{"the port", "lan0", "192.0.2.1", either},
		{"neither", "lan1", "192.0.2.1", Network{}},
		{"interfaces alone", "eth1", "192.0.2.1", port},
		{"bridges alone", "br9", "10.8.0.1", bridged},
		{"bridges, and another prefix", "br9", "192.0.2.1", Network{}},
		{"prefix alone", "anything", "10.7.0.9", prefix},
		{"a rule for peers is for pods", "cali1", "10.9.1.1", late},
	} {
		if got, ok := c.HostNetwork(test.device, ip(test.ip)); got != test.want || ok != (test.want != Network{}) {
			t.Errorf("%s: %v, %t, want %v", test.name, got, ok, test.want)
		}
	}
}

// Two interfaces have the same rules if the same ones match, whatever the address.
func TestSameRules(t *testing.T) {
	c := mustParse(t, `
networks:
  - name: a
    match: {interfaces: ["cali*"], cidrs: [10.0.0.0/8]}
  - name: b
    match: {bridges: [br0]}
  - name: default
`)
	for _, test := range []struct {
		c    *Config
		a, b Subject
		want bool
	}{
		{c, Subject{Interface: "veth0"}, Subject{Interface: "veth1"}, true},
		{c, Subject{Interface: "cali0"}, Subject{Interface: "cali1", Peer: "eth0"}, true},
		{c, Subject{Interface: "cali0"}, Subject{Interface: "veth0"}, false},
		{c, Subject{Interface: "veth0"}, Subject{Interface: "veth0", Bridge: "br1"}, true},
		{c, Subject{Interface: "veth0"}, Subject{Interface: "veth0", Bridge: "br0"}, false},
		{nil, Subject{Interface: "a"}, Subject{Interface: "b"}, true},
	} {
		if got := test.c.SameRules(test.a, test.b); got != test.want {
			t.Errorf("%+v and %+v: %t, want %t", test.a, test.b, got, test.want)
		}
	}
}

func TestProperties(t *testing.T) {
	c := mustParse(t, `
networks:
  - {name: ruled, match: {peers: [a]}}
  - {name: twice, match: {peers: [b]}}
  - {name: twice, scope: node, solicit: false}
  - {name: twice, scope: node, match: {peers: [c]}}
  - {name: docker0, solicit: "off"}
  - {name: later}
  - {name: later, match: {peers: [d]}}
  - {name: net1@br1, scope: cluster}
  - {name: default, solicit: 'FALSE'}
  - {name: v1.2x}
`)
	twice := Network{"twice", Node, false}
	want := []Network{{"ruled", Cluster, true}, twice, {"docker0", Node, false}, {"later", Cluster, true}, {"net1@br1", Cluster, true}, {"default", Cluster, false}, {"v1.2x", Node, true}}
	if diff := cmp.Diff(want, c.Networks()); diff != "" {
		t.Errorf("networks (-want +got):\n%s", diff)
	}
	for _, peer := range []string{"b", "c"} { // a property of one entry applies to all
		if n, _ := c.Network(Subject{Peer: peer}, ip("10.0.0.1")); n != twice {
			t.Errorf("peer %s: %+v, want %+v", peer, n, twice)
		}
	}
	for _, n := range append(want,
		Network{"default.100", Cluster, false},
		Network{"default.200.100", Cluster, false},
		Network{"default.300.200.100", Node, true}, // at most two tags
		Network{"default.x", Node, true},
		Network{"default.", Node, true},
		Network{"net1", Node, true},
		Network{"net1.7", Node, true},
		Network{"twice.7", Node, false},
		Network{"", Node, true},
		Network{".5", Node, true},
	) {
		if got := (Network{n.Name, c.Scope(n.Name), c.Solicits(n.Name)}); got != n {
			t.Errorf("%+v, want %+v", got, n)
		}
	}
}

func TestShared(t *testing.T) {
	c := mustParse(t, `shared: [10.96.0.0/12, 10.100.0.0/16, 10.100.0.1, 10.0.0.53, "fd00::/64", "::1", 192.0.2.128/25, 10.0.0.53]`)
	for _, test := range []struct {
		ip   string
		want bool
	}{
		{"10.0.0.53", true},
		{"10.0.0.52", false},
		{"10.0.0.54", false},
		{"10.95.255.255", false},
		{"10.96.0.0", true},
		{"10.100.0.1", true},
		{"10.101.0.1", true}, // after a prefix within the prefix
		{"10.111.255.255", true},
		{"10.112.0.0", false},
		{"192.0.2.127", false},
		{"192.0.2.255", true},
		{"::ffff:10.0.0.53", true},
		{"::a00:35", false}, // 10.0.0.53 only by its bits
		{"fd00::7", true},
		{"fd00::7%eth0", true},
		{"fd00:0:0:1::", false},
		{"0.0.0.0", false},
		{"ffff::", false},
	} {
		if got := c.Shared(ip(test.ip)); got != test.want {
			t.Errorf("%s: %t", test.ip, got)
		}
	}
	if c.Shared(netip.Addr{}) {
		t.Error("no address is shared")
	}
}

func TestIgnored(t *testing.T) {
	c := mustParse(t, `ignore: {interfaces: ["veth-test*", lxc?, '\*x']}`)
	for name, want := range map[string]bool{
		"veth-test": true, "veth-test1": true, "veth-tes": false, "xveth-test": false, "lxc1": true, "lxc10": false, "": false,
		"*x": true, "ax": false,
	} {
		if got := c.Ignored(name); got != want {
			t.Errorf("%q: %t", name, got)
		}
	}
}

// Without a file, and with an empty one, everything has its default.
func TestDefault(t *testing.T) {
	for name, c := range map[string]*Config{
		"nil": nil, "zero": {}, "empty file": mustParse(t, ""), "comment": mustParse(t, "# nothing\n---\n"),
		"empty sections": mustParse(t, "networks:\nshared: []\nignore:\n  interfaces:\nlimits:\n  # bindings: 7\n"),
	} {
		if n, ok := c.Network(Subject{"a", "b", "c"}, ip("10.0.0.1")); ok {
			t.Errorf("%s: network %v", name, n)
		}
		if n, ok := c.HostNetwork("a", ip("10.0.0.1")); ok {
			t.Errorf("%s: host network %v", name, n)
		}
		if !c.Solicits("default") || c.Scope("default.5") != Cluster || c.Scope("net1") != Node ||
			c.Shared(ip("10.0.0.1")) || c.Ignored("a") || len(c.Networks()) != 0 {
			t.Errorf("%s: not the defaults", name)
		}
		if diff := cmp.Diff(Limits{65536, 256, 1000, 1000, 100}, c.Limits()); diff != "" {
			t.Errorf("%s: limits (-want +got):\n%s", name, diff)
		}
	}
}

func TestLimits(t *testing.T) {
	c := mustParse(t, "limits: {history: 5, verifyPerSecond: 7}")
	if diff := cmp.Diff(Limits{65536, 256, 5, 7, 100}, c.Limits()); diff != "" {
		t.Errorf("limits (-want +got):\n%s", diff)
	}
}

// fifty makes 50 rules, of which only the last matches. The others differ by the address with
// prefixes, else by the bridge.
func fifty(t testing.TB, prefixes bool) (*Config, Subject) {
	var text strings.Builder
	text.WriteString("networks:\n")
	for n := range 49 {
		fmt.Fprintf(&text, "  - {name: n%d, match: {interfaces: [\"cali*\"], bridges: [\"br?%d*\"]", n, n)
		if prefixes {
			fmt.Fprintf(&text, ", cidrs: [10.%d.0.0/16]", n)
		}
		text.WriteString("}}\n")
	}
	text.WriteString("  - {name: last, match: {interfaces: [\"cali*\"]}}\nshared: [192.0.2.0/24, 198.51.100.7]\n")
	return mustParse(t, text.String()), Subject{"cali0123456789a", "eth0", "br-stor"}
}

// These are called for each sighting.
func TestNoAllocations(t *testing.T) {
	c, subject := fifty(t, false)
	address := ip("192.0.2.1")
	allocations := testing.AllocsPerRun(100, func() {
		c.Network(subject, address)
		c.HostNetwork("br-48", address)
		c.Solicits("last.200.100")
		c.Scope("last.200.100")
		c.Shared(address)
		c.Ignored(subject.Interface)
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

func BenchmarkNetwork(b *testing.B) {
	for name, prefixes := range map[string]bool{"names": false, "prefixes": true} {
		b.Run(name, func(b *testing.B) {
			c, subject := fifty(b, prefixes)
			address := ip("192.0.2.1")
			b.ReportAllocs()
			for b.Loop() {
				if n, ok := c.Network(subject, address); !ok || n.Name != "last" {
					b.Fatal(n)
				}
			}
		})
	}
}
