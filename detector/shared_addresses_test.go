package detector

import (
	"fmt"
	"testing"
	"time"
)

// sharing are addresses declared shared.
var sharing = []story{
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
		verdict: "2 live holders, but declared shared: not a conflict",
	},
	{
		name: "a conflict is over when the address is declared shared",
		script: `0s a announces
			0s b announces
			5s agent shares`,
		want: `0s suspected a b
			1s confirmed a b
			5s resolved a b`,
		verdict: "2 live holders, but declared shared: not a conflict; the last conflict is resolved",
	},
	{
		name: "no longer shared",
		script: `0s agent shares
			0s a announces
			0s b announces
			100s agent unshares`,
		want: `1m40s suspected a b
			1m41s confirmed a b`,
	},
	{
		name: "no longer shared, with one holder",
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
		name: "a restored conflict is over when the address is declared shared",
		script: before + `20s agent shares
			21s a announces
			21s b announces`,
		want: `0s suspected a b
			1s confirmed a b
			20s resolved a b`,
	},
}

// What is not suspected is counted, once for as long as it lasts.
func TestSuppressionsAreCounted(t *testing.T) {
	tests := []struct {
		name, script      string
		shared, forwarded uint64
	}{
		{"nothing", `0s a announces`, 0, 0},
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
			if got[SuppressedShared] != tt.shared || got[SuppressedForwarded] != tt.forwarded || len(got) != 2 {
				t.Errorf("suppressed %v, want %d shared, %d forwarded", got, tt.shared, tt.forwarded)
			}
		})
	}
}

func TestSharedNone(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s agent shares
		0s a announces
		0s b announces`, time.Second)
	w.apply(w.d.SetShared(nil, w.now))
	if len(w.d.Conflicts(false)) != 1 {
		t.Error("nothing is shared, but nothing is suspected")
	}
}

func TestSetLimits(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 10 {
		w.do(fmt.Sprintf("0s a sends %s", ipv4(i)))
	}
	count := func() int { return len(w.d.Bindings(nil)) }
	w.d.SetLimits(0, 5, 0)
	w.do(fmt.Sprintf("0s a sends %s", ipv4(20)))
	if n := w.d.Counts().Refused[RefusedInterfaceFull]; n != 1 || count() != 10 {
		t.Errorf("%d refused, %d bindings", n, count())
	}
	w.do(fmt.Sprintf("0s a announces %s", ipv4(21)))
	if count() != 10 || !w.d.Holds(Key{"default", ipv4(21)}, w.actor("a").id) {
		t.Errorf("%d bindings after a stronger one came", count())
	}
	w.d.SetLimits(8, 0, 0)
	w.do(fmt.Sprintf("0s b sends %s", ipv4(22)))
	if n := w.d.Counts().Refused[RefusedTableFull]; n != 1 || count() != 10 {
		t.Errorf("%d refused, %d bindings", n, count())
	}
	w.d.SetLimits(-1, -1, -1)
	w.do(fmt.Sprintf("0s a sends %s", ipv4(23)))
	if count() != 11 || w.d.opts.MaxBindings != defaultMaxBindings || w.d.opts.MaxHistory != defaultMaxHistory {
		t.Errorf("%d bindings under %+v", count(), w.d.opts)
	}
	w.mustAudit()
}

func TestSetLimitsCutsTheHistory(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 12 {
		for _, name := range []string{"a", "b"} {
			if i < 6 {
				w.do(fmt.Sprintf("0s %s%d announces %s", name, i, ipv4(i)))
			}
		}
		w.run(w.now.Add(2 * time.Second))
		w.do(fmt.Sprintf("0s c%d announces %s", i, ipv4(100+i))) // a story without a conflict
		for _, name := range []string{"a", "b", "c"} {
			w.do(fmt.Sprintf("0s %s%d gone", name, i))
		}
		w.run(w.now.Add(4 * time.Second))
	}
	if n := w.d.Counts().History; n != 6 || w.d.idle.Len() != 12 {
		t.Fatalf("%d in the history, %d stories", n, w.d.idle.Len())
	}
	w.d.SetLimits(0, 0, 2)
	w.mustAudit()
	all := w.d.Conflicts(true)
	if len(all) != 2 || all[0].Key.IP != ipv4(5) || all[1].Key.IP != ipv4(4) {
		t.Errorf("kept %+v", all)
	}
	if w.d.idle.Len() != 2 || len(w.d.entries) != 4 {
		t.Errorf("%d stories, %d entries", w.d.idle.Len(), len(w.d.entries))
	}
}
