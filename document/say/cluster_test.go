package say

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// onBridges is a conflict of containers behind these bridges, each on a node of its own.
func onBridges(bridges ...string) document.Conflict {
	c := document.Conflict{Network: "default", IP: netip.MustParseAddr("172.18.0.2")}
	for n, bridge := range bridges {
		c.Holders = append(c.Holders, document.Binding{Holder: document.Holder{Node: fmt.Sprint("n", n+1), BootID: "b", Bridge: bridge}, Evidence: detector.Announced})
	}
	return c
}

func TestLocalRange(t *testing.T) {
	const one = "networks:\n  - {name: \"shop\", scope: node, match: {bridges: [\"shop\"]}}\n"
	for name, test := range map[string]struct {
		conflicts   []document.Conflict
		text, lines string
	}{
		"one name": {
			[]document.Conflict{onBridges("shop", "shop")},
			"If the range of bridge shop is meant to be local to each node: Remove nothing, and add this to the configuration of n1 and n2", one,
		},
		"many addresses": {
			[]document.Conflict{onBridges("shop", "shop"), onBridges("cni0", "cni0"), onBridges("shop", "shop", "shop")},
			"If the range of bridge shop is meant to be local to each node: Remove nothing, and add this to the configuration of n1, n2 and n3", one,
		},
		"other names": {
			[]document.Conflict{onBridges("web_1", "123"), onBridges("shop", "shop")},
			"If the ranges of bridges 123, shop and web_1 are meant to be local to each node: Remove nothing, and add this to the configuration of n1 and n2",
			"networks:\n  - {name: \"123\", scope: node, match: {bridges: [\"123\", \"web_1\"]}}\n" + strings.TrimPrefix(one, "networks:\n"),
		},
	} {
		text, lines := local(test.conflicts...)
		if text != test.text || lines != test.lines {
			t.Errorf("%s:\n%s\n%s, want\n%s\n%s", name, text, lines, test.text, test.lines)
		}
		// The agent takes the lines, and then compares these addresses on each node alone.
		c, err := config.Parse([]byte(lines))
		if err != nil {
			t.Errorf("%s: %v in\n%s", name, err, lines)
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

// Whatever may be a duplicate for the cluster has no advice to make it local.
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
		c := onBridges("shop", "shop")
		change(&c)
		if text, lines := local(c); text != "" || lines != "" {
			t.Errorf("%s: %s\n%s", name, text, lines)
		}
	}
	if text, lines := local(); text != "" || lines != "" {
		t.Errorf("without conflicts: %s\n%s", text, lines)
	}
}

// local returns the step about a range that may be local, and the lines of the configuration in it.
func local(conflicts ...document.Conflict) (text, lines string) {
	if steps := localRange(conflicts...); len(steps) > 0 {
		return steps[0].If + ": " + steps[0].Text, steps[0].Command
	}
	return "", ""
}
