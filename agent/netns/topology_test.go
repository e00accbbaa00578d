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
func listOf(devices []Device, lists *int) func(func(), func(Device)) error {
	return func(begin func(), each func(Device)) error {
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
	pod := []Device{
		{Index: 1, Name: "lo", nsid: -1},
		{Index: 2, Name: "eth0", Kind: "veth", nsid: 0, Parent: 77, master: 3},
		{Index: 3, Name: "br0", Kind: "bridge", nsid: -1},
		{Index: 4, Name: "br0.100", Kind: "vlan", Parent: 3, VLAN: 100, nsid: -1},
		{Index: 5, Name: "br0.100.7", Kind: "vlan", Parent: 4, VLAN: 7, nsid: -1},
		{Index: 6, Name: "mv0", Kind: "macvlan", Parent: 5, nsid: -1},
		{Index: 7, Name: "too.high", Kind: "vlan", Parent: 5, VLAN: 8, nsid: -1},
		{Index: 8, Name: "docker0", Kind: "bridge", nsid: -1},
		{Index: 9, Name: "docker0.9", Kind: "vlan", Parent: 8, VLAN: 9, nsid: -1},
		{Index: 10, Name: "dummy0", Kind: "dummy", nsid: -1},
		{Index: 11, Name: "other", Kind: "vlan", Parent: 2, VLAN: 9, nsid: 5},
		{Index: 12, Name: "br0.300", Kind: "vlan", Parent: 3, VLAN: 300, nsid: -1, master: 13},
		{Index: 13, Name: "br300", Kind: "bridge", nsid: -1},
		{Index: 14, Name: "mv300", Kind: "macvlan", Parent: 13, nsid: -1},
		{Index: 15, Name: "tap0", Kind: "tun", nsid: -1, master: 3},
		{Index: 16, Name: "kube-ipvs0", Kind: "dummy", nsid: -1},
		{Index: 17, Name: "eth0.400", Kind: "vlan", Parent: 2, VLAN: 400, nsid: -1, master: 3},
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
	var pod []Device
	for n := range 10_000 {
		pod = append(pod, Device{Index: 100 + n, Name: fmt.Sprint("d", n), Kind: "dummy", nsid: -1})
	}
	pod = append(pod,
		Device{Index: 2, Name: "eth0", Kind: "veth", nsid: 0},
		Device{Index: 3, Name: "eth0.7", Kind: "vlan", Parent: 2, VLAN: 7, nsid: -1})
	for n := range 10_000 {
		pod = append(pod, Device{Index: 20_000 + n, Name: fmt.Sprint("m", n), Kind: "macvlan", Parent: 2, nsid: -1})
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
	want := Device{
		Name: "eth0.4094", Kind: "vlan", Index: 42, Parent: 2, master: 3, nsid: -1, VLAN: 4094,
		Up: true, hardware: unix.ARPHRD_ETHER,
	}
	got, ok := parseDevice(message)
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(Device{})); !ok || diff != "" {
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
