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
	errHidden = errors.New("nothing leads to it")
	podMAC    = net.HardwareAddr{2, 0, 0, 0, 0, 7}
)

// play is a table for which the test simulates the kernel.
type play struct {
	*table
	now   time.Time
	found map[int]bool
	signs uplinkSigns
	// signsErr is the error of reading the signs of uplinks.
	signsErr error
	ignored  string // a prefix of names
}

func newPlay(t *testing.T) *play {
	p := &play{now: time.Unix(1000, 0), found: make(map[int]bool)}
	ignore := func(name string) bool { return p.ignored != "" && strings.HasPrefix(name, p.ignored) }
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	p.table = newTable(log, 3*time.Second, ignore, func(nsid int) bool { return p.found[nsid] })
	p.table.signs = func() (uplinkSigns, error) { return p.signs, p.signsErr }
	return p
}

// pod is the link message of a veth with the index 7, with changes.
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

func (p *play) event(link netlink.Link) {
	var update netlink.LinkUpdate
	update.Header.Type, update.Link, update.Index = unix.RTM_NEWLINK, link, int32(link.Attrs().Index)
	p.handle(update, p.now)
}

func (p *play) deleted(index int, family uint8) {
	var update netlink.LinkUpdate
	update.Header.Type, update.Family, update.Index = unix.RTM_DELLINK, family, int32(index)
	p.handle(update, p.now)
}

func (p *play) attachedAs(state State) { p.setState(p.veths[7], state, "", p.now) }

// follow adds the veth and attaches to it.
func (p *play) follow(state State) {
	p.event(pod())
	p.attachedAs(state)
}

// scan simulates one scan, which finds a peer of that name, or nothing.
func (p *play) scan(peer string) {
	if peer == "" {
		p.scanned(p.veths[7], netns.Ref{}, netns.View{}, errHidden, p.now)
		return
	}
	p.found[3] = true
	p.scanned(p.veths[7], netns.Ref{Inode: 33}, netns.View{Peer: peer}, nil, p.now)
}

// hide simulates failed scans until the veth is unseen.
func (p *play) hide() {
	delete(p.found, 3)
	for range unseenAfter {
		p.scan("")
	}
}

func (p *play) classifyAll() {
	for _, veth := range p.veths {
		p.classify(veth, p.now)
	}
}

// readPorts reads the VLANs that are due.
func (p *play) readPorts(list func() (portList, error)) { p.table.readPorts(p.portsDue(), list) }

// report describes and clears the events so far, and lists what is not observed.
func (p *play) report() []string {
	var all []string
	for _, e := range p.events {
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
	p.events = nil
	for _, i := range p.unobserved() {
		if i.Reason == "" {
			i.Reason = "WITHOUT A REASON"
		}
		all = append(all, fmt.Sprintf("%s is not observed: %s", i.Name, i.State))
	}
	return all
}
