package pods

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const far = time.Hour // until the next ordinary list

func newSchedule(now time.Time) *schedule {
	return &schedule{pending: make(map[uint64]struct{}), ordinary: now.Add(far)}
}

// A pending netns leads to a few lists with growing pauses.
func TestPendingLeadsToLists(t *testing.T) {
	now := time.Unix(0, 0)
	s := newSchedule(now)
	s.request(1, now)
	var got []time.Duration
	for s.next().Sub(now) < far {
		got = append(got, s.next().Sub(now))
		now = s.next()
		s.ended(now, far)
	}
	if diff := cmp.Diff(pauses, got); diff != "" {
		t.Errorf("pauses (-want +got):\n%s", diff)
	}
	if got := s.next().Sub(now); got != far {
		t.Errorf("the next ordinary list is due in %v, want %v", got, far)
	}
	if s.request(1, now); s.next().Sub(now) != far {
		t.Error("one cookie is new twice")
	}
	// The next one starts again with the first pause. A netns with a name leads to no list.
	s.request(2, now)
	if got := s.next().Sub(now); got != pauses[0] {
		t.Errorf("the next cookie waits %v, want %v", got, pauses[0])
	}
	clear(s.pending)
	if got := s.next().Sub(now); got != far {
		t.Errorf("a list is due in %v though nothing is pending", got)
	}
	s.ended(now, far)
	for i := range uint64(3 * maxPending) {
		s.request(i, now)
	}
	if len(s.pending) > maxPending {
		t.Errorf("%d cookies, want at most %d", len(s.pending), maxPending)
	}
}

// A requested list is due at once, but at most once in relistPause.
func TestRelist(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newSchedule(now)
	due := func(what string, want time.Duration) {
		t.Helper()
		if got := s.next().Sub(now); got != want {
			t.Errorf("%s: due in %v, want %v", what, got, want)
		}
	}
	due("nothing is asked for", far)
	s.relist(now)
	due("asked for", 0)
	s.began(now)
	due("it is being read", far)
	s.relist(now.Add(time.Second))
	s.relist(now.Add(2 * time.Second))
	due("asked for a second after it began", relistPause)
	s.request(1, now)
	due("a netns without a name goes before it", pauses[0])
	s.ended(now, far)
	due("a list for that", pauses[1])
	s.ended(now, time.Millisecond)
	due("the ordinary one", time.Millisecond)
}
