package lab

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// ErrTimeout means that a condition was not met in time.
var ErrTimeout = errors.New("it did not happen in time")

// Watch records the stream of conflict events of one agent. It connects again when
// the agent was restarted. Its methods may be called from several goroutines.
type Watch struct {
	mu     sync.Mutex
	events []Event
}

// Watch starts to record events, and returns once the stream is open. The lab ends it.
func (a *Agent) Watch(ctx context.Context) (*Watch, error) { return a.Node.lab.Watch(ctx, a.Client) }

// Watch is [Agent.Watch] for an agent that something else has started.
func (l *Lab) Watch(ctx context.Context, c *Client) (*Watch, error) {
	w := &Watch{}
	ctx, cancel := context.WithCancel(ctx)
	opened := make(chan error, 1)
	var once sync.Once
	var done sync.WaitGroup
	done.Go(func() {
		for ctx.Err() == nil {
			body, err := c.Get(ctx, "/v1/conflicts", "watch=1")
			once.Do(func() { opened <- err })
			if err != nil {
				pause(ctx, 20*time.Millisecond)
				continue
			}
			decoder := json.NewDecoder(body)
			for {
				var e Event
				if err := decoder.Decode(&e); err != nil {
					break
				}
				e.Received = time.Now()
				w.add(e)
			}
			_ = body.Close()
		}
	})
	l.OnClose(func() error {
		cancel()
		done.Wait()
		return nil
	})
	if err := <-opened; err != nil {
		cancel()
		return nil, fmt.Errorf("watch conflicts: %w", err)
	}
	return w, nil
}

func (w *Watch) add(e Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
}

// Events are those received so far, in order.
func (w *Watch) Events() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// Wait returns the first event that satisfies ok, also one of the past. After timeout, which is that of [Poll],
// it returns an error that wraps [ErrTimeout] and names what was seen.
func (w *Watch) Wait(timeout time.Duration, ok func(Event) bool) (found Event, err error) {
	err = Poll(context.Background(), timeout, w.find(&found, ok))
	return found, err
}

// find returns a function for Poll that looks for an event.
func (w *Watch) find(found *Event, ok func(Event) bool) func() error {
	return func() error {
		events := w.Events()
		if i := slices.IndexFunc(events, ok); i >= 0 {
			*found = events[i]
			return nil
		}
		return fmt.Errorf("seen: %s", FormatEvents(events))
	}
}

// WaitType waits for an event of one type about one address.
func (w *Watch) WaitType(eventType string, ip netip.Addr, timeout time.Duration) (Event, error) {
	e, err := w.Wait(timeout, func(e Event) bool { return e.Type == eventType && e.Conflict.IP == ip })
	if err != nil {
		return e, fmt.Errorf("%v %s: %w", ip, eventType, err)
	}
	return e, nil
}

// WaitConfirmed waits until a conflict about ip is confirmed.
func (w *Watch) WaitConfirmed(ip netip.Addr, timeout time.Duration) (Event, error) {
	return w.WaitType("confirmed", ip, timeout)
}

// Never watches for this long, however busy the machine is, and returns an error as soon as an event satisfies ok, also one of the past.
func (w *Watch) Never(window time.Duration, ok func(Event) bool) error {
	limited, cancel := context.WithTimeout(context.Background(), window)
	defer cancel()
	var e Event
	if err := poll(context.Background(), limited, w.find(&e, ok)); err != nil {
		return nil // the window is over
	}
	return fmt.Errorf("seen: %s", FormatEvents([]Event{e}))
}

// NeverConfirmed is [Watch.Never] for any conflict that is confirmed.
func (w *Watch) NeverConfirmed(window time.Duration) error {
	if err := w.Never(window, func(e Event) bool { return e.Type == "confirmed" }); err != nil {
		return fmt.Errorf("a false conflict was confirmed: %w", err)
	}
	return nil
}

// FormatEvents is a short text about events, for messages.
func FormatEvents(events []Event) string {
	var steps []string
	for _, e := range events {
		step := fmt.Sprintf("%s %s %v (%s)", e.At.Format("05.000"), e.Type, e.Conflict.IP, e.Reason)
		for _, h := range e.Conflict.Holders {
			step += fmt.Sprintf(" [%s %s %s %s]", h.Netns, h.Interface, h.MAC, h.Evidence)
		}
		steps = append(steps, step)
	}
	return cmp.Or(strings.Join(steps, "; "), "no event")
}
