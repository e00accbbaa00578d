package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"
)

// bindingsEvery is how often a watch compares the table with what it last sent.
const bindingsEvery = 500 * time.Millisecond

var errTooManyWatches = errors.New("too many watches are open; close one")

// stream is one open watch: a JSON document per line.
type stream struct {
	encoder *json.Encoder
	control *http.ResponseController
}

// open takes a slot and begins the answer; the caller must call release.
func (h *handler) open(w http.ResponseWriter) (s *stream, release func(), ok bool) {
	select {
	case h.watches <- struct{}{}:
	default:
		fail(w, http.StatusServiceUnavailable, errTooManyWatches)
		return nil, nil, false
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.WriteHeader(http.StatusOK)
	s = &stream{encoder: json.NewEncoder(w), control: http.NewResponseController(w)}
	s.control.Flush()
	return s, func() { <-h.watches }, true
}

// send writes one line; a reader that does not take it for 10 s is let go.
func (s *stream) send(document any) error {
	if err := s.control.SetWriteDeadline(time.Now().Add(10 * time.Second)); err != nil {
		return err
	}
	if err := s.encoder.Encode(document); err != nil {
		return err
	}
	return s.control.Flush()
}

// errWatchLocal: nobody streams over the network.
var errWatchLocal = errors.New("a watch is of this agent only: leave out cluster and node")

func (h *handler) watchConflicts(w http.ResponseWriter, r *http.Request, q Query) {
	if q.Cluster || q.Node != "" {
		fail(w, http.StatusBadRequest, errWatchLocal)
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	events, err := h.backend.WatchConflicts(ctx)
	if err != nil {
		fail(w, http.StatusServiceUnavailable, err)
		return
	}
	s, release, ok := h.open(w)
	if !ok {
		return
	}
	defer release()
	for {
		select {
		case <-ctx.Done():
			return
		case event, ok := <-events:
			if !ok {
				return
			}
			if q.IP.IsValid() && event.Conflict.IP != q.IP.String() {
				continue
			}
			if s.send(event) != nil {
				return
			}
		}
	}
}

// watchBindings compares snapshots: the table has no events of its own, because
// most of what happens to it interests nobody.
func (h *handler) watchBindings(w http.ResponseWriter, r *http.Request, q Query) {
	if q.Cluster || q.Node != "" {
		fail(w, http.StatusBadRequest, errWatchLocal)
		return
	}
	s, release, ok := h.open(w)
	if !ok {
		return
	}
	defer release()
	ticker := time.NewTicker(bindingsEvery)
	defer ticker.Stop()
	known := make(map[bindingKey]Binding)
	for {
		document, err := h.backend.Bindings(r.Context(), q)
		if err != nil {
			return
		}
		for _, event := range difference(known, document.Bindings) {
			if s.send(event) != nil {
				return
			}
		}
		select {
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// bindingKey tells holders of addresses apart.
type bindingKey struct {
	network, ip, node string
	cookie            uint64
	ifindex           uint32
}

// difference returns what is new, gone or different in bindings, and makes known
// equal to it. A later LastSeen alone is no difference.
func difference(known map[bindingKey]Binding, bindings []Binding) []BindingEvent {
	var events []BindingEvent
	present := make(map[bindingKey]bool, len(bindings))
	for _, b := range bindings {
		key := bindingKey{b.Network, b.IP, b.Node, b.NetnsCookie, 0}
		if b.NetnsCookie == 0 {
			key.ifindex = b.Ifindex
		}
		present[key] = true
		before, ok := known[key]
		known[key] = b
		before.LastSeen = b.LastSeen
		switch {
		case !ok:
			events = append(events, BindingEvent{Type: "added", Binding: b})
		case !same(before, b):
			events = append(events, BindingEvent{Type: "changed", Binding: b})
		}
	}
	for key, b := range known {
		if !present[key] {
			delete(known, key)
			events = append(events, BindingEvent{Type: "removed", Binding: b})
		}
	}
	return events
}

// same compares two bindings with the pods they point to.
func same(a, b Binding) bool {
	podA, podB := a.Pod, b.Pod
	a.Pod, b.Pod = nil, nil
	if a != b || (podA == nil) != (podB == nil) {
		return false
	}
	return podA == nil || *podA == *podB
}
