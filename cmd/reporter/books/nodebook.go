package books

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
)

// nodeBook is a book that has an object for each node, with the name of the Node: with the addresses and ranges that the node gives out. It
// never ranks the holders of an address, because what an object says of pods comes late or is missing.
type nodeBook struct {
	*source
	ranges
	keys map[string]string // of the objects, by node
	uids map[string]string // of the Nodes that the objects belong to
	pods map[string][]Reservation
}

// nodeAddresses is what an object says of its node.
type nodeAddresses struct {
	ranges []string
	// pods are "namespace/name" by address, if the object has them.
	pods map[netip.Addr]string
}

// newNodeBook returns a book of such objects, of which read reads one.
func newNodeBook[T any, P kind[T]](resource, path string, read func(P) nodeAddresses) *ipam {
	n := &nodeBook{keys: make(map[string]string), uids: make(map[string]string), pods: make(map[string][]Reservation)}
	n.source = newSource(resource, []string{path + resource}, func(o P) (int, error) { return n.take(o.meta(), read(o)) }, n.forget)
	return &ipam{format: n, nodes: n, sources: []*source{n.source}, primary: true}
}

func (n *nodeBook) take(o *object, made nodeAddresses) (int, error) {
	var list []netip.Prefix
	for _, text := range made.ranges {
		p, err := parseRange(text, nodeWidest4, nodeWidest6)
		if err != nil {
			return 0, err
		}
		list = append(list, p)
	}
	n.forget(o.key())
	node := o.Metadata.Name
	n.keys[node] = o.key()
	n.set(node, list)
	for ip, pod := range made.pods {
		n.pods[node] = append(n.pods[node], Reservation{IP: ip, Pod: pod, Node: node})
	}
	for _, owner := range o.Metadata.OwnerReferences {
		if owner.Kind == "Node" && owner.Name == node && isName(owner.UID) {
			n.uids[node] = owner.UID
		}
	}
	return len(n.byOwner[node]) + len(n.pods[node]), nil
}

func (n *nodeBook) forget(key string) {
	node := lastOf(key)
	n.set(node, nil)
	delete(n.keys, node)
	delete(n.uids, node)
	delete(n.pods, node)
}

// nodeOf returns the only node that an address is of, empty if there is none, or if there are several.
func (n *nodeBook) nodeOf(ip netip.Addr) (node string) {
	for owner := range n.of(ip) {
		if node != "" && node != owner {
			return ""
		}
		node = owner
	}
	return node
}

// gives reports whether the object of a node has an address. Objects of other nodes may have it, too.
func (n *nodeBook) gives(node string, ip netip.Addr) bool {
	return slices.ContainsFunc(n.byOwner[node], func(p netip.Prefix) bool { return p.Contains(ip) })
}

func (n *nodeBook) reservations() iter.Seq[Reservation] {
	return func(yield func(Reservation) bool) {
		for _, list := range n.pods {
			if slices.ContainsFunc(list, func(r Reservation) bool { return !yield(r) }) {
				return
			}
		}
	}
}

func (n *nodeBook) reservation(ip netip.Addr) (Reservation, bool) {
	node := n.nodeOf(ip)
	return Reservation{IP: ip, Node: node}, node != ""
}

func (n *nodeBook) object(r Reservation) place {
	return n.place(n.keys[cmp.Or(r.Node, n.nodeOf(r.IP))])
}

func (n *nodeBook) pool(netip.Addr) string { return "" }

func (n *nodeBook) pools() iter.Seq2[string, Left] { return func(func(string, Left) bool) {} }

func (n *nodeBook) ended() []ended { return nil }
