package links

import (
	"log/slog"
	"net"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

func TestLeadsOut(t *testing.T) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, 7}
	subnet, sameMAC := uplinks{subnets: map[int]bool{7: true}}, uplinks{macs: map[string]bool{mac.String(): true}}
	for _, test := range []struct {
		name  string
		t     tracked
		found map[int]netns.Place
		known uplinks
		want  bool
	}{
		{"the node's subnet", tracked{tries: unseenAfter}, nil, subnet, true},
		{"the uplink's MAC", tracked{tries: unseenAfter}, nil, sameMAC, true},
		{"neither", tracked{tries: unseenAfter}, nil, uplinks{}, false},
		{"not looked for long enough", tracked{tries: unseenAfter - 1}, nil, subnet, false},
		{"seen once", tracked{tries: unseenAfter, firstPeer: "eth0"}, nil, subnet, false},
		{"found, and hard to look into", tracked{tries: unseenAfter}, map[int]netns.Place{3: {}}, subnet, false},
		{"nothing is known", tracked{tries: unseenAfter}, nil, uplinks{subnets: map[int]bool{7: true}, err: errNoPlace}, false},
	} {
		test.t.iface, test.t.nsid = Interface{Index: 7, MAC: mac}, 3
		w := &Watcher{places: test.found, uplinks: &test.known}
		if got := w.leadsOut(&test.t); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}

// The judgement is about one veth into one netns, whatever its name and MAC.
func TestIsOutward(t *testing.T) {
	for _, test := range []struct {
		name              string
		index, nsid, peer int
		route, want       bool
	}{
		{"the same", 7, 3, 2, false, true},
		{"another one", 8, 3, 2, false, false},
		{"into another netns", 7, 4, 2, false, false},
		{"with another peer", 7, 3, 5, false, false},
		{"now without a netns", 7, -1, 2, false, false},
		{"now with the default route", 7, 3, 2, true, false},
	} {
		w := &Watcher{
			outward: map[int]outward{7: {name: "eth1", nsid: 3, peer: 2}},
			exits:   exits{devices: map[int]bool{7: test.route}},
		}
		mac := net.HardwareAddr{2, 0, 0, 0, 0, 9}
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{
			Name: "renamed", Index: test.index, NetNsID: test.nsid, ParentIndex: test.peer, HardwareAddr: mac,
		}}
		if got := w.isOutward(link); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
		kept, ok := w.outward[7]
		if ok != (test.want || test.index != 7) || w.unobservedDirty != (test.index == 7) {
			t.Errorf("%s: kept %t, to be told %t", test.name, ok, w.unobservedDirty)
		}
		if test.want && (kept.name != "renamed" || kept.mac.String() != mac.String()) {
			t.Errorf("%s: kept as %+v", test.name, kept)
		}
	}
}

// An interface may go unheard when events are lost.
func TestResyncForgetsUplinksThatAreGone(t *testing.T) {
	w, err := New(Options{Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.finder.Close()
	w.outward[1<<20] = outward{name: "gone"}
	if err := w.resync(t.Context()); err != nil || len(w.outward) != 0 {
		t.Errorf("still there: %v, %v", w.outward, err)
	}
}

// Its address went with it, and is told of by others. A MAC is not.
func TestDeletedUplinkIsForgotten(t *testing.T) {
	w := &Watcher{outward: map[int]outward{7: {}, 8: {}}}
	var update netlink.LinkUpdate
	update.Header.Type, update.Index = unix.RTM_DELLINK, 7
	w.handle(t.Context(), update)
	if _, ok := w.outward[7]; ok || len(w.outward) != 1 || !w.unobservedDirty {
		t.Errorf("left are %v, to be told %t; want the other one, and true", w.outward, w.unobservedDirty)
	}
}
