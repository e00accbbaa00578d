package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// programs are those at one interface, by the way they are attached. The tests attach
// none of their own, so all are the agent's.
type programs struct {
	Kind         string // of the interface
	TCX, TC, XDP int
	Qdisc        string // "clsact", "ingress" or empty
}

// programsOf lists the programs at every interface of a node. A kernel without tcx has no tcx
// programs.
func programsOf(t testing.TB, n *lab.Node) (map[string]programs, error) {
	found := make(map[string]programs)
	var tcxSides []ebpf.AttachType
	if hasTCX(t) {
		tcxSides = []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress}
	}
	err := n.Exec(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			var p programs
			attrs := l.Attrs()
			p.Kind = l.Type()
			if attrs.Xdp != nil && attrs.Xdp.Attached {
				p.XDP = 1
			}
			for _, side := range tcxSides {
				result, err := link.QueryPrograms(link.QueryOptions{Target: attrs.Index, Attach: side})
				if err != nil {
					return fmt.Errorf("query tcx programs of %s: %w", attrs.Name, err)
				}
				p.TCX += len(result.Programs)
			}
			qdiscs, err := netlink.QdiscList(l)
			if err != nil {
				return fmt.Errorf("list qdiscs of %s: %w", attrs.Name, err)
			}
			for _, q := range qdiscs {
				if q.Type() == "clsact" || q.Type() == "ingress" {
					p.Qdisc = q.Type()
				}
			}
			for _, parent := range []uint32{netlink.HANDLE_MIN_INGRESS, netlink.HANDLE_MIN_EGRESS} {
				filters, err := netlink.FilterList(l, parent)
				if err != nil {
					return fmt.Errorf("list filters of %s: %w", attrs.Name, err)
				}
				p.TC += len(filters)
			}
			found[attrs.Name] = p
		}
		return nil
	})
	return found, err
}

// uplink is the node's own interface. It is a veth here, too, and no pod is behind it.
const uplink = "eth0"

// wantPrograms waits until the pods' interfaces have just these programs, and the node's
// others none.
func wantPrograms(t *lab.T, n *lab.Node, when string, want programs) {
	t.Helper()
	t.Eventually(when, func() error {
		found, err := programsOf(t, n)
		if err != nil {
			return err
		}
		for name, got := range found {
			expected := programs{Kind: got.Kind}
			if got.Kind == "veth" && name != uplink {
				expected = want
				expected.Kind = got.Kind
			}
			if got != expected {
				return fmt.Errorf("programs at %s: got %+v, want %+v", name, got, expected)
			}
		}
		return nil
	})
}

// pinned lists what is in the BPF filesystem, where an agent must leave nothing.
func pinned(t *lab.T) []string {
	t.Helper()
	var all []string
	t.Do(filepath.WalkDir("/sys/fs/bpf", func(path string, _ fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		all = append(all, path)
		return err
	}))
	return all
}

// addClsact gives every pod's interface a clsact qdisc.
func addClsact(n *lab.Node) error {
	links, err := n.Netlink().LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		if l.Type() != "veth" || l.Attrs().Name == uplink {
			continue
		}
		if err := n.Netlink().QdiscAdd(clsact(l.Attrs().Index)); err != nil {
			return fmt.Errorf("add clsact to %s: %w", l.Attrs().Name, err)
		}
	}
	return nil
}

func clsact(ifindex int) netlink.Qdisc { return ingressQdisc(ifindex, "clsact") }

// ingressQdisc is a qdisc of the kind "clsact" or "ingress".
func ingressQdisc(ifindex int, kind string) netlink.Qdisc {
	return &netlink.GenericQdisc{
		QdiscAttrs: netlink.QdiscAttrs{
			LinkIndex: ifindex,
			Handle:    netlink.MakeHandle(0xffff, 0),
			Parent:    netlink.HANDLE_CLSACT,
		},
		QdiscType: kind,
	}
}

// hasTCX returns whether this kernel must have tcx.
func hasTCX(t testing.TB) bool {
	t.Helper()
	version, err := features.LinuxVersionCode()
	if err != nil {
		t.Fatal(err)
	}
	return version >= 6<<16|6<<8
}
