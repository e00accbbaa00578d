package lease

import (
	"testing"
	"time"
)

// Only what a newcomer keeps is told to it, spread over five seconds; and what it took over
// is told again to whoever takes it over when it goes.
func TestComeAndGo(t *testing.T) {
	l := newLab(t, 20)
	const n = 500
	for i := range n {
		l.set(i)
	}
	l.ackDue()
	newcomer := l.join("newcomer", 1)
	begun := l.now
	sends, times := l.until(begun.Add(6 * time.Second))
	if len(sends) < n*3/22/2 || len(sends) > n*3/22*2 {
		t.Errorf("told the newcomer %d leases, about %d expected", len(sends), n*3/22)
	}
	for _, s := range sends {
		if s.To != newcomer {
			t.Fatalf("told %s", s.To.Name)
		}
	}
	first, last := times[0].Sub(begun), times[len(times)-1].Sub(begun)
	if first > time.Second || last < 4*time.Second || last > moveSpread+grid {
		t.Errorf("told between %v and %v", first, last)
	}

	kept := len(sends)
	l.leave(newcomer)
	begun = l.now
	sends, _ = l.until(begun.Add(6 * time.Second))
	if len(sends) != kept {
		t.Errorf("told %d leases anew, it had kept %d", len(sends), kept)
	}
	for _, s := range sends {
		if s.To == newcomer {
			t.Fatal("told the one that went")
		}
	}
	// The keepers are the same as if nobody had come.
	for _, le := range l.leases {
		want := l.r.Ring.Pick(nil, le.hash, 3)
		for i, k := range le.keepers {
			if k.Pick != want[i] {
				t.Fatalf("%v is kept by %v, want %v", le.id.Key.IP, le.keepers, want)
			}
		}
	}
}

// What nobody else knows yet is told without much ado.
func TestFirstContact(t *testing.T) {
	l := newLab(t, 0)
	for i := range 100 {
		l.set(i)
	}
	l.ackDue()
	l.join("n0", 1)
	if sends, _ := l.until(start.Add(firstSpread + grid)); len(sends) != 100 {
		t.Errorf("told the first %d leases in time", len(sends))
	}
	l.join("n1", 1)
	begun := l.now
	if sends, _ := l.until(begun.Add(firstSpread + grid)); len(sends) > 50 {
		t.Errorf("told the second %d leases in a hurry", len(sends))
	}
}

// A new incarnation of a keeper has forgotten everything.
func TestKeeperRenewed(t *testing.T) {
	l := newLab(t, 2)
	l.set(1)
	l.set(2)
	l.ackDue()
	l.Withdraw(l.id(2), l.now)
	l.join("n1", 2)
	sends, _ := l.until(start.Add(6 * time.Second))
	want := 0
	for _, s := range sends {
		if s.To.Name == "n1" {
			want++
			if s.Lease.Key != key(1) {
				t.Error("told of a withdrawal of what it never knew")
			}
		}
	}
	if want != 1 {
		t.Errorf("told %d times", want)
	}
}

// What finds no room waits, and is leased when there is some.
func TestBounds(t *testing.T) {
	l := newLab(t, 0)
	for i := range MaxLeases {
		l.set(i)
	}
	if l.Full() {
		t.Error("it is full too early")
	}
	for i := range 3 {
		l.set(MaxLeases + i)
	}
	first, second, third := l.id(MaxLeases), l.id(MaxLeases+1), l.id(MaxLeases+2)
	if !l.Full() || l.Len() != MaxLeases || l.Has(first.Key) || !l.Live(first) {
		t.Errorf("full is %v with %d leases", l.Full(), l.Len())
	}
	l.ackDue()
	l.set(MaxLeases + 1) // told again, it waits on
	l.Withdraw(second, l.now)
	if l.Live(second) {
		t.Error("withdrawn while it waits, it is there")
	}
	l.Withdraw(l.id(1), l.now)
	l.ackDue()
	if next := l.Next(); next.IsZero() || next.After(l.now) {
		t.Errorf("next at %v, %v after there was room", next, l.now)
	}
	l.ackDue()
	if l.Has(first.Key) == l.Has(third.Key) || !l.Full() || l.Len() != MaxLeases {
		t.Error("one of two that wait is to be leased")
	}
	l.Withdraw(l.id(2), l.now)
	l.ackDue()
	sends := l.ackDue()
	if !l.Has(first.Key) || !l.Has(third.Key) || l.Has(second.Key) || l.Full() || len(sends) != 1 {
		t.Errorf("full is %v, sent %v", l.Full(), sends)
	}
}

// There is an end to what waits, too.
func TestWaitingIsBounded(t *testing.T) {
	l := newLab(t, 0)
	n := uint64(0)
	for l.Set(key(1), l.claim(n+1), l.now) {
		n++
	}
	if n != MaxLeases+MaxWaiting {
		t.Errorf("%d leases, those that wait included", n)
	}
}

// A storm is taken in portions.
func TestPortions(t *testing.T) {
	l := newLab(t, 10)
	for i := range 1000 {
		l.set(i)
	}
	total := 0
	for range 100 {
		n := len(l.Due(nil, l.now, 100))
		if n > 103 {
			t.Fatalf("a portion of %d", n)
		}
		total += n
	}
	if total != 3000 {
		t.Errorf("sent %d", total)
	}
}
