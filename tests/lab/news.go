package lab

import "net/netip"

// ChangeKind is what happened.
type ChangeKind uint8

// The kinds of news.
const (
	// PodAdded: the pod is there, with the addresses of its options.
	PodAdded ChangeKind = iota
	// PodAddrAdded: [Pod.AddAddr] gave the pod an address.
	PodAddrAdded
	// PodDeleted: the pod was deleted.
	PodDeleted
	// NodeDisconnected and NodeJoined: the node was unplugged, and is back.
	NodeDisconnected
	NodeReconnected
)

// Change is something that the lab did.
type Change struct {
	Kind ChangeKind
	Node *Node
	// Pod is nil for news of a node. Addr is the address of PodGiven.
	Pod  *Pod
	Addr netip.Addr
}

// Subscribe calls f with what happens from now on, after it has happened and in the goroutine
// that did it; more than one may at the same time.
func (l *Lab) Subscribe(f func(Change)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subscribers = append(l.subscribers, f)
}

func (l *Lab) publish(n Change) {
	l.mu.Lock()
	followers := l.subscribers
	l.mu.Unlock()
	for _, f := range followers {
		f(n)
	}
}
