package netns

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// listOf yields devices as eachDevice does, and counts how often.
func listOf(devices []device, lists *int) func(func(), func(device)) error {
	return func(begin func(), each func(device)) error {
		*lists++
		begin()
		for _, d := range devices {
			each(d)
		}
		return nil
	}
}

// The devices of a pod are listed in the order in which they were made, and in the reverse order.
func TestTopology(t *testing.T) {
	pod := []device{
		{index: 1, name: "lo", nsid: -1},
		{index: 2, name: "eth0", kind: "veth", nsid: 0, parent: 77, master: 3},
		{index: 3, name: "br0", kind: "bridge", nsid: -1},
		{index: 4, name: "br0.100", kind: "vlan", parent: 3, vlan: 100, nsid: -1},
		{index: 5, name: "br0.100.7", kind: "vlan", parent: 4, vlan: 7, nsid: -1},
		{index: 6, name: "mv0", kind: "macvlan", parent: 5, nsid: -1},
		{index: 7, name: "too.high", kind: "vlan", parent: 5, vlan: 8, nsid: -1},
		{index: 8, name: "docker0", kind: "bridge", nsid: -1},
		{index: 9, name: "docker0.9", kind: "vlan", parent: 8, vlan: 9, nsid: -1},
		{index: 10, name: "dummy0", kind: "dummy", nsid: -1},
		{index: 11, name: "other", kind: "vlan", parent: 2, vlan: 9, nsid: 5},
		{index: 12, name: "br0.300", kind: "vlan", parent: 3, vlan: 300, nsid: -1, master: 13},
		{index: 13, name: "br300", kind: "bridge", nsid: -1},
		{index: 14, name: "mv300", kind: "macvlan", parent: 13, nsid: -1},
		{index: 15, name: "tap0", kind: "tun", nsid: -1, master: 3},
		{index: 16, name: "kube-ipvs0", kind: "dummy", nsid: -1},
		{index: 17, name: "eth0.400", kind: "vlan", parent: 2, vlan: 400, nsid: -1, master: 3},
	}
	want := map[int]path{
		1: {where: OnLoopback}, 10: {where: OnLoopback},
		2: {where: OnPeer}, 3: {where: OnPeer},
		4:  {where: OnPeer, outer: 100},
		5:  {where: OnPeer, outer: 100, inner: 7},
		6:  {where: OnPeer, outer: 100, inner: 7},
		17: {where: OnPeer, outer: 400}, // its bridge has untagged packets, too
		// A bridge for one VLAN of the interface.
		12: {where: OnPeer, outer: 300}, 13: {where: OnPeer, outer: 300}, 14: {where: OnPeer, outer: 300},
	}
	for range 2 {
		lists := 0
		got, err := readTopology(2, listOf(pod, &lists))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got.paths, cmp.AllowUnexported(path{})); diff != "" {
			t.Errorf("paths (-want +got)\n%s", diff)
		}
		if got.peerName != "eth0" || got.truncated || lists > maxLists {
			t.Errorf("peer %q, truncated %t, after %d lists", got.peerName, got.truncated, lists)
		}
		slices.Reverse(pod)
	}
	lists := 0
	if _, err := readTopology(2, listOf(pod[:3], &lists)); err != nil || lists != 1 {
		t.Errorf("%d lists of a plain pod, %v, want one", lists, err)
	}
}

// The limits of devices on top of the peer and of loopback devices hold, and are separate.
func TestTopologyIsBounded(t *testing.T) {
	var pod []device
	for n := range 10_000 {
		pod = append(pod, device{index: 100 + n, name: fmt.Sprint("d", n), kind: "dummy", nsid: -1})
	}
	pod = append(pod,
		device{index: 2, name: "eth0", kind: "veth", nsid: 0},
		device{index: 3, name: "eth0.7", kind: "vlan", parent: 2, vlan: 7, nsid: -1})
	for n := range 10_000 {
		pod = append(pod, device{index: 20_000 + n, name: fmt.Sprint("m", n), kind: "macvlan", parent: 2, nsid: -1})
	}
	lists := 0
	got, err := readTopology(2, listOf(pod, &lists))
	if err != nil {
		t.Fatal(err)
	}
	if !got.truncated || len(got.paths) > 2*maxDevices || lists > maxLists {
		t.Errorf("truncated %t, %d paths, %d lists", got.truncated, len(got.paths), lists)
	}
	if want := (path{where: OnPeer, outer: 7}); got.paths[3] != want {
		t.Errorf("the VLAN on the peer is reached by %+v, want %+v", got.paths[3], want)
	}
}

// A VLAN device. The kernel of this machine may have none.
func TestParseDevice(t *testing.T) {
	head := nl.NewIfInfomsg(unix.AF_UNSPEC)
	head.Type, head.Index, head.Flags = unix.ARPHRD_ETHER, 42, unix.IFF_UP
	info := nl.NewRtAttr(unix.IFLA_LINKINFO, nil)
	info.AddRtAttr(nl.IFLA_INFO_KIND, nl.NonZeroTerminated("vlan"))
	info.AddRtAttr(nl.IFLA_INFO_DATA, nil).AddRtAttr(nl.IFLA_VLAN_ID, nl.Uint16Attr(4094))
	message := slices.Concat(head.Serialize(),
		nl.NewRtAttr(unix.IFLA_IFNAME, nl.ZeroTerminated("eth0.4094")).Serialize(),
		nl.NewRtAttr(unix.IFLA_LINK, nl.Uint32Attr(2)).Serialize(),
		nl.NewRtAttr(unix.IFLA_MASTER, nl.Uint32Attr(3)).Serialize(),
		info.Serialize())
	want := device{
		name: "eth0.4094", kind: "vlan", index: 42, parent: 2, master: 3, nsid: -1, vlan: 4094,
		flags: unix.IFF_UP, hardware: unix.ARPHRD_ETHER,
	}
	got, ok := parseDevice(message)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(device{})); !ok || diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	// A message that is cut anywhere is read up to the cut.
	for size := range message {
		parseDevice(message[:size])
		parseAddress(message[:size])
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte{})
	f.Add(make([]byte, 64))
	f.Fuzz(func(_ *testing.T, message []byte) {
		parseDevice(message)
		parseAddress(message)
		parseLocalRoute(message)
	})
}
