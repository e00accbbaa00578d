package links

import (
	"testing"
	"testing/synctest"
	"time"
)

// An action is ready when it is due and the pause is over.
func TestPacer(t *testing.T) {
	now := time.Unix(1000, 0)
	later := now.Add(time.Hour)
	p := pacer{}
	if p.ready(now) || p.earlier(later) != later {
		t.Error("ready, but not due")
	}
	p.due = true
	if !p.ready(now) || p.earlier(later).After(now) {
		t.Error("not ready at first")
	}
	p.pause(now, time.Second)
	if p.ready(later) || p.earlier(later) != later {
		t.Error("ready again, but not due again")
	}
	p.due = true
	if next := now.Add(time.Second); p.ready(next.Add(-1)) || !p.ready(next) || p.earlier(later) != next || p.earlier(now) != now {
		t.Errorf("not ready after the pause: %+v", p)
	}
}

// The pause is in proportion to the duration of the action.
func TestPauseAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, test := range []struct{ took, want time.Duration }{
			{0, minPause}, {time.Second, 50 * time.Second},
		} {
			p := pacer{due: true}
			began := time.Now()
			time.Sleep(test.took)
			p.pauseAfter(began, 50)
			if got := time.Until(p.next); got != test.want || p.due {
				t.Errorf("after %v: next in %v, due %t; want %v, false", test.took, got, p.due, test.want)
			}
		}
	})
}

// The pause doubles with each failure, up to maxRetry.
func TestScansAfterFailures(t *testing.T) {
	now := time.Unix(1000, 0)
	s := newScans(now)
	if !s.ready(now) {
		t.Error("the first scan is not due at once")
	}
	for n, want := range []time.Duration{20, 40, 80, 160, 320, 640, 1280, 2000, 2000} {
		s.done(now, 0, true)
		if got := s.next.Sub(now); !s.due || got != want*time.Millisecond || s.unseen() != (n+1 >= unseenAfter) {
			t.Errorf("after failure %d: due %t in %v, unseen %t; want %v", n+1, s.due, got, s.unseen(), want*time.Millisecond)
		}
		now = s.next
	}
	if s.done(now, 0, false); s.due || s.unseen() {
		t.Errorf("after a success: due %t, unseen %t", s.due, s.unseen())
	}
	if s.done(now, 0, true); s.next.Sub(now) > time.Second/scanRate || !s.due {
		t.Errorf("the first failure after it: due %t in %v", s.due, s.next.Sub(now))
	}
}

// A pod whose addresses change all the time, or that has many, is scanned less often.
func TestScansArePaced(t *testing.T) {
	for _, test := range []struct {
		name string
		cost time.Duration
		want int // in 10 s
	}{
		{"many changes", 0, scanBurst + 10*scanRate},
		{"many addresses", 50 * time.Millisecond, 10},
	} {
		now := time.Unix(1000, 0)
		s := newScans(now)
		count := 0
		for end := now.Add(10 * time.Second); now.Before(end); now = now.Add(time.Millisecond) {
			if s.due = true; s.ready(now) {
				s.done(now, test.cost, false)
				count++
			}
		}
		if count < test.want*8/10 || count > test.want*12/10 {
			t.Errorf("%s: %d scans in 10 s, want about %d", test.name, count, test.want)
		}
	}
}
