package members

import (
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/gossip/wire"
)

// acquainted are strangers to one who knows these, of ten members.
func acquainted(known ...wire.MemberID) *strangers {
	return newStrangers(func(id wire.MemberID) bool { return slices.Contains(known, id) }, func() int { return 10 })
}

// Each exchange is of the whole list: whoever cannot be told of is asked for seldom, and many
// of them not more often.
func TestStrangersCostLittle(t *testing.T) {
	for name, who := range map[string]func(n int) wire.MemberID{
		"one":        func(int) wire.MemberID { return 1 },
		"some":       func(n int) wire.MemberID { return wire.MemberID(n % 1000) },
		"always new": func(n int) wire.MemberID { return wire.MemberID(n) },
	} {
		const friend, other = 1 << 40, 1 << 41
		var knows bool
		s := newStrangers(func(id wire.MemberID) bool { return knows && id == friend }, func() int { return 10 })
		now, asked := time.Now(), 0
		for n := range 36_000 { // an hour
			now = now.Add(100 * time.Millisecond)
			s.note(who(n), now)
			if due := s.due(); !due.IsZero() && !due.After(now) {
				s.asked(now, true)
				asked++
			}
			if len(s.heard) > maxStrangers || len(s.vain) > maxStrangers {
				t.Fatalf("%s: %d wait and %d were not found", name, len(s.heard), len(s.vain))
			}
		}
		// After some pauses that double, one every five minutes.
		if asked < 10 || asked > 20 {
			t.Errorf("%s: asked %d times in an hour", name, asked)
		}
		// One that is found is worth asking for: the next is asked for soon.
		now = now.Add(askLimit + time.Minute)
		s.note(friend, now)
		knows = true
		if found := s.asked(now, true); found != 1 {
			t.Errorf("%s: %d are found, want 1", name, found)
		}
		s.note(other, now)
		if due := s.due(); due.After(now.Add(askPause * 6 / 5)) {
			t.Errorf("%s: after one was found the next is asked for in %v", name, due.Sub(now))
		}
	}
}

// Whoever is known by now is not asked for.
func TestStrangersThatBecomeKnown(t *testing.T) {
	var known bool
	s, now := newStrangers(func(wire.MemberID) bool { return known }, func() int { return 2 }), time.Now()
	s.note(1, now)
	if due := s.due(); due.Before(now.Add(newsTime)) || due.After(now.Add(newsTime*5/4)) {
		t.Errorf("due in %v, want %v and up to a quarter more", due.Sub(now), newsTime)
	}
	known = true
	if due := s.due(); !due.IsZero() {
		t.Errorf("one that has become known is due in %v", due.Sub(now))
	}
	s.note(2, now)
	if due := s.due(); !due.IsZero() {
		t.Errorf("one that is known is due in %v", due.Sub(now))
	}
}

// The one that is asked may have missed the news as well: three are, before a stranger is given
// up. Nobody's answer says nothing, nor one before the news had time.
func TestStrangersAreGivenUp(t *testing.T) {
	s, now := acquainted(), time.Now()
	s.note(1, now)
	s.asked(now.Add(newsTime/2), true)
	later := now.Add(newsTime * 2)
	for range 10 {
		s.asked(later, false)
	}
	if s.pause > 2*askPause || s.heard[1].asked != 0 {
		t.Errorf("nobody answered, and the pause is %v, the stranger asked for %d times", s.pause, s.heard[1].asked)
	}
	for n := range maxAsked {
		if len(s.heard) != 1 || len(s.vain) != 0 {
			t.Fatalf("given up after %d", n)
		}
		s.asked(later, true)
	}
	if s.note(1, later); len(s.heard) != 0 || len(s.vain) != 1 {
		t.Error("not given up")
	}
	if s.note(1, later.Add(askLimit)); len(s.heard) != 1 {
		t.Error("given up for ever")
	}
}

// Those that are known take nothing from what strangers may.
func TestKnownMembersAreNoStrangers(t *testing.T) {
	s, now := acquainted(1), time.Now()
	for range 10 * strangerBurst {
		s.note(1, now)
	}
	if s.note(2, now); len(s.heard) != 1 {
		t.Error("a stranger is not noted after many packets of a member")
	}
}

func TestShortestPause(t *testing.T) {
	for n, want := range map[int]time.Duration{2: askPause, 32: askPause, 33: 2 * askPause, 5000: 9 * askPause} {
		if got := shortestPause(n); got != want {
			t.Errorf("of %d members one is asked every %v, want %v", n, got, want)
		}
	}
}
