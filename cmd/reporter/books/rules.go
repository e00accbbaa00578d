package books

import (
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/document"
)

const (
	// unheldAfter is how long nobody must hold a reservation: the kubelet gives up an ADD after four minutes.
	unheldAfter = 5 * time.Minute
	// staleAfter is for how long two Pods must have one address: after the restart of a node the status of its Pods is that of before.
	staleAfter = 30 * time.Second
	// missingAfter is for how long a Pod must have no interface with its address, or an interface no Pod: one that was deleted by force may
	// take a while to end.
	missingAfter = 2 * time.Minute
)

// view is what is compared: who has which address, and which agents there are.
type view struct {
	*Books
	now     time.Time
	holders map[netip.Addr][]*held
	agents  map[string]*agent // by node name; nil for a name that several have
	all     bool              // there is one for each Node, and they see all interfaces
	list    []difference
}

// differences compares all books with the wire. Pods and Nodes are current.
func (b *Books) differences(now time.Time) []difference {
	v := &view{Books: b, now: now, holders: make(map[netip.Addr][]*held), agents: make(map[string]*agent)}
	for _, a := range b.wire.agents {
		if _, twice := v.agents[a.name]; twice {
			v.agents[a.name] = nil
		} else {
			v.agents[a.name] = a
		}
		for i := range a.held {
			v.holders[a.held[i].ip] = append(v.holders[a.held[i].ip], &a.held[i])
		}
	}
	v.all = len(b.nodes.byName) > 0
	for name := range b.nodes.byName {
		v.all = v.all && v.agents[name].sees()
	}
	// If no agent has the name of a Node, agents have other names than those.
	b.named = false
	for name := range v.agents {
		if _, there := b.nodes.byName[name]; there {
			b.named = true
			break
		}
	}
	v.kubernetes()
	v.deleted()
	v.overlapping()
	for name, book := range b.names() {
		if current(book.sources()...) {
			v.reserved(name, book)
			if nodes, ok := book.(byNode); ok {
				v.placed(name, book, nodes)
			}
		}
	}
	v.keepFormer()
	return v.list
}

// add adds a difference about a holder.
func (v *view) add(kind, book string, h *held, d difference) {
	d.Kind, d.Book, d.IP, d.Holder, d.Sandbox = kind, book, h.ip, h.document(), h.sandbox
	d.Contested = len(v.holders[h.ip]) > 1
	v.list = append(v.list, d)
}

// owns reports whether a reservation is that of a holder.
func owns(r Reservation, h *held) bool {
	return r.Sandbox != "" && r.Sandbox == h.sandbox || h.pod != "" && (r.Pod == h.pod || r.Other == h.pod)
}

// podOf is the document of a pod by its "namespace/name", nil for none.
func podOf(name string) *document.Pod {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		return &document.Pod{Namespace: namespace, Name: name}
	}
	return nil
}

// podObject is where a Pod is.
func (v *view) podObject(name string) place { return v.pods.place(name) }

func (v *view) nodeObject(name string) place { return v.nodes.place(name) }

// isDeleted reports whether there is no Node of the name of an agent's node, or of one that a book has.
func (b *Books) isDeleted(name string) bool {
	_, there := b.nodes.byName[name]
	return name != "" && !there && b.named
}

// reserved compares the reservations of an IPAM.
func (v *view) reserved(name string, book ipam) {
	uses, own := make(map[string]bool), 0 // nodes with a reservation that its owner holds
	_, nodes := book.(byNode)             // placed compares the nodes of its addresses
	objects := func(r Reservation, pods ...string) (list []place) {
		list = append(list, book.object(r))
		for _, pod := range pods {
			list = append(list, v.podObject(pod))
		}
		return list
	}
	for r := range book.reservations() {
		if r.Pod == "" {
			continue
		}
		i := slices.IndexFunc(v.holders[r.IP], func(h *held) bool { return owns(r, h) })
		if i < 0 {
			v.unheld(name, book, r)
			continue
		}
		h := v.holders[r.IP][i]
		uses[h.node], own = true, own+1
		if nodes || r.Node == "" || r.Node == h.node || r.Other != "" {
			continue
		}
		d := difference{objects: objects(r), freed: book.grace() > 0, grace: book.grace()}
		if v.isDeleted(r.Node) {
			d.grace = 0
		}
		d.CNINetwork, d.ReservedFor, d.ReservedPod, d.ReservedNode = book.pool(r.IP), r.Sandbox, podOf(r.Pod), r.Node
		v.add(document.Misbooked, name, h, d)
	}
	var others []*held // in a pool, without a reservation of their own
	for _, list := range v.holders {
		for _, h := range list {
			if r, ok := book.reservation(h.ip); book.pool(h.ip) != "" && (!ok || r.Pod != "" && !owns(r, h)) {
				others = append(others, h)
			}
		}
	}
	for _, h := range others {
		if !uses[h.node] && len(others) >= own { // its node has another IPAM
			continue
		}
		r, ok := book.reservation(h.ip)
		d := difference{objects: objects(Reservation{IP: h.ip})}
		d.CNINetwork = book.pool(h.ip)
		if ok && v.pods.lives(r.Pod) {
			d.ReservedFor, d.ReservedPod, d.ReservedNode = r.Sandbox, podOf(r.Pod), r.Node
			d.objects = objects(r, r.Pod)
			v.add(document.Mismatched, name, h, d)
		} else {
			v.add(document.Unreserved, name, h, d)
		}
	}
}

// placed compares the addresses of nodes: an object may belong to an earlier node of the name, and a pod may have the address of another node.
func (v *view) placed(name string, book ipam, nodes byNode) {
	for node, uid := range nodes.owners() {
		if live, there := v.nodes.byName[node]; there && live.uid != "" && live.uid != uid {
			d := difference{objects: []place{book.object(Reservation{Node: node}), v.nodeObject(node)}}
			d.Kind, d.Book, d.Node, d.OwnerUID = document.Stale, name, node, uid
			v.list = append(v.list, d)
		}
	}
	for _, list := range v.holders {
		for _, h := range list {
			node := nodes.nodeOf(h.ip)
			if h.pod == "" || node == "" || node == h.node || !nodes.has(h.node) {
				continue
			}
			d := difference{objects: []place{book.object(Reservation{Node: node}), book.object(Reservation{Node: h.node})}}
			d.ReservedNode = node
			v.add(document.Misbooked, name, h, d)
		}
	}
}

// unheld: nobody has the address of a reservation, and its pod does not exist, or has another one. Only a node that sees all its interfaces
// says so, or one that does not exist; and if the book has no node, all nodes.
func (v *view) unheld(name string, book ipam, r Reservation) {
	a, known := v.agents[r.Node]
	seen := known && a.sees() || !known && v.isDeleted(r.Node) || r.Node == "" && v.all
	if p := v.pods.byName[r.Pod]; p != nil && (r.Node == "" || len(p.addresses) == 0 || slices.Contains(p.addresses, r.IP)) {
		return // it is being made, or its interface is missing; a book without nodes may be that of a second network
	}
	if len(v.holders[r.IP]) > 0 || !seen || v.now.Sub(r.Since) < unheldAfter {
		return
	}
	d := difference{after: unheldAfter, objects: []place{book.object(r), v.podObject(r.Pod)}, freed: book.grace() > 0, grace: book.grace()}
	if v.isDeleted(r.Node) {
		d.grace = 0
	}
	d.Kind, d.Book, d.IP, d.Node, d.CNINetwork = document.Unheld, name, r.IP, r.Node, book.pool(r.IP)
	d.ReservedFor, d.ReservedPod, d.ReservedNode = r.Sandbox, podOf(r.Pod), r.Node
	v.list = append(v.list, d)
}

// kubernetes compares the addresses of Pods.
func (v *view) kubernetes() {
	for ip, all := range v.pods.byIP {
		list := all
		if isOut := func(p *pod) bool { return p.ending || !p.ready }; len(all) > 1 || isOut(all[0]) {
			list = slices.DeleteFunc(slices.Clone(all), isOut)
			slices.SortFunc(list, func(x, y *pod) int { return strings.Compare(x.name, y.name) })
		}
		if len(list) == 0 {
			continue
		}
		first := list[0]
		a := v.agents[first.node]
		if len(list) == 1 && (a == nil || !a.sees() || v.now.Sub(first.created) < missingAfter ||
			slices.ContainsFunc(v.holders[ip], func(h *held) bool { return h.node == first.node })) {
			continue
		}
		d := difference{objects: []place{v.podObject(first.name)}}
		d.Book, d.IP, d.Node, d.Pod = Kubernetes, ip, first.node, podOf(first.name)
		d.Contested = len(v.holders[ip]) > 1
		if len(list) > 1 {
			d.Kind, d.ReservedPod, d.ReservedNode, d.after = document.Twice, podOf(list[1].name), list[1].node, staleAfter
			d.objects = append(d.objects, v.podObject(list[1].name))
			v.list = append(v.list, d)
			continue
		}
		d.Kind, d.ReservedPod, d.Pod, d.after = document.Unheld, d.Pod, nil, missingAfter
		v.list = append(v.list, d)
	}
	for _, list := range v.holders {
		for _, h := range list {
			if h.pod != "" && v.pods.of(h) == nil && !v.isDeleted(h.node) {
				v.add(document.Unlisted, Kubernetes, h, difference{after: missingAfter, objects: []place{v.podObject(h.pod)}})
			}
		}
	}
}

// deleted: pods run on a node that is no Node any more.
func (v *view) deleted() {
	for _, a := range v.wire.agents {
		running := make(map[string]bool)
		for _, h := range a.held {
			if h.pod != "" {
				running[h.pod] = true
			}
		}
		if len(running) == 0 || !v.isDeleted(a.name) {
			continue
		}
		if v.nodes.deleted[a.name].IsZero() { // before the list was read
			v.nodes.deleted[a.name] = v.now.Round(0)
		}
		d := difference{objects: []place{v.nodeObject(a.name)}}
		d.Kind, d.Book, d.Node, d.BootID, d.Pods, d.Since = document.Deleted, Kubernetes, a.name, a.held[0].boot, len(running), v.nodes.deleted[a.name]
		v.list = append(v.list, d)
	}
}

// span is a range that belongs to a node, or that its book gives out.
type span struct {
	first, last netip.Addr
	text, node  string
	gives       bool
}

// overlapping: a node gives out addresses of a range that is another node's, or two have the same podCIDR.
func (v *view) overlapping() {
	var all []span
	for name, n := range v.nodes.byName {
		for _, p := range n.ranges {
			all = append(all, span{p.Addr(), lastAddr(p), p.String(), name, false})
		}
	}
	for _, a := range v.wire.agents {
		for _, text := range a.summary.Ranges {
			first, last, _ := strings.Cut(text, "-")
			from, err1 := netip.ParseAddr(first)
			to, err2 := netip.ParseAddr(last)
			if err1 == nil && err2 == nil && from.Compare(to) <= 0 {
				all = append(all, span{from, to, text, a.name, true})
			}
		}
	}
	slices.SortFunc(all, func(x, y span) int { return x.first.Compare(y.first) })
	var open []span
	for _, s := range all {
		open = slices.DeleteFunc(open, func(o span) bool { return o.last.Compare(s.first) < 0 })
		for _, o := range open[:min(len(open), maxOpen)] {
			if o.node == s.node || o.gives && s.gives { // a network of each node may have the same range
				continue
			}
			x, y := o, s // x gives, or has the first name
			if y.gives || x.gives == y.gives && y.node < x.node {
				x, y = y, x
			}
			d := difference{objects: []place{v.nodeObject(x.node), v.nodeObject(y.node)}}
			d.Kind, d.Book, d.Node, d.ReservedNode, d.Ranges = document.Overlapping, Kubernetes, x.node, y.node, []string{x.text, y.text}
			v.list = append(v.list, d)
		}
		open = append(open, s)
	}
}

// maxOpen bounds the ranges that one range is compared with.
const maxOpen = 16

// lastAddr is the last address of a prefix.
func lastAddr(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for bit := p.Bits(); bit < 8*len(b); bit++ {
		b[bit/8] |= 0x80 >> (bit % 8)
	}
	last, _ := netip.AddrFromSlice(b)
	return last
}

// keepFormer keeps the reservations that have ended while their holders live.
func (v *view) keepFormer() {
	for name, book := range v.names() {
		for _, r := range book.ended() {
			i := slices.IndexFunc(v.holders[r.IP], func(h *held) bool { return owns(r.Reservation, h) })
			if now, reserved := book.reservation(r.IP); i >= 0 && len(v.former) < maxFormer && (!reserved || !owns(now, v.holders[r.IP][i])) {
				v.former[r.IP] = former{r, name, v.holders[r.IP][i].holder}
			}
		}
	}
	maps.DeleteFunc(v.former, func(ip netip.Addr, f former) bool {
		return !slices.ContainsFunc(v.holders[ip], func(h *held) bool { return h.holder == f.holder })
	})
}

// checked returns which books are compared, and why others are not.
func (b *Books) checked() (names, unchecked []string) {
	say := func(book string, list ...*source) {
		for _, s := range list {
			switch {
			case s.state == watched && len(s.broken) > 0:
				unchecked = append(unchecked, fmt.Sprintf("book %s: %d of %s cannot be read", book, len(s.broken), s.name))
				continue
			case s.state == watched:
				continue
			case s.state == absent && b.opts.Auto:
				return
			case s.state == absent:
				unchecked = append(unchecked, fmt.Sprintf("book %s: the API server has no resource %s", book, s.name))
			case kube.Is(s.err, http.StatusForbidden):
				unchecked = append(unchecked, fmt.Sprintf("book %s: the reporter may not read %s", book, s.name))
			case s.err != nil:
				unchecked = append(unchecked, fmt.Sprintf("book %s: reading %s failed: %v", book, s.name, s.err))
			default:
				unchecked = append(unchecked, fmt.Sprintf("book %s: it is being read", book))
			}
			return
		}
		names = append(names, book)
	}
	say(Kubernetes, b.pods.source, b.nodes.source)
	for name, book := range b.names() {
		say(name, book.sources()...)
	}
	silent := 0
	for _, a := range b.wire.agents {
		if a.at.IsZero() {
			silent++
		}
	}
	if silent > 0 {
		unchecked = append(unchecked, fmt.Sprintf("the API server's books of %d nodes, whose agents have not said yet who has which address", silent))
	}
	return names, unchecked
}
