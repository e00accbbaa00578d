package links

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
)

var (
	errUnreachable = errors.New("no path leads to the netns")
	podMAC         = net.HardwareAddr{2, 0, 0, 0, 0, 7}
)

// harness is a table whose kernel the test simulates: it calls methods that report what the kernel would,
// and compares the events of the table.
type harness struct {
	*table
	now       time.Time
	reachable map[int]bool // netns ids that a path leads to
	signs     uplinkSigns
	// signsErr is the error of reading the signs of uplinks.
	signsErr error
	ignored  string // a prefix of names
}

func newHarness(t *testing.T) *harness {
	h := &harness{now: time.Unix(1000, 0), reachable: make(map[int]bool)}
	ignore := func(name string) bool { return h.ignored != "" && strings.HasPrefix(name, h.ignored) }
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	h.table = newTable(log, ignore, func(nsid int) bool { return h.reachable[nsid] })
	h.table.signs = func() (uplinkSigns, error) { return h.signs, h.signsErr }
	return h
}

// pod returns the link message of a veth with the index 7, after changes.
func pod(change ...func(*netlink.LinkAttrs)) netlink.Link {
	veth := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{
		Name: "pod7", Index: 7, NetNsID: 3, ParentIndex: 2, HardwareAddr: podMAC, OperState: netlink.OperUp,
	}}
	for _, c := range change {
		c(&veth.LinkAttrs)
	}
	return veth
}

func bridge(index int, name string, filters bool) netlink.Link {
	return &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name, Index: index, NetNsID: -1}, VlanFiltering: &filters}
}

func named(name string) func(*netlink.LinkAttrs) {
	return func(a *netlink.LinkAttrs) { a.Name = name }
}

// event simulates RTM_NEWLINK.
func (h *harness) event(link netlink.Link) {
	var update netlink.LinkUpdate
	update.Header.Type, update.Link, update.Index = unix.RTM_NEWLINK, link, int32(link.Attrs().Index)
	h.handle(update, h.now)
}

// deleted simulates RTM_DELLINK. With AF_BRIDGE it means that the device left its bridge.
func (h *harness) deleted(index int, family uint8) {
	var update netlink.LinkUpdate
	update.Header.Type, update.Family, update.Index, update.Link = unix.RTM_DELLINK, family, int32(index), pod()
	h.handle(update, h.now)
}

// setPodState simulates the result of attaching to the veth.
func (h *harness) setPodState(state State) { h.setState(h.veths[7], state, "", h.now) }

// addPod simulates a new veth and the result of attaching to it.
func (h *harness) addPod(state State) {
	h.event(pod())
	h.setPodState(state)
}

// scanFinds simulates a scan that finds a peer with this name.
func (h *harness) scanFinds(peer string) {
	h.reachable[3] = true
	h.scanned(h.veths[7], netns.Ref{Inode: 33}, netns.View{Peer: peer}, nil, h.now)
}

// scanFails simulates a scan that fails.
func (h *harness) scanFails() {
	h.scanned(h.veths[7], netns.Ref{}, netns.View{}, errUnreachable, h.now)
}

// failScans simulates failed scans of a netns that no path leads to, until the veth is unseen.
func (h *harness) failScans() {
	delete(h.reachable, 3)
	for range unseenAfter {
		h.scanFails()
	}
}

func (h *harness) classifyAll() {
	for _, veth := range h.veths {
		h.classify(veth, h.now)
	}
}

// readPorts reads the VLANs that are due.
func (h *harness) readPorts(list func() (portList, error)) {
	h.table.readPorts(h.portsDue(h.now), h.now, list)
}

// report describes the events since the last call, and lists the veths that are not observed. "detach"
// is a Removed event of a veth that the agent does not know.
func (h *harness) report() []string {
	var all []string
	for _, e := range h.events {
		i := e.Interface
		text := map[EventKind]string{Added: "added", Changed: "changed", Removed: "removed"}[e.Kind]
		switch {
		case e.Kind == Removed && i.FirstName == "":
			text = "detach"
		case e.Kind == Removed:
			text += ": " + e.Reason
		default:
			text += fmt.Sprintf(" %s gen%d %s", i.Name, i.Generation, i.State)
			if i.Seen {
				text += " seen"
			}
			if i.View.Peer != "" {
				text += " " + i.View.Peer
			}
			if i.Master != "" {
				text += " on " + i.Master
			}
			if i.PortVLAN != 0 {
				text += fmt.Sprint(" vlan", i.PortVLAN)
			}
			if i.Listed {
				text += " listed"
			}
		}
		all = append(all, text)
	}
	h.events = nil
	for _, i := range h.unobserved() {
		if i.Reason == "" {
			i.Reason = "WITHOUT A REASON"
		}
		all = append(all, fmt.Sprintf("%s is not observed: %s", i.Name, i.State))
	}
	return all
}
