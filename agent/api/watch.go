package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"reflect"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

const (
	// bindingsInterval is how often a watch compares the table with what it last sent.
	bindingsInterval = 500 * time.Millisecond
	// lineTimeout is how long a client may take to read a line before it is disconnected.
	lineTimeout = 10 * time.Second
)

// errWatch begins the errors of requests for a watch that there is not.
var errWatch = errors.New("a watch")

// stream returns a handler that sends events as JSON documents, one a line.
func (h *handler) stream(watch func(context.Context, document.Query) (iter.Seq[any], error)) documentHandler {
	return func(w http.ResponseWriter, r *http.Request, q document.Query) {
		if !h.watches.TryAcquire(1) {
			fail(w, http.StatusServiceUnavailable, errors.New("too many watches are open; close one"))
			return
		}
		defer h.watches.Release(1)
		events, err := watch(r.Context(), q) // the server cancels it when this function returns
		if err != nil {
			fail(w, statusOf(err), err)
			return
		}
		w.Header().Set("Content-Type", "application/x-ndjson")
		encoder, control := json.NewEncoder(w), http.NewResponseController(w)
		err = control.Flush()
		for event := range events {
			err = errors.Join(err, control.SetWriteDeadline(time.Now().Add(lineTimeout)), encoder.Encode(event), control.Flush())
			if err != nil {
				return
			}
		}
	}
}

func (h *handler) watchConflicts(ctx context.Context, q document.Query) (iter.Seq[any], error) {
	if q.State != "" || q.All {
		return nil, fmt.Errorf("%w has open conflicts of both states: omit state, all and since", errWatch)
	}
	if q.Cluster || q.Node+q.Namespace+q.Pod != "" {
		return h.pollConflicts(ctx, q)
	}
	events, err := h.backend.WatchConflicts(ctx)
	return func(yield func(any) bool) {
		for {
			select {
			case <-ctx.Done():
				return
			case event, ok := <-events:
				if !ok || q.SelectsConflict(event.Conflict) && !yield(event) {
					return
				}
			}
		}
	}, err
}

// watchBindings compares snapshots. The table sends no events, because watches are rare.
func (h *handler) watchBindings(ctx context.Context, q document.Query) (iter.Seq[any], error) {
	if q.Cluster || q.Node != "" {
		return nil, fmt.Errorf("%w of bindings covers this agent only: omit cluster and node", errWatch)
	}
	known := make(map[bindingKey]document.Binding)
	return poll(ctx, bindingsInterval,
		func() (document.Bindings, error) { return h.backend.Bindings(ctx, q) },
		func(doc document.Bindings) []document.BindingEvent { return difference(known, doc.Bindings) })
}

// bindingKey identifies a holder of an address.
type bindingKey struct {
	document.Address
	holder detector.HolderID
}

// difference returns what was added, removed or changed, and updates known. A later LastSeen is no change.
func difference(known map[bindingKey]document.Binding, bindings []document.Binding) []document.BindingEvent {
	var events []document.BindingEvent
	now := time.Now().Round(0)
	present := make(map[bindingKey]bool, len(bindings))
	for _, b := range bindings {
		key := bindingKey{document.Address{Network: b.Network, IP: b.IP}, b.ID()}
		present[key] = true
		before, ok := known[key]
		known[key] = b
		before.LastSeen = b.LastSeen
		switch {
		case !ok:
			events = append(events, document.BindingEvent{Type: "added", At: now, Binding: b})
		case !reflect.DeepEqual(before, b):
			events = append(events, document.BindingEvent{Type: "changed", At: now, Binding: b})
		}
	}
	for key, b := range known {
		if !present[key] {
			delete(known, key)
			events = append(events, document.BindingEvent{Type: "removed", At: now, Binding: b})
		}
	}
	return events
}
