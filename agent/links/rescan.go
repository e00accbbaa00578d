package links

import "sync"

// Requests of other goroutines to [Watcher.Run].
type (
	scanNetns      int      // scan the netns with that id: an address changed
	netnsGone      int      // the netns with that id ended
	scanInterface  uint32   // scan the netns behind the interface with that generation
	scanEverything struct{} // events were lost
	listRoutes     struct{} // list the default routes: one may have changed
	checkPrograms  int      // qdiscs or filters of the interface with that ifindex changed
	settled        uint32   // the pod behind the interface with that generation is set up
	findNames      struct{} // find new names of namespaces
	findNamespaces struct{} // find namespaces, also those without a name: a device may have come into one
	relist         struct{} // list all interfaces: other names are ignored now
)

// requests is a set of requests. It is safe for concurrent use and never blocks.
type requests struct {
	wake chan struct{} // has a value while the set is not empty

	mu  sync.Mutex
	set map[any]bool // the keys are values of the types above
}

func (r *requests) add(request any) {
	r.mu.Lock()
	r.set[request] = true
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the set and empties it.
func (r *requests) take() map[any]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set
	r.set = make(map[any]bool)
	return set
}
