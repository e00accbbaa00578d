package links

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What a bridge does with VLANs is played by the scenarios, on kernels that have it.
func TestUntaggedVLAN(t *testing.T) {
	const pvid = nl.BRIDGE_VLAN_INFO_PVID | nl.BRIDGE_VLAN_INFO_UNTAGGED
	for _, test := range []struct {
		name  string
		vlans []*nl.BridgeVlanInfo
		want  uint16
	}{
		{"no VLANs", nil, 0},
		{"the default", []*nl.BridgeVlanInfo{{Flags: pvid, Vid: 1}}, 0},
		{"one of its own", []*nl.BridgeVlanInfo{{Flags: nl.BRIDGE_VLAN_INFO_UNTAGGED, Vid: 1}, {Flags: pvid, Vid: 100}}, 100},
		{"a trunk", []*nl.BridgeVlanInfo{{Vid: 100}, {Vid: 200}}, 0},
	} {
		if got := untaggedVLAN(test.vlans); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// The VLANs are asked for once for all that are due, where the bridge tells VLANs apart,
// and a failure waits for the next resync.
func TestPortsAreAskedForSparingly(t *testing.T) {
	var lists int
	var failure error
	vlans := map[int32][]*nl.BridgeVlanInfo{}
	w := &Watcher{
		log: slog.New(slog.DiscardHandler), tracked: make(map[int]*tracked), events: make(chan Event, 64),
		bridges: bridges{
			filters: func(name string) (bool, error) { return name == "filtering", nil },
			vlans: func() (map[int32][]*nl.BridgeVlanInfo, error) {
				lists++
				return vlans, failure
			},
		},
	}
	for index := 1; index <= 5; index++ {
		vlans[int32(index)] = []*nl.BridgeVlanInfo{{Flags: nl.BRIDGE_VLAN_INFO_PVID, Vid: uint16(100 * index)}}
		w.tracked[index] = &tracked{
			iface: Interface{Index: index, Seen: true, Master: "filtering"}, firstPeer: "net1", portDirty: true,
		}
	}
	w.tracked[3].iface.Master = "plain" // or a bond, a VRF, Open vSwitch
	w.tracked[4].iface.Master = ""
	w.tracked[5].firstPeer = PrimaryPeer
	// work does what is due and returns how many lists that took, and the events.
	work := func() (int, []Event) {
		t.Helper()
		before := lists
		w.nextPorts = time.Time{}
		w.work(t.Context(), time.Now())
		var events []Event
		for range len(w.events) {
			events = append(events, <-w.events)
		}
		return lists - before, events
	}
	if n, events := work(); n != 1 || len(events) != 5 || events[0].Kind != Added {
		t.Errorf("at first %d lists and the events %+v, want one list and all added", n, events)
	}
	for index, want := range map[int]uint16{1: 100, 2: 200, 3: 0, 4: 0, 5: 0} {
		if got := w.tracked[index].iface.PortVLAN; got != want {
			t.Errorf("interface %d: VLAN %d, want %d", index, got, want)
		}
	}
	if n, events := work(); n != 0 || len(events) != 0 {
		t.Errorf("without a reason %d lists and the events %+v", n, events)
	}
	failure = errors.New("not now")
	w.tracked[1].portDirty = true
	if n, events := work(); n != 1 || len(events) != 0 || w.tracked[1].portDirty || w.tracked[1].iface.PortVLAN != 100 {
		t.Errorf("a failure: %d lists, the events %+v and %+v", n, events, w.tracked[1])
	}
	failure = nil
	w.tracked[3].portDirty = true
	if n, _ := work(); n != 0 {
		t.Errorf("%d lists for a bridge that does not tell VLANs apart", n)
	}
	vlans[2][0].Vid = 300
	w.tracked[2].portDirty = true
	if _, events := work(); len(events) != 1 || events[0].Kind != Changed || events[0].Interface.PortVLAN != 300 {
		t.Errorf("a change: events %+v", events)
	}
	// Never more often than a share of the time.
	before, next := lists, time.Now().Add(time.Hour)
	w.tracked[2].portDirty, w.nextPorts = true, next
	if at := w.work(t.Context(), time.Now()); lists != before || !at.Equal(next) {
		t.Errorf("%d lists too soon, and next at %v, want %v", lists-before, at, next)
	}
}

// A look does not ask for the ports; what tells of the port does.
func TestWhatMakesAPortDue(t *testing.T) {
	secondary := &tracked{iface: Interface{Index: 1, Seen: true, Master: "br1"}, firstPeer: "net1"}
	primary := &tracked{iface: Interface{Index: 2, Seen: true, Master: "cni0"}, firstPeer: PrimaryPeer}
	w := &Watcher{tracked: map[int]*tracked{1: secondary, 2: primary}, names: make(map[int]string)}
	for index := int32(1); index <= 2; index++ {
		var update netlink.LinkUpdate
		update.Family, update.Index = unix.AF_BRIDGE, index
		w.handle(t.Context(), update)
	}
	if due := w.duePorts(); len(due) != 1 || due[0] != secondary || secondary.dirty || primary.dirty {
		t.Errorf("due are %+v, want the secondary port only, and no look", due)
	}
	secondary.portDirty, secondary.announced = false, true
	w.events = make(chan Event, 1)
	w.upsert(t.Context(), &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Index: 1}}) // it left its bridge
	if due := w.duePorts(); len(due) != 1 || due[0] != secondary {
		t.Errorf("due after a change of the bridge are %+v", due)
	}
}
