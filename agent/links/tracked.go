package links

import (
	"bytes"

	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// tracked is a veth into another netns. With the state Ignored or Uplink it is not observed.
type tracked struct {
	iface              Interface
	nsid, peer, master int
	firstPeer          string // the name that the peer had at first, empty before the first scan
	scans              scans
	portDue            bool // the VLAN of its port has to be read, if it is one
	// attach is due once for a new veth, and while it is Waiting: what happens to the link
	// puts that off, but not beyond attachUntil.
	attach      pacer
	attachUntil time.Time
}

func (v *tracked) observed() bool { return v.iface.State != Ignored && v.iface.State != Uplink }

// announced says whether the agent knows of the interface.
func (v *tracked) announced() bool { return v.iface.FirstName != "" }

// rescan asks for a scan. What is ignored is left alone.
func (v *tracked) rescan() { v.scans.due = v.iface.State != Ignored }

// isPort says whether the VLAN of its port matters: secondary interfaces of several networks
// may be ports of one bridge, and told apart by nothing else; the primary ones are all in one
// network.
func (v *tracked) isPort() bool { return v.firstPeer != PrimaryPeer && v.iface.Master != "" }

// update copies what a link message says, and reports whether the agent has to know of it.
func (v *tracked) update(attrs *netlink.LinkAttrs, master string) (changed bool) {
	i, up := &v.iface, attrs.OperState == netlink.OperUp
	v.portDue = v.portDue || i.Master != master
	changed = i.Name != attrs.Name || i.Master != master || i.Up != up || !bytes.Equal(i.MAC, attrs.HardwareAddr)
	i.Name, i.Master, i.Up, i.MAC, v.master = attrs.Name, master, up, attrs.HardwareAddr, attrs.MasterIndex
	return changed
}

// seen records what a scan found.
func (v *tracked) seen(place netns.Place, view netns.View) {
	if v.firstPeer == "" {
		v.firstPeer = firstName(view.Peer)
	}
	view.Peer = v.firstPeer
	v.iface.Seen, v.iface.Place, v.iface.View = true, place, view
	if !v.isPort() {
		v.portDue, v.iface.PortVLAN = false, 0
	}
}

// unseen records that nothing leads to the netns. The name of the peer stays: the interface
// is in the network that it was in.
func (v *tracked) unseen() {
	v.iface.Seen, v.iface.Place, v.iface.View = false, netns.Place{}, netns.View{Peer: v.firstPeer}
}
