// Package coretest has what tests of the core and of the agent's loop feed them with.
package coretest

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Added is the event of the watcher for a pod's eth0 that has these addresses. Its generation is its index.
func Added(t *testing.T, index int, cookie uint64, taken time.Time, ips ...string) links.Event {
	t.Helper()
	info, err := os.Stat("/proc/self/ns/net") // always exists
	if err != nil {
		t.Fatal(err)
	}
	link := &links.Interface{
		Name: "veth", Index: index, Generation: uint32(index), Up: true, State: links.Attached, Seen: true,
		View:  netns.View{Cookie: cookie, Peer: books.DefaultInterface, Taken: taken},
		Netns: netns.Ref{Path: "/proc/self/ns/net", Inode: info.Sys().(*syscall.Stat_t).Ino},
	}
	for _, ip := range ips {
		link.View.Addresses = append(link.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	return links.Event{Kind: links.Added, Interface: link}
}

// Seen is the record of a packet that a pod has sent.
func Seen(i *observe.Interface, kind bpf.Kind, ip string, at time.Time) bpf.Record {
	return bpf.Record{
		Address: bpf.Address{Ifindex: i.Ref.Ifindex, Generation: i.Ref.Generation, IP: netip.MustParseAddr(ip)},
		Time:    at.Sub(observe.TimeOf(0)), Kind: kind, MAC: [6]byte{2},
	}
}

// Sender counts the probes that it is to send.
type Sender int

// Send implements [probe.Sender].
func (s *Sender) Send(probe.Target) error {
	*s++
	return nil
}

// Parts are options of parts without kernel.
func Parts(sender *Sender) (observe.Options, probe.Options) {
	return observe.Options{
		Host:      detector.HolderID{Node: "n/b", Netns: 1},
		Pod:       func(uint64) (pods.Change, bool) { return pods.Change{}, false },
		ByHostEnd: func(string) (pods.Change, bool) { return pods.Change{}, false },
		Leads:     func(*links.Interface, netip.Addr) bool { return false },
		Rescan:    func(uint32) {},
		Counters:  func(int) (bpf.Counters, error) { return bpf.Counters{}, errors.New("not attached") },
		Watch:     func(int) (io.Closer, error) { return nil, errors.New("not attached") },
	}, probe.Options{Sender: sender, Source: [3]byte{2, 0xd0, 1}, Rescan: func(uint32) {}}
}
