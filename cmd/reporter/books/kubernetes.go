package books

import (
	"net/netip"
	"net/url"
	"slices"
	"time"
	"unique"
)

// pod is what is kept of a Pod that has not ended.
type pod struct {
	name, uid, node string // name is "namespace/name"
	addresses       []netip.Addr
	created         time.Time
	ending          bool // it was deleted, and may still run
	mirror          bool // of a static pod: the kubelet's UID of it is another one
	ready           bool
}

// isAs reports whether a Pod is as another one, nil for none.
func (p *pod) isAs(o *pod) bool {
	return o != nil && p.uid == o.uid && p.node == o.node && p.created.Equal(o.created) && p.ending == o.ending && p.mirror == o.mirror && p.ready == o.ready &&
		slices.Equal(p.addresses, o.addresses)
}

// pods are the Pods that have addresses of their own.
type pods struct {
	*source
	byName map[string]*pod
	byIP   map[netip.Addr][]*pod
}

func newPods() *pods {
	p := &pods{byName: make(map[string]*pod), byIP: make(map[netip.Addr][]*pod)}
	p.source = newSource("pods", []string{"/api/v1/pods"}, p.take, p.drop)
	p.query = url.Values{"fieldSelector": {"status.phase!=Succeeded,status.phase!=Failed"}}
	return p
}

// podObject is what is read of a Pod.
type podObject struct {
	object
	Spec struct {
		NodeName    string
		HostNetwork bool
	}
	Status struct {
		Phase      string
		PodIPs     []struct{ IP string }
		Conditions []struct{ Type, Status string }
	}
}

func (p *pods) take(o *podObject) (int, error) {
	old := p.byName[o.key()]
	p.drop(o.key())
	if o.Status.Phase == "Succeeded" || o.Status.Phase == "Failed" { // it was read again, and has left what is watched
		return 0, nil
	}
	made := &pod{
		name: o.key(), uid: o.Metadata.UID, node: unique.Make(o.Spec.NodeName).Value(), created: o.Metadata.CreationTimestamp,
		ending: !o.Metadata.DeletionTimestamp.IsZero(), mirror: o.Metadata.Annotations["kubernetes.io/config.mirror"] != "",
	}
	for _, c := range o.Status.Conditions {
		made.ready = made.ready || c.Type == "Ready" && c.Status == "True"
	}
	if !o.Spec.HostNetwork {
		for _, a := range o.Status.PodIPs[:min(len(o.Status.PodIPs), 2)] { // of each family
			if ip, err := netip.ParseAddr(a.IP); err == nil {
				made.addresses = append(made.addresses, ip.Unmap())
			}
		}
	}
	p.byName[made.name], p.same = made, made.isAs(old)
	for _, ip := range made.addresses {
		p.byIP[ip] = append(p.byIP[ip], made)
	}
	return len(made.addresses), nil
}

func (p *pods) drop(name string) {
	old := p.byName[name]
	if old == nil {
		return
	}
	delete(p.byName, name)
	for _, ip := range old.addresses {
		if p.byIP[ip] = slices.DeleteFunc(p.byIP[ip], func(o *pod) bool { return o == old }); len(p.byIP[ip]) == 0 {
			delete(p.byIP, ip)
		}
	}
}

// of returns the Pod of a holder, nil if there is none.
func (p *pods) of(h *held) *pod {
	if made := p.byName[h.pod]; made != nil && (made.uid == h.uid || h.uid == "" || made.mirror && made.node == h.node) {
		return made
	}
	return nil
}

// lives reports whether a Pod is there and was not deleted.
func (p *pods) lives(name string) bool {
	made := p.byName[name]
	return made != nil && !made.ending
}

// node is what is kept of a Node.
type node struct {
	uid    string
	ranges []netip.Prefix // podCIDRs
}

// nodes are the Nodes.
type nodes struct {
	*source
	byName map[string]node
	// deleted is when those were deleted that a watch has seen deleted.
	deleted map[string]time.Time
}

func newNodes() *nodes {
	n := &nodes{byName: make(map[string]node), deleted: make(map[string]time.Time)}
	n.source = newSource("nodes", []string{"/api/v1/nodes"}, n.take, n.drop)
	return n
}

// nodeObject is what is read of a Node.
type nodeObject struct {
	object
	Spec struct{ PodCIDRs []string }
}

func (n *nodes) take(o *nodeObject) (int, error) {
	made := node{uid: o.Metadata.UID}
	for _, text := range o.Spec.PodCIDRs[:min(len(o.Spec.PodCIDRs), 2)] {
		if p, err := netip.ParsePrefix(text); err == nil {
			made.ranges = append(made.ranges, p.Masked())
		}
	}
	old, known := n.byName[o.key()]
	n.byName[o.key()], n.same = made, known && old.uid == made.uid && slices.Equal(old.ranges, made.ranges)
	delete(n.deleted, o.key())
	return 1, nil
}

func (n *nodes) drop(name string) {
	if _, known := n.byName[name]; !known {
		return
	}
	delete(n.byName, name)
	if len(n.deleted) >= maxDeleted {
		clear(n.deleted) // the comparison begins with those of which agents are there
	}
	n.deleted[name] = time.Now().Round(0)
}

// maxDeleted bounds the Nodes of which it is known when they were deleted.
const maxDeleted = 4096
