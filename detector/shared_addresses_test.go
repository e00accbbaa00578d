package detector

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// sharedTests have an address that is declared shared for a while.
var sharedTests = []scriptTest{
	{
		name: "two holders of a shared address",
		script: `0s agent shares
			0s a announces
			1s b announces
			2s c sends`,
		verdict: "3 live holders, but declared shared: not a conflict",
	},
	{
		name: "a suspicion fades when the address is declared shared",
		script: `0s a unmute
			0s b guarded x
			0s a announces
			0s b announces
			5s agent shares`,
		want: `0s suspected a b
			5s faded a b`,
		verdict: "two live holders, but declared shared: not a conflict",
	},
	{
		name: "a conflict is resolved when the address is declared shared",
		script: `0s a announces
			0s b announces
			5s agent shares`,
		want: `0s suspected a b
			1s confirmed a b
			5s resolved a b`,
		verdict: "two live holders, but declared shared: not a conflict; the last conflict is resolved",
	},
	{
		name: "suspected when the address is not shared any more",
		script: `0s agent shares
			0s a announces
			0s b announces
			100s agent unshares`,
		want: `1m40s suspected a b
			1m41s confirmed a b`,
	},
	{
		name: "one holder when the address is not shared any more",
		script: `0s agent shares
			0s a announces
			100s agent unshares`,
		verdict: "one live holder: not a conflict",
	},
	{
		name: "another address is shared",
		script: `0s agent shares 10.0.0.2
			0s a announces
			0s b announces`,
		want: `0s suspected a b
			1s confirmed a b`,
	},
	{
		name: "a restored conflict is resolved when the address is declared shared",
		script: confirmedThenRestarted + `20s agent shares
			21s a announces
			21s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			20s resolved a b`,
	},
}

// The detector counts each suspicion that it does not raise, because the address is shared or all but
// one of the holders forward it. It counts once until the reason ends.
func TestSuppressionsAreCounted(t *testing.T) {
	tests := []struct {
		name, script      string
		shared, forwarded uint64
	}{
		{"one holder", `0s a announces`, 0, 0},
		{"two share", `0s agent shares
			0s a announces
			0s b announces
			1s a announces
			1s b sends
			2s c announces
			3s c gone`, 1, 0},
		{"two share, twice", `0s agent shares
			0s a announces
			0s b announces
			5s b gone
			6s b announces`, 2, 0},
		{"nodes only", `0s agent shares
			0s host1 announces
			0s host2 announces`, 0, 0},
		{"declared shared later", `0s a announces
			0s b announces
			5s agent shares
			6s agent shares 10.0.0.2`, 1, 0},
		{"shared, not shared, shared", `0s agent shares
			0s a announces
			0s b announces
			5s agent unshares
			9s agent shares`, 2, 0},
		{"a router", `0s a announces
			0s r forwards
			1s r forwards
			2s a announces`, 0, 1},
		{"a router is first", `0s r forwards
			1s a announces
			1s q forwards`, 0, 1},
		{"routers only", `0s r forwards
			0s q forwards`, 0, 0},
		{"a router beside a node", `0s host1 announces
			0s r forwards`, 0, 1},
		{"a router comes and goes", `0s a announces
			0s r forwards
			1s r gone
			2s r forwards`, 0, 2},
		{"a router beside a conflict", `0s a announces
			0s b announces
			2s r forwards`, 0, 0},
		{"a router beside a conflict that goes on", `0s a announces
			0s b announces
			2s r forwards
			3s b gone
			4s b changes-interface
			4s b announces`, 0, 0},
		{"a router stays after a conflict", `0s a announces
			0s b announces
			2s r forwards
			3s b gone`, 0, 1},
		{"found forwarding by its silence", `0s a announces
			0s r spoofs
			10s r spoofs`, 0, 1},
		{"a router beside a shared address", `0s agent shares
			0s a announces
			0s b announces
			0s r forwards`, 1, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.play(tt.script, 10*time.Second)
			w.mustAudit()
			got := w.d.Counts().Suppressed
			if got[suppressedShared] != tt.shared || got[suppressedForwarded] != tt.forwarded || len(got) != 3 {
				t.Errorf("suppressed %v, want %d shared, %d forwarded", got, tt.shared, tt.forwarded)
			}
		})
	}
}

// SetShared(nil) declares no address shared.
func TestSetSharedNil(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s agent shares
		0s a announces
		0s b announces`, time.Second)
	w.apply(w.d.SetShared(nil, w.now))
	if n := len(w.d.Conflicts(false)); n != 1 {
		t.Errorf("%d open conflicts, want 1", n)
	}
}

func TestSetLimits(t *testing.T) {
	const perInterface, table = 5, 8 // limits below the number of bindings
	tests := []struct {
		name                   string
		bindings, perInterface int // the limits; zero for the default
		sighting               string
		want                   int // bindings afterwards
		refused                string
	}{
		{"an interface that is over its limit gets no binding", 0, perInterface, "a sends", 10, refusedInterfaceFull},
		{"stronger evidence replaces a binding of the interface", 0, perInterface, "a announces", 10, ""},
		{"a table that is over its limit gets no binding", table, 0, "b sends", 10, refusedTableFull},
		{"stronger evidence replaces a binding of the table", table, 0, "b announces", 10, ""},
		{"negative limits are the defaults", -1, -1, "a sends", 11, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{MaxBindings: 20, MaxPerInterface: 20})
			for i := range 10 {
				w.do(fmt.Sprintf("0s a sends %s", ipv4(i)))
			}
			w.d.SetLimits(tt.bindings, tt.perInterface, -1)
			w.do(fmt.Sprintf("0s %s %s", tt.sighting, ipv4(20)))
			if n := len(w.d.Bindings(nil)); n != tt.want {
				t.Errorf("%d bindings, want %d", n, tt.want)
			}
			name, _, _ := strings.Cut(tt.sighting, " ")
			if known := w.d.Holds(Key{"default", ipv4(20)}, w.actor(name).id); known != (tt.refused == "") {
				t.Errorf("the new address is known: %v", known)
			}
			for refusal, n := range w.d.Counts().Refused {
				if want := refusal == tt.refused; n != 0 && !want || n != 1 && want {
					t.Errorf("%d refused: %s", n, refusal)
				}
			}
			if tt.bindings <= 0 && w.d.table.opts.MaxBindings != defaultMaxBindings || w.d.table.opts.MaxHistory != defaultMaxHistory {
				t.Errorf("limits %+v, want the defaults", w.d.table.opts)
			}
			w.d.SetLimits(20, 20, 0) // what the 10 bindings need
			w.mustAudit()
		})
	}
}

// SetLimits forgets the oldest conflicts and stories that exceed the limit of the history.
func TestSetLimitsCutsTheHistory(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 12 {
		for _, name := range []string{"a", "b"} {
			if i < 6 {
				w.do(fmt.Sprintf("0s %s%d announces %s", name, i, ipv4(i)))
			}
		}
		w.run(w.now.Add(2 * time.Second))
		w.do(fmt.Sprintf("0s c%d announces %s", i, ipv4(100+i))) // an address without a conflict
		for _, name := range []string{"a", "b", "c"} {
			w.do(fmt.Sprintf("0s %s%d gone", name, i))
		}
		w.run(w.now.Add(4 * time.Second))
	}
	if n := w.d.Counts().History; n != 6 || w.d.table.idle.Len() != 12 {
		t.Fatalf("%d in the history, %d stories", n, w.d.table.idle.Len())
	}
	w.d.SetLimits(0, 0, 2)
	w.mustAudit()
	all := w.d.Conflicts(true)
	if len(all) != 2 || all[0].Key.IP != ipv4(5) || all[1].Key.IP != ipv4(4) {
		t.Errorf("kept %+v", all)
	}
	if w.d.table.idle.Len() != 2 || len(w.d.table.entries) != 4 {
		t.Errorf("%d stories, %d entries", w.d.table.idle.Len(), len(w.d.table.entries))
	}
}
