package books

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/document"
)

const (
	// unheldAfter is how long nobody must hold a reservation: the kubelet gives up an ADD after four minutes.
	unheldAfter = 5 * time.Minute
	// staleAfter is for how long two Pods must have one address: after the restart of a node the status of its Pods is that of before.
	staleAfter = 30 * time.Second
	// missingAfter is for how long a Pod must have no interface with its address, or an interface no Pod: a pod that was deleted by force
	// runs on until its kubelet has ended it.
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
	}
	for _, a := range v.agents {
		if a == nil {
			continue // two boots of a node, or namesakes: one of them is about to go
		}
		for i := range a.held {
			v.holders[a.held[i].ip] = append(v.holders[a.held[i].ip], &a.held[i])
		}
	}
	b.byKind = make(map[string]int)
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
	for _, book := range b.ipams {
		if !current(book.sources...) {
			continue
		}
		if v.reserved(book); book.nodes != nil {
			v.placed(book)
		}
	}
	v.keepFormer()
	return v.list
}

// add adds a difference about a holder.
func (v *view) add(kind, book string, h *held, d difference) {
	d.Kind, d.Book, d.IP, d.Holder, d.Sandbox = kind, book, h.ip, h.document(), h.sandbox
	v.put(d)
}

// put adds a difference, unless there are too many of its kind.
func (v *view) put(d difference) {
	if v.byKind[d.Kind]++; v.byKind[d.Kind] <= maxDifferences {
		d.agent, d.Contested = v.agents[d.Node], v.contested(d.IP)
		v.list = append(v.list, d)
	}
}

// contested reports whether an address has two holders in one network.
func (v *view) contested(ip netip.Addr) bool {
	networks := make(map[string]bool)
	for _, h := range v.holders[ip] {
		if networks[h.network] {
			return true
		}
		networks[h.network] = true
	}
	return false
}

// owns reports whether a reservation is that of a holder. The sandbox says more than the name, which a successor may have.
func owns(r Reservation, h *held) bool {
	if r.Sandbox != "" && h.sandbox != "" && r.Sandbox != h.sandbox {
		return h.pod != "" && r.Other == h.pod
	}
	return r.Sandbox != "" && r.Sandbox == h.sandbox || h.pod != "" && (r.Pod == h.pod || r.Other == h.pod)
}

// isPodIP reports whether the API server has the address as one of the holder's Pod: books of IPAMs are about no other interfaces of pods.
func (v *view) isPodIP(h *held) bool {
	p := v.pods.of(h)
	return p != nil && slices.Contains(p.addresses, h.ip)
}

// podOf is the document of a pod by its "namespace/name", nil for none.
func podOf(name string) *document.Pod {
	if namespace, name, ok := strings.Cut(name, "/"); ok {
		return &document.Pod{Namespace: namespace, Name: name}
	}
	return nil
}

// isDeleted reports whether there is no Node of the name of an agent's node, or of one that a book has.
func (b *Books) isDeleted(name string) bool {
	_, there := b.nodes.byName[name]
	return name != "" && !there && b.named
}

// reserved compares the reservations of an IPAM.
func (v *view) reserved(book *ipam) {
	uses, own := make(map[string]bool), 0 // nodes with a reservation that its owner holds
	objects := func(r Reservation, pods ...string) (list []place) {
		list = append(list, book.object(r))
		for _, pod := range pods {
			list = append(list, v.pods.place(pod))
		}
		return list
	}
	for r := range book.reservations() {
		if r.Pod == "" {
			continue
		}
		i := slices.IndexFunc(v.holders[r.IP], func(h *held) bool { return owns(r, h) })
		if i < 0 {
			v.unheld(book, r)
			continue
		}
		h := v.holders[r.IP][i]
		uses[h.node], own = true, own+1
		if book.nodes != nil || r.Node == "" || r.Node == h.node || r.Other != "" || v.pods.of(h) == nil {
			continue // placed compares the nodes of a book that has some
		}
		d := v.freed(book, r)
		d.objects = objects(r)
		d.CNINetwork, d.ReservedFor, d.ReservedPod, d.ReservedNode = book.pool(r.IP), r.Sandbox, podOf(r.Pod), r.Node
		v.add(document.Misbooked, book.name, h, d)
	}
	var others []*held // in a pool, without a reservation of their own
	for _, list := range v.holders {
		for _, h := range list {
			r, ok := book.reservation(h.ip)
			if book.pool(h.ip) != "" && (!ok || r.Pod != "" && !owns(r, h)) && (v.isPodIP(h) || !book.primary && v.pods.of(h) != nil) && !v.agents[h.node].gives(h.ip) {
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
			v.add(document.Mismatched, book.name, h, d)
		} else {
			v.add(document.Unreserved, book.name, h, d)
		}
	}
}

// freed is a difference for which the IPAM frees a reservation: after its grace, or at once if the Node does not exist.
func (v *view) freed(book *ipam, r Reservation) (d difference) {
	if d.freed = book.grace > 0; !v.isDeleted(r.Node) {
		d.grace = book.grace
	}
	return d
}

// placed compares the addresses of nodes: an object may belong to an earlier node of the name, and a pod may have the address of another node.
func (v *view) placed(book *ipam) {
	nodes := book.nodes
	for node, uid := range nodes.uids {
		if live, there := v.nodes.byName[node]; there && live.uid != "" && live.uid != uid {
			d := difference{objects: []place{book.object(Reservation{Node: node}), v.nodes.place(node)}}
			d.Kind, d.Book, d.Node, d.OwnerUID = document.Stale, book.name, node, uid
			v.put(d)
		}
	}
	own, others := make(map[string]int), make(map[string][]*held) // by node
	for _, list := range v.holders {
		for _, h := range list {
			switch node := nodes.nodeOf(h.ip); {
			case node == h.node:
				own[h.node]++
			case node != "" && nodes.byOwner[h.node] != nil && v.isPodIP(h):
				others[h.node] = append(others[h.node], h)
			}
		}
	}
	for node, list := range others {
		if own[node] <= len(list) { // its pods have addresses of another IPAM
			continue
		}
		for _, h := range list {
			of := nodes.nodeOf(h.ip)
			d := difference{objects: []place{book.object(Reservation{Node: of}), book.object(Reservation{Node: node})}}
			d.ReservedNode = of
			v.add(document.Misbooked, book.name, h, d)
		}
	}
}

// unheld: nobody has the address of a reservation, and its pod does not exist, or has another one. Only a node that sees all its interfaces
// says so, or one that does not exist; and if the book has no node, all nodes.
func (v *view) unheld(book *ipam, r Reservation) {
	a, known := v.agents[r.Node]
	seen := known && a.sees() || !known && v.isDeleted(r.Node) || r.Node == "" && v.all
	if p := v.pods.byName[r.Pod]; p != nil && (!book.primary || len(p.addresses) == 0 || slices.Contains(p.addresses, r.IP)) {
		return // it is being made, or its interface is missing
	}
	if len(v.holders[r.IP]) > 0 || !seen || v.now.Sub(r.Since) < unheldAfter {
		return
	}
	d := v.freed(book, r)
	d.after, d.objects = unheldAfter, []place{book.object(r), v.pods.place(r.Pod)}
	d.Kind, d.Book, d.IP, d.Node, d.CNINetwork = document.Unheld, book.name, r.IP, r.Node, book.pool(r.IP)
	d.ReservedFor, d.ReservedPod, d.ReservedNode = r.Sandbox, podOf(r.Pod), r.Node
	v.put(d)
}

// kubernetes compares the addresses of Pods.
func (v *view) kubernetes() {
	for ip, all := range v.pods.byIP {
		if v.opts.Rules.Shared(ip) || v.mayBeShared(ip) {
			continue
		}
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
			a.unlike[ip] || slices.ContainsFunc(v.holders[ip], func(h *held) bool { return h.node == first.node })) {
			continue
		}
		d := difference{objects: []place{v.pods.place(first.name)}}
		d.Book, d.IP, d.Node, d.Pod = document.Kubernetes, ip, first.node, podOf(first.name)
		if len(list) > 1 {
			d.Kind, d.ReservedPod, d.ReservedNode, d.after = document.Twice, podOf(list[1].name), list[1].node, staleAfter
			d.objects = append(d.objects, v.pods.place(list[1].name))
			v.put(d)
			continue
		}
		d.Kind, d.ReservedPod, d.Pod, d.after = document.Unheld, d.Pod, nil, missingAfter
		v.put(d)
	}
	for _, list := range v.holders {
		for _, h := range list {
			if h.pod != "" && v.pods.of(h) == nil && !v.isDeleted(h.node) {
				v.add(document.Unlisted, document.Kubernetes, h, difference{after: missingAfter, objects: []place{v.pods.place(h.pod)}})
			}
		}
	}
}

// mayBeShared reports whether a book says that several pods may have an address: while a virtual machine moves.
func (v *view) mayBeShared(ip netip.Addr) bool {
	for _, book := range v.ipams {
		if r, ok := book.reservation(ip); ok && r.Shared {
			return true
		}
	}
	return false
}

// deleted: pods run on a node that is no Node any more.
func (v *view) deleted() {
	for _, a := range v.agents {
		if a == nil {
			continue
		}
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
		d := difference{objects: []place{v.nodes.place(a.name)}}
		d.Kind, d.Book, d.Node, d.BootID, d.Pods, d.Since = document.Deleted, document.Kubernetes, a.name, a.held[0].boot, len(running), v.nodes.deleted[a.name]
		v.put(d)
	}
}

// keepFormer keeps the reservations that have ended while their holders live.
func (v *view) keepFormer() {
	for _, book := range v.ipams {
		for _, r := range book.ended() {
			i := slices.IndexFunc(v.holders[r.IP], func(h *held) bool { return owns(r.Reservation, h) })
			if now, reserved := book.reservation(r.IP); i >= 0 && len(v.former) < maxFormer && (!reserved || !owns(now, v.holders[r.IP][i])) {
				v.former[r.IP] = former{r, book.name, v.holders[r.IP][i].holder}
			}
		}
	}
	maps.DeleteFunc(v.former, func(ip netip.Addr, f former) bool {
		return !slices.ContainsFunc(v.holders[ip], func(h *held) bool { return h.holder == f.holder })
	})
}
