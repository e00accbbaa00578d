package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func rangeText(l limit) string { return fmt.Sprintf("%d to %d", l.min, l.max) }

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

func TestNetwork(t *testing.T) {
	c := mustParse(t, rules)
	storage := Subject{"cali1", "net1", "br-storage"}
	for _, test := range []struct {
		name    string
		subject Subject
		ip      string
		want    string
	}{
		{"every key matches", storage, "10.9.1.1", "storage"},
		{"the other alternatives", Subject{"veth0", "net1", "br-stor"}, "fd09::1", "storage"},
		{"a mapped address is as the plain one", storage, "::ffff:10.9.1.1", "storage"},
		{"a zone does not matter", storage, "fd09::1%eth0", "storage"},
		{"another interface", Subject{"veth1", "net1", "br-storage"}, "10.9.1.1", "late"},
		{"more than the name", Subject{"veth00", "net1", "br-stor"}, "fd09::1", ""},
		{"another peer", Subject{"cali1", "eth0", "br-storage"}, "10.9.1.1", "late"},
		{"another bridge", Subject{"cali1", "net1", "br0"}, "10.9.1.1", "late"},
		{"another prefix", storage, "11.9.1.1", ""},
		{"unknown peer", Subject{"cali1", "", "br-storage"}, "10.9.1.1", "late"},
		{"the first rule wins", Subject{Interface: "a", Bridge: "br9"}, "10.8.0.1", "bridged"},
		{"* is any bridge, not none", Subject{Interface: "a"}, "10.8.0.1", "late"},
		{"a class", Subject{Interface: "eth2"}, "192.0.2.1", "port"},
		{"not in the class", Subject{Interface: "eth3"}, "192.0.2.1", ""},
		{"a question mark", Subject{Interface: "br-x"}, "192.0.2.1", "port"},
		{"a prefix of any interface", Subject{}, "fd07::2", "prefix"},
		{"names are whole", Subject{Interface: "xlan0", Bridge: "br-lan"}, "192.0.2.1", ""},
		{"both keys", Subject{Interface: "lan0", Bridge: "br-lan"}, "192.0.2.1", "either"},
		{"one of both keys", Subject{Interface: "lan0"}, "192.0.2.1", ""},
	} {
		got, ok := c.Network(test.subject, ip(test.ip))
		if got.Name != test.want || ok != (test.want != "") {
			t.Errorf("%s: %v, %t, want %q", test.name, got, ok, test.want)
		}
	}
	if got, _ := c.Network(storage, ip("10.9.1.1")); got != (Network{"storage", Cluster, false}) {
		t.Errorf("%+v", got)
	}
	if got, _ := c.Network(Subject{}, ip("10.7.0.1")); got != (Network{"prefix", Node, true}) {
		t.Errorf("%+v", got)
	}
	if got, ok := c.Network(Subject{}, netip.Addr{}); ok {
		t.Errorf("no address is in %v", got)
	}
}

func TestHostNetwork(t *testing.T) {
	c := mustParse(t, rules)
	for _, test := range []struct{ name, device, ip, want string }{
		{"the bridge itself", "br-lan", "192.0.2.1", "either"},
		{"the port", "lan0", "192.0.2.1", "either"},
		{"neither", "lan1", "192.0.2.1", ""},
		{"interfaces alone", "eth1", "192.0.2.1", "port"},
		{"bridges alone", "br9", "10.8.0.1", "bridged"},
		{"bridges, and another prefix", "br9", "192.0.2.1", ""},
		{"prefix alone", "anything", "10.7.0.9", "prefix"},
		{"a rule for peers is for pods", "cali1", "10.9.1.1", "late"},
	} {
		got, ok := c.HostNetwork(test.device, ip(test.ip))
		if got.Name != test.want || ok != (test.want != "") {
			t.Errorf("%s: %v, %t, want %q", test.name, got, ok, test.want)
		}
	}
}

func TestPropertiesOfNetworks(t *testing.T) {
	c := mustParse(t, `
networks:
  - {name: ruled, match: {peers: [a]}}
  - {name: twice, match: {peers: [b]}}
  - {name: twice, scope: node, solicit: false}
  - {name: twice, scope: node, match: {peers: [c]}}
  - {name: docker0, solicit: "off"}
  - {name: net1@br1, scope: cluster}
  - {name: default, solicit: 'FALSE'}
  - {name: v1.2x}
`)
	for _, test := range []struct {
		network string
		scope   Scope
		solicit bool
	}{
		{"ruled", Cluster, true},
		{"twice", Node, false},
		{"docker0", Node, false}, // as by itself: every node has one
		{"net1@br1", Cluster, true},
		{"default", Cluster, false},
		{"default.100", Cluster, false},
		{"default.200.100", Cluster, false},
		{"default.300.200.100", Node, true}, // two tags at most
		{"default.x", Node, true},
		{"default.", Node, true},
		{"v1.2x", Node, true},
		{"net1", Node, true},
		{"net1.7", Node, true},
		{"twice.7", Node, false},
		{"", Node, true},
		{".5", Node, true},
	} {
		if scope, solicit := c.Scope(test.network), c.Solicits(test.network); scope != test.scope || solicit != test.solicit {
			t.Errorf("%s: %s, solicit %t, want %s, %t", test.network, scope, solicit, test.scope, test.solicit)
		}
	}
	for _, peer := range []string{"b", "c"} {
		if n, _ := c.Network(Subject{Peer: peer}, ip("10.0.0.1")); n != (Network{"twice", Node, false}) {
			t.Errorf("peer %s: %+v, want what was said once to hold for all entries", peer, n)
		}
	}
	var names []string
	for _, n := range c.Networks() {
		names = append(names, n.Name)
	}
	if got, want := strings.Join(names, " "), "ruled twice docker0 net1@br1 default v1.2x"; got != want {
		t.Errorf("networks %s, want %s", got, want)
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
	if len(c.shared) != 5 {
		t.Errorf("%v: want 5 disjoint prefixes", c.shared)
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

// Without a file, and with an empty one, everything is as it always was.
func TestDefault(t *testing.T) {
	for name, c := range map[string]*Config{
		"nil": nil, "zero": {}, "default": Default(), "empty file": mustParse(t, ""), "comment": mustParse(t, "# nothing\n---\n"),
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
		if want := (Limits{65536, 256, 1000, 500, 100}); c.Limits() != want {
			t.Errorf("%s: limits %+v", name, c.Limits())
		}
	}
}

func TestLimits(t *testing.T) {
	c := mustParse(t, "limits: {history: 5, verifyPerSecond: 7}")
	if want := (Limits{65536, 256, 5, 7, 100}); c.Limits() != want {
		t.Errorf("%+v", c.Limits())
	}
}

// fifty makes 50 rules, of which only the last matches. With prefixes the others are told
// from it by the address, without by the bridge.
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

// They are put for each sighting.
func TestQuestionsDoNotAllocate(t *testing.T) {
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
