package cli

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// onBridges is a judged conflict of containers behind these bridges, each on a node of its own.
func onBridges(change func(*document.Conflict), bridges ...string) document.Conflict {
	c := document.Conflict{Network: "default", IP: netip.MustParseAddr("172.18.0.2"), State: detector.Confirmed, ConfirmedAt: time.Now().Add(-time.Minute)}
	for n, bridge := range bridges {
		c.Holders = append(c.Holders, document.Binding{Holder: document.Holder{Node: fmt.Sprint("n", n+1), BootID: "b", Bridge: bridge}, Evidence: detector.Announced})
	}
	if change != nil {
		change(&c)
	}
	return judged(c)
}

// files are the steps about lines of a file.
func files(conflicts ...document.Conflict) (list []document.Step) {
	for _, e := range say.Entries(document.Conflicts{Conflicts: conflicts}) {
		for _, s := range e.Steps {
			if s.File != "" {
				list = append(list, s)
			}
		}
	}
	return list
}

// The agent takes the lines that declare a range local, and then compares its addresses on each node alone.
func TestLocalRange(t *testing.T) {
	const one = "networks:\n  - {name: \"shop\", scope: node, match: {bridges: [\"shop\"]}}\n"
	shop := onBridges(nil, "shop", "shop")
	for name, test := range map[string]struct {
		conflicts         []document.Conflict
		when, text, lines string
	}{
		"one name": {
			[]document.Conflict{shop},
			"If the range of bridge shop is meant to be local to each node", "Remove nothing, and add this to the configuration of n1 and n2", one,
		},
		"many addresses": {
			[]document.Conflict{shop, onBridges(nil, "cni0", "cni0"), shop, onBridges(nil, "shop", "shop", "shop")},
			"If the range of bridge shop is meant to be local to each node", "Remove nothing, and add this to the configuration of n1, n2 and n3", one,
		},
		"other names": {
			[]document.Conflict{onBridges(nil, "web_1", "123"), shop, shop, shop},
			"If the ranges of bridges 123, shop and web_1 are meant to be local to each node", "Remove nothing, and add this to the configuration of n1 and n2",
			"networks:\n  - {name: \"123\", scope: node, match: {bridges: [\"123\", \"web_1\"]}}\n" + strings.TrimPrefix(one, "networks:\n"),
		},
	} {
		list := files(test.conflicts...)
		if len(list) != 1 || list[0].If != test.when || list[0].Text != test.text || list[0].Command != test.lines {
			t.Errorf("%s: %+v", name, list)
			continue
		}
		c, err := config.Parse([]byte(test.lines))
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, test.lines)
			continue
		}
		for _, conflict := range test.conflicts {
			for _, b := range conflict.Holders {
				network, found := c.Network(config.Subject{Bridge: b.Bridge, Peer: "eth0"}, conflict.IP)
				if found != (b.Bridge != "cni0") || found && network.Scope != config.Node {
					t.Errorf("%s: %s is in %+v, %t", name, b.Bridge, network, found)
				}
			}
		}
	}
}

// Nothing says how to make local whatever may be a duplicate for the cluster.
func TestNoLocalRange(t *testing.T) {
	for name, change := range map[string]func(c *document.Conflict){
		"routed":                 func(c *document.Conflict) { c.Holders[1].Bridge = "" },
		"a bridge of a plugin":   func(c *document.Conflict) { c.Holders[1].Bridge = "cni0" },
		"a name with a pattern":  func(c *document.Conflict) { c.Holders[1].Bridge = "*" },
		"the cluster's network":  func(c *document.Conflict) { c.Holders[0].Bridge, c.Holders[1].Bridge = "default", "default" },
		"no name of a device":    func(c *document.Conflict) { c.Holders[1].Bridge = "abcdefghijklmnop" },
		"terminal codes":         func(c *document.Conflict) { c.Holders[1].Bridge = "shop\x1b[31m" },
		"a VLAN":                 func(c *document.Conflict) { c.Holders[0].Bridge = "br.100" },
		"a pod":                  func(c *document.Conflict) { c.Holders[0].Pod = &document.Pod{Namespace: "shop", Name: "web"} },
		"a plugin gave another":  func(c *document.Conflict) { c.Holders[0].Given = detector.GivenNo },
		"on one node":            func(c *document.Conflict) { c.Holders[1].Node = c.Holders[0].Node },
		"two of three on a node": func(c *document.Conflict) { c.Holders = append(c.Holders, c.Holders[0]) },
		"another network":        func(c *document.Conflict) { c.Network = "storage" },
		"one holder":             func(c *document.Conflict) { c.Holders = c.Holders[:1] },
	} {
		c := onBridges(change, "shop", "shop")
		for _, conflicts := range [][]document.Conflict{{c}, {c, c, c, c}} {
			if list := files(conflicts...); len(list) > 0 {
				t.Errorf("%s: %+v", name, list)
			}
		}
	}
}
