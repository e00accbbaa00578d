package lab

import "net/netip"

// NewsKind is what happened.
type NewsKind uint8

// The kinds of news.
const (
	// PodMade: the pod is there, with the addresses of its options.
	PodMade NewsKind = iota
	// PodGiven: [Pod.AddAddr] gave the pod an address.
	PodGiven
	// PodGone: the pod was deleted.
	PodGone
	// NodeCut and NodeJoined: the node was unplugged, and is back.
	NodeCut
	NodeJoined
)

// News is something that the lab did.
type News struct {
	Kind NewsKind
	Node *Node
	// Pod is nil for news of a node. Addr is the address of PodGiven.
	Pod  *Pod
	Addr netip.Addr
}

// Follow calls f with what happens from now on, after it has happened and in the goroutine
// that did it; more than one may at the same time.
func (l *Lab) Follow(f func(News)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.followers = append(l.followers, f)
}

func (l *Lab) tell(n News) {
	l.mu.Lock()
	followers := l.followers
	l.mu.Unlock()
	for _, f := range followers {
		f(n)
	}
}
