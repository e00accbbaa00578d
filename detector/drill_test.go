package detector

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestIsForDrills(t *testing.T) {
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
		if got := (Key{tt.network, netip.MustParseAddr(tt.ip)}).IsForDrills(); got != tt.want {
			t.Errorf("%s in %s: %t", tt.ip, tt.network, got)
		}
	}
	if (Key{Network: "default"}).IsForDrills() {
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

// A cluster that uses the addresses of drills has conflicts.
func TestIsDrill(t *testing.T) {
	for name, tt := range map[string]struct {
		scope Scope
		given []Given
		want  bool
	}{
		"a drill":                      {CrossNode, []Given{GivenNo, GivenUnknown}, true},
		"a plugin gave it to a holder": {SameNode, []Given{GivenNo, GivenYes}, false},
		"a node has it":                {PodHost, []Given{GivenNo, GivenUnknown}, false},
	} {
		c := Conflict{Key: Key{"default", netip.MustParseAddr("192.0.2.7")}, Scope: tt.scope}
		for _, given := range tt.given {
			c.Holders = append(c.Holders, Binding{Holder: Holder{Given: given}})
		}
		if got := c.IsDrill(); got != tt.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// Who makes many short conflicts or drills replaces nobody else's in the history, also after a restart.
func TestHistoryIsShared(t *testing.T) {
	for what, address := range map[string]string{"drills": "192.0.2.%d", "conflicts of the same two": "10.0.9.%d"} {
		w := newWorld(t, Options{MaxHistory: 20})
		w.play(`0s c announces
			0s d announces
			3s c loses`, 20*time.Second)
		for n := range 30 {
			ip := fmt.Sprintf(address, n)
			w.do("0s a announces " + ip)
			w.do("0s b announces " + ip)
			w.run(w.now.Add(3 * time.Second))
			w.do("0s a loses " + ip)
			w.run(w.now.Add(20 * time.Second))
			w.do("0s b loses " + ip)
			w.mustAudit()
		}
		again := New(Options{Node: w.d.table.opts.Node, MaxHistory: 20})
		again.Restore(w.d.Snapshot(), w.now)
		for _, d := range []*Detector{w.d, again} {
			all := d.Conflicts(true)
			if len(all) != 20 || all[0].Key.IP.String() != fmt.Sprintf(address, 29) || all[19].Key.IP != defaultIP {
				t.Errorf("%s: %d conflicts: %+v", what, len(all), all)
			}
		}
	}
}

// The history drops the earlier conflicts of an address before its last one, from whose number the next id is made.
func TestHistoryKeepsTheLast(t *testing.T) {
	w := newWorld(t, Options{MaxHistory: 20})
	conflict := func(a, b, ip string) {
		w.do("0s " + a + " announces " + ip)
		w.do("0s " + b + " announces " + ip)
		w.run(w.now.Add(3 * time.Second))
		w.do("0s " + a + " loses " + ip)
		w.run(w.now.Add(20 * time.Second))
		w.do("0s " + b + " loses " + ip)
		w.mustAudit()
	}
	for n := range 40 {
		ip := fmt.Sprintf("10.0.9.%d", n)
		if n < 25 {
			conflict("c", "d", ip)
		}
		conflict("a", "b", ip)
	}
	kept := make(map[Key][]string)
	for _, c := range w.d.Conflicts(true) {
		kept[c.Key] = append(kept[c.Key], c.ID)
	}
	again := New(Options{Node: w.d.table.opts.Node, MaxHistory: 20})
	again.Restore(w.d.Snapshot(), w.now)
	several := 0
	for key, ids := range kept {
		if want := w.d.table.entries[key].occurrences; !strings.HasSuffix(ids[0], fmt.Sprint("-", want)) || again.table.entries[key].occurrences != want {
			t.Errorf("%v: %v of %d; %d after a restart", key.IP, ids, want, again.table.entries[key].occurrences)
		}
		several += len(ids) - 1
	}
	if again.Counts().History != 20 || several == 0 {
		t.Errorf("%d conflicts after a restart, %d of addresses with a later one", again.Counts().History, several)
	}
}
