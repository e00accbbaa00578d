package gossip

import (
	"slices"
	"testing"
	"time"
)

// Datagrams and calls are handled in the order in which they came, so many in a turn. One sign wakes the loop for each.
func TestInputTurns(t *testing.T) {
	for _, test := range []struct {
		come  int
		turns []int
	}{
		{0, nil}, {maxTaken, []int{maxTaken}}, {maxTaken + 1, []int{maxTaken, 1}}, {3 * maxTaken, []int{maxTaken, maxTaken, maxTaken}},
	} {
		in := &input{count: newCounters(), wake: make(chan struct{}, 1)}
		next := 0
		for i := range test.come {
			add := in.call
			if i%3 == 0 {
				add = in.packet
			}
			add(func(now time.Time) {
				if next++; next != i+1 || !now.Equal(noon) {
					t.Errorf("%d comes as %d, at %v", i+1, next, now)
				}
			})
		}
		var turns []int
		for len(in.wake) > 0 {
			<-in.wake
			taken := in.take()
			for _, task := range taken {
				task.do(noon)
			}
			turns = append(turns, len(taken))
		}
		if !slices.Equal(turns, test.turns) || next != test.come || in.packets != 0 || in.calls != 0 {
			t.Errorf("of %d that came the turns took %v, want %v; %d datagrams and %d calls wait", test.come, turns, test.turns, in.packets, in.calls)
		}
	}
}

// Datagrams and calls have a bound each, so that neither keeps the others out; what is taken makes room.
func TestInputFull(t *testing.T) {
	in := &input{count: newCounters(), wake: make(chan struct{}, 1)}
	nothing := func(time.Time) {}
	accepted := func(add func(func(time.Time)) bool, tries int) (n int) {
		for range tries {
			if add(nothing) {
				n++
			}
		}
		return n
	}
	if d, c := accepted(in.packet, maxPackets+3), accepted(in.call, maxCalls+4); d != maxPackets || c != maxCalls {
		t.Errorf("%d datagrams and %d calls are accepted, want %d and %d", d, c, maxPackets, maxCalls)
	}
	if dropped, _, _ := in.count.read(); dropped[dropInbox] != 3 || dropped[dropCalls] != 4 {
		t.Errorf("dropped %v", dropped)
	}
	taken := in.take() // of the datagrams, which came first
	if d, c := accepted(in.packet, maxPackets), accepted(in.call, 1); d != len(taken) || c != 0 {
		t.Errorf("%d datagrams and %d calls are accepted after %d were taken", d, c, len(taken))
	}
}
