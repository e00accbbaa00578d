// Package lead decides which of several processes leads: the one that holds a Lease of the API server.
//
// It needs no clock that others share: who waits measures for how long the Lease does not change, and who holds it stops
// earlier than that.
package lead

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
)

const (
	// duration is how long a Lease must stay unchanged before another takes it.
	duration = 15 * time.Second
	// valid is how long who has renewed it leads: a request that is sent then may take 5 s.
	valid = 10 * time.Second
	// every is how often it is renewed or looked at.
	every = 2 * time.Second
	// Margin is how long a request that was begun while leading may take after that.
	Margin = duration - valid - time.Second
)

// API is what reads and writes Leases: a [kube.Client].
type API interface {
	Lease(ctx context.Context, namespace, name string) (kube.Lease, error)
	PutLease(ctx context.Context, l kube.Lease) (kube.Lease, error)
}

// Election is one candidate. Its methods are safe for concurrent use, but for Run and Release.
type Election struct {
	API             API
	Namespace, Name string
	// Identity is unique among the candidates.
	Identity string

	seen   kube.Lease // as it was read or written last
	seenAt time.Time  // when it was first seen so

	mu       sync.Mutex
	until    time.Time
	holder   string    // the Identity of who leads, as far as is known
	answered time.Time // when the API server answered last
	err      error
}

// Until is when this candidate stops leading, unless it renews the Lease; a time that has passed if it does not lead.
func (e *Election) Until() time.Time {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.until
}

// Leader is the Identity of who leads, as the Lease has it; empty for nobody, or if that is not known.
func (e *Election) Leader() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.holder
}

// State returns when the API server answered last, and why it did not since.
func (e *Election) State() (answered time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.answered, e.err
}

// Run takes part until ctx ends. Call Release then, when nothing is written any more.
func (e *Election) Run(ctx context.Context) {
	for tick := time.Tick(every); ; {
		start := time.Now()
		leads, err := e.step(ctx, start)
		e.mu.Lock()
		if leads {
			e.until = start.Add(valid)
		} else if err == nil {
			e.until = time.Time{}
		}
		if e.err = err; err == nil {
			e.answered, e.holder = time.Now(), e.seen.Spec.HolderIdentity
		}
		e.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick:
		}
	}
}

// step renews the Lease, takes it if nobody has it, or looks at it.
func (e *Election) step(ctx context.Context, now time.Time) (leads bool, err error) {
	if e.seen.Spec.HolderIdentity != e.Identity {
		l, err := e.API.Lease(ctx, e.Namespace, e.Name)
		if kube.Is(err, http.StatusNotFound) {
			err = fmt.Errorf("the Lease %s of namespace %s is missing, and nobody leads: \"helm upgrade\" makes it again", e.Name, e.Namespace)
		}
		if err != nil {
			return false, err
		}
		if l.Metadata.ResourceVersion != e.seen.Metadata.ResourceVersion || e.seenAt.IsZero() {
			e.seen, e.seenAt = l, now
		}
		if holder := l.Spec.HolderIdentity; holder != "" && holder != e.Identity && now.Sub(e.seenAt) < duration {
			return false, nil
		}
	}
	l := e.seen
	at := &kube.MicroTime{Time: now}
	if l.Spec.HolderIdentity != e.Identity {
		l.Spec.AcquireTime = at
		l.Spec.LeaseTransitions++
	}
	l.Spec.HolderIdentity, l.Spec.RenewTime, l.Spec.LeaseDurationSeconds = e.Identity, at, int(duration/time.Second)
	return e.put(ctx, l, now)
}

// put writes the Lease on the condition that it is as it was seen.
func (e *Election) put(ctx context.Context, l kube.Lease, now time.Time) (done bool, err error) {
	stored, err := e.API.PutLease(ctx, l)
	switch {
	case err == nil:
		e.seen, e.seenAt = stored, now
		return true, nil
	case kube.Is(err, http.StatusConflict), kube.Is(err, http.StatusNotFound):
		// Another was faster, or it was deleted. It is read again.
		e.seen, e.seenAt = kube.Lease{}, time.Time{}
		return false, nil
	}
	// It may be written: then the next try is refused, and it is read again.
	return false, err
}

// Release lets another lead at once.
func (e *Election) Release(ctx context.Context) error {
	if e.seen.Spec.HolderIdentity != e.Identity {
		return nil
	}
	l := e.seen
	l.Spec.HolderIdentity, l.Spec.LeaseDurationSeconds = "", 1
	_, err := e.put(ctx, l, time.Now())
	return err
}
