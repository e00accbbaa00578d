package e2e

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// soon is how long a duplicate may take after a change that the agent must not find by its resync only.
const soon = 3 * time.Second

// unobserved is a node with an agent, and two pods with other addresses.
type unobserved struct {
	*lab.T
	node         *lab.Node
	older, other *lab.Pod
}

// duplicate gives the other pod the address of the older one.
func (u *unobserved) duplicate() { u.Do(u.other.AddAddr(u.older.Addrs()[0])) }

func (u *unobserved) ifindex(p *lab.Pod) int {
	u.Helper()
	index, err := u.node.Ifindex(p.HostInterface)
	u.Do(err)
	return index
}

// Programs are removed or cannot be attached at first, or what counts as an address of the node changes. An event or a retry repairs that:
// a duplicate is confirmed soon.
func TestNoResyncForAttaching(t *testing.T) {
	for _, test := range []struct {
		name, mode string
		// prepare comes before the agent, whose state of the older pod's interface is then this one.
		prepare func(*unobserved) (change func())
		state   string
	}{
		{"clsact deleted", "tc", func(u *unobserved) func() {
			return func() {
				u.Do(u.node.Netlink().QdiscDel(clsact(u.ifindex(u.older))))
				u.duplicate()
			}
		}, "attached"},
		{"filter deleted", "tc", func(u *unobserved) func() {
			return func() {
				older := &netlink.GenericLink{LinkAttrs: netlink.LinkAttrs{Index: u.ifindex(u.older)}}
				filters, err := u.node.Netlink().FilterList(older, netlink.HANDLE_MIN_INGRESS)
				u.Do(err)
				for _, f := range filters {
					u.Do(u.node.Netlink().FilterDel(f))
				}
				u.duplicate()
			}
		}, "attached"},
		{"first priority taken by a filter that goes", "tc", func(u *unobserved) func() {
			qdisc := ingressQdisc(u.ifindex(u.older), "ingress")
			u.Do(u.node.Netlink().QdiscAdd(qdisc), u.node.Netlink().FilterAdd(u32(u.ifindex(u.older), 1)))
			return func() {
				u.duplicate()
				u.Eventually("deleted", func() error { return u.node.Netlink().QdiscDel(qdisc) }) // EBUSY while a filter is being added
			}
		}, "failed"},
		{"too many programs, one of which goes", "tcx", func(u *unobserved) func() {
			const most = 63 // one less than BPF_MPROG_MAX
			links := make([]link.Link, most)
			for i := range links {
				program := newForeign(u.T, unspecified).program
				u.Do(u.node.Exec(func() (err error) {
					links[i], err = link.AttachTCX(link.TCXOptions{Interface: u.ifindex(u.older), Program: program, Attach: ebpf.AttachTCXIngress})
					return err
				}))
				u.Cleanup(func() { _ = links[i].Close() })
			}
			return func() {
				u.duplicate()
				u.Do(links[0].Close())
			}
		}, "failed"},
		{"another program, which goes", "xdp", func(u *unobserved) func() {
			foreign, err := ebpf.NewProgram(&ebpf.ProgramSpec{
				Type: ebpf.XDP, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 2), asm.Return()}, // XDP_PASS
			})
			u.Do(err)
			u.Cleanup(func() { _ = foreign.Close() })
			var attached link.Link
			u.Do(u.node.Exec(func() error {
				attached, err = link.AttachXDP(link.XDPOptions{Interface: u.ifindex(u.older), Program: foreign})
				return err
			}))
			u.Cleanup(func() { _ = attached.Close() })
			return func() {
				u.duplicate()
				u.Do(attached.Close())
			}
		}, "failed"},
		{"source of the default route", "auto", func(u *unobserved) func() {
			u.Do(u.node.AddAddr("lo", netip.PrefixFrom(u.older.Addrs()[0], 32)))
			return func() {
				u.Do(u.node.Exec(func() error {
					routes, err := netlink.RouteListFiltered(netlink.FAMILY_V4, &netlink.Route{}, netlink.RT_FILTER_DST)
					for _, r := range routes {
						r.Src = u.older.Addrs()[0].AsSlice()
						err = netlink.RouteReplace(&r)
					}
					if len(routes) != 1 {
						err = fmt.Errorf("%d default routes", len(routes))
					}
					return err
				}))
			}
		}, "attached"},
		{"veth made again", "auto", func(u *unobserved) func() {
			return func() {
				u.Do(u.older.DeleteLink())
				o := u.older.Options()
				_, err := u.older.AddInterface(o)
				u.Do(err)
				u.duplicate()
			}
		}, "attached"},
	} {
		t.Run(test.mode+": "+test.name, func(t *testing.T) {
			t.Parallel()
			if test.mode == "tcx" && !hasTCX(t) {
				t.Skip("this kernel has no tcx")
			}
			l := lab.NewT(t)
			n := l.Node("")
			u := &unobserved{T: l, node: n}
			u.older = l.Pod(n, "older", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(5)}})
			u.other = l.Pod(n, "other", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(6)}})
			change := test.prepare(u)
			a := l.Agent(n, "--attach", test.mode)
			w := l.Watch(a)
			l.Eventually("the other interface", func() error { return wantInterface(l, a, u.other.HostInterface, "attached", "") })
			l.Eventually("the older interface", func() error { return wantInterface(l, a, u.older.HostInterface, test.state, "") })
			began := time.Now()
			change()
			confirmed, err := w.WaitConfirmed(u.older.Addrs()[0], lab.Patience(soon))
			l.Do(err)
			t.Logf("confirmed after %.1f s", confirmed.Received.Sub(began).Seconds())
		})
	}
}
