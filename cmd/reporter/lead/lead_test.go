package lead

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
)

// store is the API server's rule for one Lease: who writes must have read the present version.
type store struct {
	mu      sync.Mutex
	lease   *kube.Lease
	version int
	away    map[string]bool // who cannot reach it
}

// view is the store as one candidate reaches it.
type view struct {
	*store
	name string
}

func (v view) Lease(context.Context, string, string) (kube.Lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away[v.name] {
		return kube.Lease{}, errors.New("timeout")
	}
	if v.lease == nil {
		return kube.Lease{}, &kube.StatusError{Code: http.StatusNotFound}
	}
	return *v.lease, nil
}

func (v view) PutLease(_ context.Context, l kube.Lease) (kube.Lease, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.away[v.name] {
		return kube.Lease{}, errors.New("timeout")
	}
	if v.lease == nil || l.Metadata.ResourceVersion != v.lease.Metadata.ResourceVersion {
		return kube.Lease{}, &kube.StatusError{Code: http.StatusConflict}
	}
	v.version++
	l.Metadata.ResourceVersion = fmt.Sprint(v.version)
	v.lease = &l
	return l, nil
}

func (s *store) cut(name string, away bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.away[name] = away
}

// TestElection: at any time one at most leads, and a successor is there soon.
func TestElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{lease: new(kube.Lease), away: make(map[string]bool)}
		candidates := make(map[string]*Election)
		stops := make(map[string]func())
		for _, name := range []string{"a", "b", "c"} {
			e := &Election{API: view{s, name}, Namespace: "dupip", Name: "lease", Identity: name}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { defer close(ended); e.Run(ctx) }()
			candidates[name], stops[name] = e, func() { cancel(); <-ended }
		}
		leader := func() (found string) {
			for name, e := range candidates {
				if time.Now().Before(e.Until()) {
					if found != "" {
						t.Fatalf("%s and %s lead", found, name)
					}
					found = name
				}
			}
			return found
		}
		// within is how long it takes until another than one leads.
		within := func(than string, most time.Duration) (name string) {
			t.Helper()
			begin := time.Now()
			for name = leader(); name == "" || name == than; name = leader() {
				if time.Since(begin) > most {
					t.Fatalf("nobody leads after %v", most)
				}
				time.Sleep(50 * time.Millisecond)
			}
			return name
		}
		first := within("", time.Second)
		for range 1000 {
			time.Sleep(100 * time.Millisecond)
			if got := leader(); got != first {
				t.Fatalf("%q leads after %s", got, first)
			}
		}

		// One that does not reach the API server any more.
		s.cut(first, true)
		second := within(first, duration+2*every)
		s.cut(first, false)
		time.Sleep(time.Minute)
		if got := leader(); got != second {
			t.Errorf("%q leads, and %s did", got, second)
		}
		if _, err := candidates[first].State(); err != nil {
			t.Error(err)
		}

		// One that ends hands over at once.
		stops[second]()
		if err := candidates[second].Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		delete(candidates, second)
		third := within("", every)

		// Somebody deletes the Lease.
		s.mu.Lock()
		s.lease = nil
		s.mu.Unlock()
		time.Sleep(valid + every)
		if _, err := candidates[third].State(); leader() != "" || err == nil || !strings.Contains(err.Error(), `"helm upgrade" makes it again`) {
			t.Errorf("without the Lease %q leads: %v", leader(), err)
		}
		s.mu.Lock()
		s.lease = new(kube.Lease)
		s.mu.Unlock()
		within("", every)
		for name := range candidates {
			stops[name]()
			if err := candidates[name].Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if s.lease.Spec.HolderIdentity != "" || s.lease.Spec.LeaseTransitions < 1 {
			t.Errorf("after %s: %+v", third, s.lease.Spec)
		}
	})
}
