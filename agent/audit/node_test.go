package audit

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// node is a table of interfaces and the bindings behind them.
type node struct {
	*observe.Table
	names    map[uint64]pods.Change
	bindings []detector.Binding
}

func newNode(t *testing.T) *node {
	n := &node{names: make(map[uint64]pods.Change)}
	n.Table = observe.New(observe.Options{
		Log: slog.New(slog.DiscardHandler), Host: detector.HolderID{Node: "n/", Netns: 1},
		Asked: func([6]byte) (detector.HolderID, time.Time, bool) { return detector.HolderID{}, time.Time{}, false },
		Pod: func(cookie uint64) (pods.Change, bool) {
			change, ok := n.names[cookie]
			return change, ok
		},
		ByHostEnd: func(string) (pods.Change, bool) { return pods.Change{}, false },
		Leads:     func(*links.Interface, netip.Addr) bool { return false },
		Rescan:    func(uint32) {},
		Bindings:  func(func(*detector.Binding) bool) []detector.Binding { return nil },
	})
	c, err := config.Parse(nil)
	if err != nil {
		t.Fatal(err)
	}
	n.Configure(c, time.Now())
	return n
}

// add adds the interface of a pod, which has the addresses.
func (n *node) add(index int, sandbox string, result *books.Result, ips ...string) *observe.Interface {
	l := &links.Interface{
		Name: fmt.Sprint("veth", index), FirstName: fmt.Sprint("veth", index), Index: index, Generation: uint32(index), Up: true,
		State: links.Attached, Seen: true, View: netns.View{Cookie: uint64(index), Peer: "eth0", Taken: time.Now()},
		Netns: netns.Ref{Name: fmt.Sprint("cni-", index)},
	}
	for _, ip := range ips {
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	n.names[l.View.Cookie] = pods.Change{
		Cookie: l.View.Cookie, Pod: detector.Pod{Namespace: "shop", Name: fmt.Sprint("pod", index)}, Sandbox: detector.Sandbox{ID: sandbox}, Result: result,
	}
	i, _ := n.Update(links.Event{Kind: links.Added, Interface: l}, time.Now())
	return i
}

func (n *node) binds(i *observe.Interface, ip string, evidence detector.Evidence, given detector.Given) {
	h := i.Describe([6]byte{2, 1})
	h.Given = given
	n.bindings = append(n.bindings, detector.Binding{Key: detector.Key{Network: "default", IP: netip.MustParseAddr(ip)}, Holder: h, Evidence: evidence})
}

func (n *node) text() string {
	of := NodeOf(n.Table, func(each func(detector.Key, *detector.Holder, detector.Evidence)) {
		for _, b := range n.bindings {
			each(b.Key, &b.Holder, b.Evidence)
		}
	})
	var list []string
	for _, l := range of.Live {
		text := fmt.Sprintf("%s %s %s %s %q %q", l.IP, l.Interface, l.Pod.Name, l.Netns, l.Sandbox, l.Network)
		if l.Drill {
			text += " drill"
		}
		if l.Secondary {
			text += " secondary"
		}
		list = append(list, text)
	}
	slices.Sort(list)
	for _, ip := range slices.SortedFunc(maps.Keys(of.Foreign), netip.Addr.Compare) {
		list = append(list, "foreign "+ip.String())
	}
	if of.Hidden != "" {
		list = append(list, "hidden "+of.Hidden)
	}
	return strings.Join(list, ", ")
}

func TestNodeOf(t *testing.T) {
	const ip, sandbox = "10.1.2.5", "0123456789abc"
	own := &books.Result{HostEnds: []string{"veth7"}, Network: "pods"}
	const live = `10.1.2.5 veth7 pod7 cni-7 "0123456789abc" "pods"`
	for name, test := range map[string]struct {
		make func(n *node)
		want string
	}{
		"nothing": {func(*node) {}, ""},
		"a pod":   {func(n *node) { n.binds(n.add(7, sandbox, own, ip), ip, detector.Announced, detector.GivenYes) }, live},
		"its data packets only": {
			func(n *node) { n.binds(n.add(7, sandbox, own, ip), ip, detector.Data, detector.GivenUnknown) }, live,
		},
		"a pod that has not answered lately": {func(n *node) { n.add(7, sandbox, own, ip) }, live},
		"it forwards for others": {
			func(n *node) { n.binds(n.add(7, sandbox, own), ip, detector.Forwarded, detector.GivenYes) }, "",
		},
		"the node itself": {func(n *node) { n.binds(n.add(7, sandbox, own), ip, detector.Host, detector.GivenYes) }, ""},
		"an address with a lifetime, in doubt, or on another device": {func(n *node) {
			l := *n.add(7, sandbox, own, ip, "10.1.2.6", "10.1.2.7", "10.1.2.8").Interface
			l.View.Addresses = slices.Clone(l.View.Addresses)
			l.View.Addresses[1].Dynamic, l.View.Addresses[2].Valid, l.View.Addresses[3].Where = true, false, netns.Elsewhere
			n.Update(links.Event{Kind: links.Changed, Interface: &l}, time.Now())
		}, live},
		"it claims the address": {
			func(n *node) { n.binds(n.add(7, sandbox, own, ip), ip, detector.Claimed, detector.GivenUnknown) }, live,
		},
		"an address that its kernel does not list": {
			func(n *node) { n.binds(n.add(7, sandbox, own), ip, detector.Announced, detector.GivenUnknown) }, "",
		},
		"a guest has the address that the pod was given": {
			func(n *node) { n.binds(n.add(7, sandbox, own), ip, detector.Announced, detector.GivenYes) }, live,
		},
		"by hand": {
			func(n *node) { n.binds(n.add(7, sandbox, own, ip), ip, detector.Announced, detector.GivenNo) }, live,
		},
		"a drill": {
			func(n *node) {
				n.binds(n.add(7, sandbox, own, ip, "192.0.2.7"), "192.0.2.7", detector.Announced, detector.GivenNo)
			}, live + `, 192.0.2.7 veth7 pod7 cni-7 "0123456789abc" "pods" drill`,
		},
		"a secondary interface": {
			func(n *node) {
				n.binds(n.add(7, sandbox, &books.Result{HostEnds: []string{"veth9"}, Network: "pods"}, ip), ip, detector.Announced, detector.GivenUnknown)
			},
			`10.1.2.5 veth7 pod7 cni-7 "0123456789abc" "" secondary`,
		},
		"no result": {
			func(n *node) { n.binds(n.add(7, sandbox, nil, ip), ip, detector.Announced, detector.GivenUnknown) },
			`10.1.2.5 veth7 pod7 cni-7 "0123456789abc" ""`,
		},
		"a pod of another runtime": {
			func(n *node) { n.binds(n.add(7, "", own, ip), ip, detector.Announced, detector.GivenYes) },
			`10.1.2.5 veth7 pod7 cni-7 "" "pods", foreign 10.1.2.5`,
		},
		"another runtime's pod that is silent": {func(n *node) { n.add(7, "", nil, ip) }, `10.1.2.5 veth7 pod7 cni-7 "" "", foreign 10.1.2.5`},
		"another runtime's guest": {
			func(n *node) { n.binds(n.add(7, "", nil), ip, detector.Announced, detector.GivenUnknown) }, "foreign 10.1.2.5",
		},
		"a netns that is not seen": {
			func(n *node) {
				i := n.add(7, sandbox, own, ip)
				gone := *i.Interface
				gone.Seen, gone.View, gone.Netns = false, netns.View{}, netns.Ref{}
				n.Update(links.Event{Kind: links.Changed, Interface: &gone}, time.Now())
			}, "hidden veth7",
		},
		"a binding of an earlier netns": {
			func(n *node) {
				n.binds(n.add(7, sandbox, own), ip, detector.Announced, detector.GivenYes)
				n.bindings[0].Holder.ID.Netns = 8
			}, "",
		},
		"a binding of an interface that is gone": {
			func(n *node) {
				i := n.add(7, sandbox, own, ip)
				n.binds(i, ip, detector.Announced, detector.GivenYes)
				n.Update(links.Event{Kind: links.Removed, Interface: i.Interface}, time.Now())
			}, "",
		},
		"an interface that cannot be observed": {
			func(n *node) {
				n.Update(links.Event{Kind: links.Unobserved, Unobserved: []links.Interface{{Name: "nk0", State: links.Unsupported}}}, time.Now())
			}, "hidden nk0",
		},
		"an uplink": {
			func(n *node) {
				n.Update(links.Event{Kind: links.Unobserved, Unobserved: []links.Interface{{Name: "eth0", State: links.Uplink}}}, time.Now())
			}, "",
		},
	} {
		n := newNode(t)
		test.make(n)
		if got := n.text(); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
