package links

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	times "github.com/dupip/dupip/internal/schedule"
)

// Run watches until stop is closed. Then it detaches from one interface after another, which may take seconds and in which it goes on to send
// events, and returns nil. When ctx ends it detaches at once. When a subscription fails (the kernel's buffer was full), it
// subscribes and lists again.
func (w *Watcher) Run(ctx context.Context, stop <-chan struct{}) error {
	defer w.close(ctx)
	for sessions := rate.NewLimiter(rate.Every(5*time.Second), 5); ; {
		select {
		case <-time.After(sessions.Reserve().Delay()):
		case <-ctx.Done():
			return nil
		case <-stop:
			return nil
		}
		err := w.session(ctx, stop)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		w.overruns.Add(1)
		w.opts.Log.Warn("netlink subscription failed, listing all interfaces again", "error", err)
	}
}

func (w *Watcher) close(ctx context.Context) {
	w.flush(ctx)
	for _, veth := range w.table.veths {
		w.detach(&veth.iface)
	}
	w.closeEarly()
	w.finder.Close()
}

// session subscribes, lists and follows until a subscription fails. It subscribes first, so that
// it misses no change between the list and the first event. It returns nil when stop is closed and all programs are detached.
func (w *Watcher) session(ctx context.Context, stop <-chan struct{}) error {
	// It ends when a subscription fails. Events are sent with ctx, because the agent must not miss any.
	subscribed, fail := context.WithCancelCause(ctx)
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer fail(nil)
	addresses, err := watchAddresses(watchBuffer, w.requests.add)
	if err != nil {
		return err
	}
	tasks.Go(func() { fail(addresses.run(subscribed)) })
	node, err := watchNode(watchBuffer, w.opts.Observer != nil && w.opts.Observer.Mode() == bpf.TC, w.requests.add)
	if err != nil {
		return err
	}
	tasks.Go(func() { fail(node.run(subscribed)) })
	defer w.watchNames(&tasks)()

	updates, done := make(chan netlink.LinkUpdate, 256), make(chan struct{})
	err = netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{
		ErrorCallback:          fail, // on the library's goroutine, which then closes updates
		ReceiveBufferSize:      w.opts.LinkBuffer,
		ReceiveBufferForceSize: true,
	})
	if err != nil {
		return fmt.Errorf("subscribing to links: %w", err)
	}
	defer func() {
		close(done)
		for range updates { // free the library's goroutine
		}
	}()

	w.updates = updates
	w.takeRequests() // everything is scanned and listed now
	w.overrunPacer.due = false
	w.scheduleAll()
	w.table.found.off = true
	var nextList time.Time
	stopping := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-subscribed.Done():
			return context.Cause(subscribed)
		case <-stop:
			stop, stopping = nil, true
		case <-w.requests.wake:
			if w.takeRequests() {
				nextList = time.Time{}
			}
		case <-timer.C:
		case update, ok := <-updates:
			if !ok {
				return cmp.Or(context.Cause(subscribed), errors.New("link subscription closed"))
			}
			w.table.handle(update, time.Now())
		}
		// Before scans, but only those that are there now: scans must not wait for a link that changes all the time.
		for range len(updates) {
			w.table.handle(<-updates, time.Now())
		}
		now := time.Now()
		if !now.Before(nextList) {
			if err := w.resync(ctx, now); err != nil {
				return err
			}
			if w.table.found.off {
				w.table.found.off = false
				w.inside.expected()
			}
			nextList = now.Add(w.opts.Resync)
		}
		next := w.work(ctx, now, nextList)
		if stopping {
			released, done := w.release(now)
			if done {
				return nil
			}
			next = times.Earlier(next, released)
		}
		timer.Reset(time.Until(next))
	}
}

// watchNames watches the names of namespaces until the returned function is called. Without, new ones are found at the next resync.
func (w *Watcher) watchNames(tasks *sync.WaitGroup) (stop func()) {
	const late = "devices in new namespaces that have no end on the node are found at the next resync only; is fs.inotify.max_user_instances too small?"
	names, err := netns.WatchNames()
	if err != nil {
		w.opts.Log.Warn(late, "error", err)
		return func() {}
	}
	w.names = names
	tasks.Go(func() {
		for err = names.Wait(); err == nil; err = names.Wait() {
			w.requests.add(findNames{})
		}
		if !errors.Is(err, os.ErrClosed) {
			w.opts.Log.Warn(late, "error", err)
		}
	})
	return func() {
		w.names = nil
		_ = names.Close()
	}
}

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
