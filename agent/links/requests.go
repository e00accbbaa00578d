package links

import "sync"

// Requests of other goroutines to [Watcher.Run].
type (
	// scanNetns: an address changed in the netns with that id, so scan it.
	scanNetns int
	// scanInterface: scan the netns behind the interface with that generation.
	scanInterface uint32
	// scanEverything: changes of addresses were lost.
	scanEverything struct{}
	// relist: other names are to be ignored, so list all interfaces.
	relist struct{}
)

// requests is a set of requests. Safe for concurrent use, and nothing blocks.
type requests struct {
	wake chan struct{} // has a value while there are any

	mu  sync.Mutex
	set map[any]bool
}

func (r *requests) add(request any) {
	r.mu.Lock()
	if r.set == nil {
		r.set = make(map[any]bool)
	}
	r.set[request] = true
	r.mu.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// take returns the set and begins a new one.
func (r *requests) take() map[any]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	set := r.set
	r.set = nil
	return set
}
