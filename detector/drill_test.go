package detector

import (
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIsDrill(t *testing.T) {
	for _, tt := range []struct {
		network, ip string
		want        bool
	}{
		{"default", "192.0.2.0", true},
		{"default", "192.0.2.255", true},
		{"default", "192.0.3.0", false},
		{"default", "192.0.1.255", false},
		{"default", "2001:db8::1", false},
		{"storage", "192.0.2.7", false},
	} {
		if got := (Key{tt.network, netip.MustParseAddr(tt.ip)}).IsDrill(); got != tt.want {
			t.Errorf("%s in %s: %t", tt.ip, tt.network, got)
		}
	}
	if (Key{Network: "default"}).IsDrill() {
		t.Error("no address is a drill")
	}
}

// A drill is found as any other conflict, and no figure of conflicts counts it.
func TestDrillsAreCountedApart(t *testing.T) {
	w := newWorld(t, Options{})
	before := w.d.Counts()
	w.play(`0s a announces 192.0.2.7
		0s b announces 192.0.2.7
		5s c announces 192.0.2.8
		5s b spoofs 192.0.2.8`, 500*time.Millisecond)
	n := w.d.Counts()
	if diff := cmp.Diff(map[State]int{Confirmed: 1, Suspected: 1}, n.Drills); diff != "" {
		t.Errorf("drills (-want +got):\n%s", diff)
	}
	w.play(`6s a loses 192.0.2.7
		6s c loses 192.0.2.8`, time.Minute)
	if all := w.d.Conflicts(true); len(all) != 1 || all[0].State != Resolved {
		t.Errorf("the history: %+v, want the drill that was confirmed", all)
	}
	after := w.d.Counts()
	for _, got := range []Counts{n, after} {
		if diff := cmp.Diff(before.Open, got.Open); diff != "" {
			t.Errorf("open (-before +now):\n%s", diff)
		}
		if diff := cmp.Diff(before.Confirmed, got.Confirmed); diff != "" || got.Suspected+got.Faded+got.Resolved != 0 {
			t.Errorf("totals %+v", got)
		}
	}
	if after.Drills[Confirmed]+after.Drills[Suspected] != 0 {
		t.Errorf("drills %v, want none", after.Drills)
	}
}
