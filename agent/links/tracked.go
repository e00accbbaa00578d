package links

import (
	"bytes"
	"time"

	"github.com/vishvananda/netlink"

	times "github.com/dupip/dupip/internal/schedule"
)

const (
	// quiet is how long a veth must be unchanged before a clsact qdisc is created on it; only in tc mode, and if no CNI result tells that
	// the pod is set up. The bandwidth plugin makes its ingress qdisc up to 75 ms after the last change of the link (measured with ptp
	// before it, also with eight busy loops on two cores), and ADD fails if there is one. Other plugins may run in between, which wait for
	// the lock of iptables or for an API server. A new qdisc is no sign that the set-up is over: the plugin's filter comes next. Where ours
	// was added as soon as the qdisc's event came, 15 of 40 ADDs failed.
	quiet = 3 * time.Second
	// maxQuiets limits the wait for an interface that changes all the time to 5 quiet times.
	maxQuiets = 5
)

// tracked is a veth whose other end is in another netns, or a device that is there and has no end on the node.
type tracked struct {
	iface              Interface
	nsid, peer, master int
	ns                 *namespace // that of a device that has no end on the node, nil for a veth
	found              bool       // its netns was scanned once
	scans              scans
	requested          bool  // that scan, see [Watcher.Refresh]
	resynced           bool  // that scan is due because of a resync alone
	portDue            bool  // the VLAN of its bridge port has to be read, if it is a port
	portAgain          pacer // that has failed
	// attach is due once for a new veth, while it is Waiting, and again when it failed or was detached, which failures counts.
	attach   pacer
	failures int
	tried    bool // to attach
	early    bool // it is observed, but not by a program of its own
	detached bool // by another program
	told     bool // the hook is in use, and an event tells when it is not
	// createFrom is when a qdisc may be created. Changes of the link postpone it until waitUntil.
	createFrom, waitUntil time.Time
	checkDue              bool // qdiscs or filters changed
}

// wait waits until nothing has changed for the time quiet.
func (v *tracked) wait(now time.Time) {
	if next := now.Add(quiet); next.Before(v.waitUntil) {
		v.createFrom = next
	}
	v.attach = pacer{due: true, next: v.createFrom}
}

// waits reports whether a qdisc may not be created yet.
func (v *tracked) waits() bool { return v.iface.State == Waiting || v.early && v.tried }

// settle ends the wait: the pod is set up.
func (v *tracked) settle(now time.Time) {
	v.createFrom, v.waitUntil = now, now
	if v.waits() {
		v.attach.next = now
	}
}

// filtersChanged postpones the attempt to attach to a veth that is Waiting: a pod is being set up. After a failure the
// next one comes soon.
func (v *tracked) filtersChanged(now time.Time) {
	switch state := v.iface.State; {
	case v.waits():
		v.wait(now)
	case state == Failed:
		if v.detached {
			return // what another program does again and again must not make ours as quick
		}
		v.attach.next = times.Earlier(v.attach.next, now.Add(attachRetry))
	}
}

func (v *tracked) observed() bool { return v.iface.State != Ignored && v.iface.State != Uplink }

// attachedBefore reports whether to attach to a veth before another. Those whose two ends are up are
// first: no packet can come from the others, so a pod that takes its end down gains nothing. Of these
// the newest is first, because a pod announces its addresses once, when it starts.
//
// A pod with rights in its netns can make devices there that have no end on the node, but not the node's end of a pair: so they come last.
func (v *tracked) attachedBefore(other *tracked) bool {
	// Of these the oldest is first, so that new ones delay nobody.
	switch {
	case (v.ns != nil) != (other.ns != nil):
		return v.ns == nil
	case v.ns != nil:
		return v.iface.Generation < other.iface.Generation
	}
	if v.iface.Up != other.iface.Up {
		return v.iface.Up
	}
	return v.iface.Generation > other.iface.Generation
}

// announced reports whether the agent got the interface.
func (v *tracked) announced() bool { return v.iface.FirstName != "" }

// changed schedules a scan because of an event.
func (v *tracked) changed() {
	v.resynced = false
	v.rescan()
}

// rescan schedules a scan, unless the interface is ignored.
func (v *tracked) rescan() { v.scans.due = v.iface.State != Ignored }

// update copies the attributes of a link message, and reports whether the agent needs an event.
func (v *tracked) update(attrs *netlink.LinkAttrs, master string) (changed bool) {
	i, up := &v.iface, attrs.OperState == netlink.OperUp
	v.portDue = v.portDue || i.Master != master
	changed = i.Name != attrs.Name || i.Master != master || i.Up != up || !bytes.Equal(i.MAC, attrs.HardwareAddr)
	i.Name, i.Master, i.Up, i.MAC, v.master = attrs.Name, master, up, attrs.HardwareAddr, attrs.MasterIndex
	return changed
}
