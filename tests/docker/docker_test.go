// Package docker tests the agent on nodes with a real Docker, of several of Debian's suites.
//
// It owns the engine, which tests/cri removes. tests/e2e plays the order of its netlink calls by hand.
package docker

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// On each of six bridges that a user named, the second container takes the address of the first: all are found, whether Docker
// renames the container's device before the agent sees it or later.
func TestNamedBridges(t *testing.T) {
	testneeds.Release(t)
	for suite, major := range map[string]int{"trixie": 26, "sid": 28} {
		t.Run(suite, func(t *testing.T) {
			const bridges = 6
			l := lab.NewT(t)
			n := l.Node("")
			a := l.Agent(n)
			e := startEngine(l, n, suite)
			t.Logf("Docker %s", e.version)
			number, _, _ := strings.Cut(e.version, ".")
			if got, err := strconv.Atoi(number); err != nil || got < major {
				t.Errorf("this is Docker %s, want %d or newer", e.version, major)
			}
			want := make(map[netip.Addr]bool)
			for i := range bridges {
				bridge := fmt.Sprint("lan", i)
				e.network(bridge, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 78, byte(i), 0}), 24))
				first, second := e.run("", bridge), e.run("", bridge)
				l.Do(second.take(first.ip))
				want[first.ip] = true
			}
			l.Eventually("the conflicts", func() error { return confirmed(l, a, want) })
		})
	}
}

// take gives the container an address more.
func (c container) take(ip netip.Addr) error { return c.takeOn("eth0", ip) }

// takeOn is take on a device.
func (c container) takeOn(device string, ip netip.Addr) error {
	ns, err := netns.GetFromPid(c.pid)
	if err != nil {
		return err
	}
	defer ns.Close()
	handle, err := netlink.NewHandleAt(ns)
	if err != nil {
		return err
	}
	defer handle.Close()
	eth0, err := handle.LinkByName(device)
	if err != nil {
		return err
	}
	address, err := netlink.ParseAddr(ip.String() + "/24")
	return errors.Join(err, handle.AddrAdd(eth0, address))
}

// confirmed returns an error unless the conflicts are those of these addresses, in the network of the cluster.
func confirmed(t *lab.T, a *lab.Agent, want map[netip.Addr]bool) error {
	open, err := a.Client.Conflicts(t.Context(), false)
	if err != nil {
		return err
	}
	found := 0
	for _, c := range open {
		if want[c.IP] && c.Network == "default" && c.State == "confirmed" && len(c.Holders) == 2 {
			found++
		}
	}
	if found != len(want) || len(open) != len(want) {
		list, err := a.Client.Interfaces(t.Context())
		return errors.Join(err, fmt.Errorf("%d of %d duplicates are found: %+v; interfaces: %+v", found, len(want), open, list))
	}
	return nil
}
