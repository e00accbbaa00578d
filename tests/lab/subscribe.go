package lab

import "net/netip"

// ChangeKind is the kind of a change.
type ChangeKind uint8

// The kinds of changes.
const (
	// PodAdded: the pod has the addresses of its options.
	PodAdded ChangeKind = iota
	// PodAddrAdded: [Pod.AddAddr] added an address.
	PodAddrAdded
	PodDeleted
	NodeDisconnected
	NodeReconnected
)

// Change is something that the lab did.
type Change struct {
	Kind ChangeKind
	Node *Node
	// Pod is nil for changes of a node. Addr is the address of PodAddrAdded.
	Pod  *Pod
	Addr netip.Addr
}

// Subscribe calls f after each change from now on, in the goroutine that made it. Calls may be
// concurrent.
func (l *Lab) Subscribe(f func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, f)
}

func (l *Lab) publish(c Change) {
	l.mu.Lock()
	subscribers := l.subscribers
	l.mu.Unlock()
	for _, f := range subscribers {
		f(c)
	}
}
