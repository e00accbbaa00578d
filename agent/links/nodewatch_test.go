package links

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
)

// The watch of the node passes on what is about default routes, qdiscs and filters.
func TestWatchNode(t *testing.T) {
	testneeds.Root(t)
	veth := netlink.NewVeth(netlink.LinkAttrs{Name: "watched"})
	veth.PeerName = "watched-far"
	do := func(errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	do(netlink.LinkAdd(veth))
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	link, err := netlink.LinkByName("watched")
	do(err, netlink.LinkSetUp(link))
	index := link.Attrs().Index
	clsact := &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}, QdiscType: "clsact",
	}
	_, all, err := net.ParseCIDR("0.0.0.0/0")
	do(err)
	_, one, err := net.ParseCIDR("198.51.100.7/32")
	do(err)
	for _, test := range []struct {
		name   string
		change func() error
		want   any // nil for none
	}{
		{"a route", func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: one, Scope: unix.RT_SCOPE_LINK})
		}, nil},
		{"a default route", func() error {
			return netlink.RouteAdd(&netlink.Route{LinkIndex: index, Dst: all, Scope: unix.RT_SCOPE_LINK, Priority: 77})
		}, listRoutes{}},
		{"a default route that goes", func() error {
			return netlink.RouteDel(&netlink.Route{LinkIndex: index, Dst: all, Scope: unix.RT_SCOPE_LINK, Priority: 77})
		}, listRoutes{}},
		{"a qdisc", func() error { return netlink.QdiscAdd(clsact) }, checkPrograms(index)},
		{"a filter", func() error {
			return netlink.FilterAdd(&netlink.U32{FilterAttrs: netlink.FilterAttrs{
				LinkIndex: index, Parent: netlink.HANDLE_MIN_INGRESS, Priority: 1, Protocol: unix.ETH_P_ALL,
			}})
		}, checkPrograms(index)},
		{"a qdisc that goes", func() error { return netlink.QdiscDel(clsact) }, checkPrograms(index)},
	} {
		requests := make(chan any, 1000)
		w, err := watchNode(watchBuffer, true, func(request any) { requests <- request })
		do(err)
		done := make(chan error, 1)
		go func() { done <- w.run(t.Context()) }()
		do(test.change())
		last := any(checkPrograms(index))
		if test.want != nil {
			last = test.want
		} else {
			do(netlink.QdiscAdd(clsact), netlink.QdiscDel(clsact)) // its event is the last
		}
		var got []any
		for deadline := time.After(time.Minute); !slices.Contains(got, last); {
			select {
			case request := <-requests:
				got = append(got, request)
			case <-deadline:
				t.Fatalf("%s: nothing after a minute but %v", test.name, got)
			}
		}
		if slices.ContainsFunc(got, func(r any) bool { return r != last }) {
			t.Errorf("%s: %s, want %v", test.name, fmt.Sprint(got), last)
		}
		do(w.conn.Close())
		<-done
	}
}

// What another device of the node is called, and what it is a port of, counts for the node's own addresses; and default routes go with
// a device without an event.
func TestDevicesOfTheNode(t *testing.T) {
	bridge := func(change func(*netlink.LinkAttrs)) netlink.Link {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.Index, attrs.RawFlags, attrs.HardwareAddr = "br0", 40, unix.IFF_UP, podMAC
		change(&attrs)
		return &netlink.Bridge{LinkAttrs: attrs}
	}
	for name, test := range map[string]struct {
		change       func(*netlink.LinkAttrs)
		host, routes bool
	}{
		"nothing":        {func(*netlink.LinkAttrs) {}, false, false},
		"another name":   {func(a *netlink.LinkAttrs) { a.Name = "br1" }, true, false},
		"another MAC":    {func(a *netlink.LinkAttrs) { a.HardwareAddr = net.HardwareAddr{2, 0, 0, 0, 0, 9} }, true, false},
		"another master": {func(a *netlink.LinkAttrs) { a.MasterIndex = 41 }, true, false},
		"down":           {func(a *netlink.LinkAttrs) { a.RawFlags = 0 }, false, true},
	} {
		h := newHarness(t)
		h.routes.devices = map[int]bool{40: true}
		h.event(bridge(func(*netlink.LinkAttrs) {}))
		h.event(bridge(test.change))
		if h.hostDue != test.host || h.routesDue != test.routes {
			t.Errorf("%s: addresses are listed %t and routes %t, want %t and %t", name, h.hostDue, h.routesDue, test.host, test.routes)
		}
	}
}

// What failed is tried again after a while, and no sooner; but the first list must come first.
func TestHostListAgain(t *testing.T) {
	w := idle(t)
	now := time.Now()
	w.hostPacer.next = now
	w.table.hostDue = true
	if next := w.work(t.Context(), now, now.Add(time.Hour)); next.Before(now.Add(listRetry)) || next.After(now.Add(2*listRetry)) || len(w.events) > 0 {
		t.Errorf("%d events, the next list is in %v, want %v", len(w.events), next.Sub(now), listRetry)
	}
	w.work(t.Context(), now.Add(2*listRetry), now.Add(time.Hour))
	if len(w.events) != 1 {
		t.Errorf("%d events, want a list", len(w.events))
	}
}
