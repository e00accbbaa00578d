package detector

import (
	"net/netip"
	"testing"
	"time"
)

// A conflict that stays is probed less often after a minute, and its end is still found.
func TestOldConflictsAreProbedSeldom(t *testing.T) {
	d := New(Options{Node: "n"})
	key := Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")}
	start := time.Unix(1_000_000, 0)
	observe := func(netns uint64, answer bool, now time.Time) Effects {
		return d.Observe(Sighting{
			Key: key, Holder: Holder{ID: HolderID{Node: "n", Netns: netns}, Interface: Interface{Ifindex: uint32(netns), Generation: 1}},
			Evidence: Announced, Answer: answer, At: now,
		}, now)
	}
	probed, silent := 0, uint64(0)
	var confirmed, resolved time.Time
	// carry answers each probe at once, unless its holder is silent.
	var carry func(fx Effects, now time.Time)
	carry = func(fx Effects, now time.Time) {
		for _, event := range fx.Events {
			switch event.Kind {
			case EventConfirmed:
				confirmed = now
			case EventResolved:
				resolved = now
			}
		}
		for _, s := range fx.Probes {
			probed++
			d.Probed(s, Result{Outcome: Sent}, now)
			if s.Holder.Netns != silent {
				carry(observe(s.Holder.Netns, true, now), now)
			}
		}
	}
	carry(observe(1, false, start), start)
	carry(observe(2, false, start), start)
	advance := func(until time.Time) {
		for next := d.Next(); !next.IsZero() && !next.After(until); next = d.Next() {
			carry(d.Tick(next), next)
		}
	}
	advance(start.Add(time.Hour))
	if confirmed.IsZero() || !resolved.IsZero() {
		t.Fatalf("confirmed %v, resolved %v: want a conflict that stays", confirmed, resolved)
	}
	// Two rounds, twelve re-checks of the first minute, two a minute after it, and two holders.
	if probed > 2*(2+12+2*60) || probed < 2*60 {
		t.Errorf("probed %d times in an hour", probed)
	}
	silent = 2
	advance(start.Add(time.Hour + time.Minute))
	if resolved.IsZero() || resolved.Sub(start.Add(time.Hour)) > 45*time.Second {
		t.Errorf("resolved %v after the silence began, want at most 45s", resolved.Sub(start.Add(time.Hour)))
	}
}
