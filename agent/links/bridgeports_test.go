package links

import (
	"errors"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

type portList = map[int32][]*nl.BridgeVlanInfo

// vlans returns a function that lists one port with one VLAN of its own.
func vlans(index int32, vlan uint16) func() (portList, error) {
	return func() (portList, error) {
		return portList{index: {{Flags: nl.BRIDGE_VLAN_INFO_PVID, Vid: vlan}}}, nil
	}
}

// The scenarios test real bridges with VLANs, on kernels that have them.
func TestUntaggedVLAN(t *testing.T) {
	const pvid = nl.BRIDGE_VLAN_INFO_PVID | nl.BRIDGE_VLAN_INFO_UNTAGGED
	for _, test := range []struct {
		name  string
		vlans []*nl.BridgeVlanInfo
		want  uint16
	}{
		{"no VLANs", nil, 0},
		{"the default", []*nl.BridgeVlanInfo{{Flags: pvid, Vid: 1}}, 1},
		{"a VLAN of its own", []*nl.BridgeVlanInfo{{Flags: nl.BRIDGE_VLAN_INFO_UNTAGGED, Vid: 1}, {Flags: pvid, Vid: 100}}, 100},
		{"a trunk", []*nl.BridgeVlanInfo{{Vid: 100}, {Vid: 200}}, 0},
	} {
		if got := untaggedVLAN(test.vlans); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// One list of VLANs serves all ports that are due and whose bridge filters VLANs. After a failure the next
// resync lists again.
func TestOneListServesAllPorts(t *testing.T) {
	h := newHarness(t)
	var lists int
	var failure error
	ports := portList{}
	h.addDevice(bridge(10, "filtering", true))
	h.addDevice(bridge(11, "plain", false)) // or a bond, a VRF, Open vSwitch
	for index := 1; index <= 5; index++ {
		ports[int32(index)] = []*nl.BridgeVlanInfo{{Flags: nl.BRIDGE_VLAN_INFO_PVID, Vid: uint16(100 * index)}}
		h.veths[index] = &tracked{
			iface: Interface{Index: index, Name: "pod", State: Attached, Seen: true, Master: "filtering"}, master: 10,
			portDue: true,
		}
	}
	h.veths[3].iface.Master, h.veths[3].master = "plain", 11
	h.veths[4].iface.Master, h.veths[4].master = "", 0
	h.veths[6] = &tracked{iface: Interface{Index: 6, State: Attached, Master: "filtering"}, master: 10, portDue: true} // not seen
	// read returns how many lists it took, and the events.
	read := func() (int, []Event) {
		t.Helper()
		before := lists
		h.events = nil
		h.readPorts(func() (portList, error) { lists++; return ports, failure })
		if len(h.portsDue(h.now)) > 0 {
			t.Error("a port is still due")
		}
		return lists - before, h.events
	}
	if len(h.portsDue(h.now)) != 5 {
		t.Errorf("%d ports are due, want 5", len(h.portsDue(h.now)))
	}
	if n, events := read(); n != 1 || len(events) != 5 || events[0].Kind != Added {
		t.Errorf("at first %d lists and the events %+v, want one list and all added", n, events)
	}
	for index, want := range map[int]uint16{1: 100, 2: 200, 3: 0, 4: 0, 5: 500} {
		if got := h.veths[index].iface.PortVLAN; got != want {
			t.Errorf("interface %d: VLAN %d, want %d", index, got, want)
		}
	}
	if !h.veths[6].portDue {
		t.Error("the port of a veth that is not seen yet is not due any more")
	}
	if n, events := read(); n != 0 || len(events) != 0 {
		t.Errorf("no port is due, but %d lists and the events %+v", n, events)
	}
	failure = errors.New("not now")
	h.veths[1].portDue = true
	if n, events := read(); n != 1 || len(events) != 0 || h.veths[1].iface.PortVLAN != 100 {
		t.Errorf("a failure: %d lists, the events %+v and %+v", n, events, h.veths[1])
	}
	failure = nil
	if next := h.next(h.now, h.now.Add(time.Hour)); !next.Equal(h.now.Add(listRetry)) {
		t.Errorf("after a failure the next list is in %v, want %v", next.Sub(h.now), listRetry)
	}
	h.now = h.now.Add(listRetry)
	if n, _ := read(); n != 1 {
		t.Errorf("%d lists some time after a failure", n)
	}
	h.veths[3].portDue = true
	if n, _ := read(); n != 0 {
		t.Errorf("%d lists for a bridge that does not filter VLANs", n)
	}
	ports[2][0].Vid = 300
	h.veths[2].portDue = true
	if _, events := read(); len(events) != 1 || events[0].Kind != Changed || events[0].Interface.PortVLAN != 300 {
		t.Errorf("a change: events %+v", events)
	}
}

// A scan does not make a list of ports due; changes of the port or its bridge do.
func TestWhatMakesAPortDue(t *testing.T) {
	h := newHarness(t)
	h.addDevice(bridge(10, "br1", false))
	port := &tracked{iface: Interface{Index: 7, Name: "pod7", State: Attached, Seen: true, Master: "br1"}, master: 10, nsid: 3, peer: 2}
	h.veths[7] = port
	due := func(what string, want bool) {
		t.Helper()
		if port.portDue != want || port.scans.due {
			t.Errorf("%s: the port is due: %t, want %t; a scan: %t", what, port.portDue, want, port.scans.due)
		}
		port.portDue = false
	}
	h.deleted(7, unix.AF_BRIDGE)
	due("an event of the port", true)
	h.event(bridge(10, "br1", false))
	due("an event of its bridge", false)
	h.event(bridge(10, "br1", true))
	due("the bridge filters VLANs now", true)
	h.event(pod(func(a *netlink.LinkAttrs) { a.MasterIndex = 10 }))
	due("an event of the device", false)
	h.event(pod())
	due("it left the bridge", true)
	listed := []netlink.Link{bridge(10, "br1", true), pod(func(a *netlink.LinkAttrs) { a.MasterIndex = 10 })}
	h.list(listed, h.now)
	port.portDue = false
	h.list(listed, h.now)
	if !port.portDue {
		t.Error("a resync does not make the port due")
	}
}
