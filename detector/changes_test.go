package detector

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// take returns the changes as short texts: "a announced, 1 before" is a binding that counts, with the
// number of resolved conflicts; "a ended" is one that does not count any more.
func (w *world) take() []string {
	w.t.Helper()
	var list []string
	for _, c := range w.d.TakeChanges() {
		w.follow(c)
		line := c.Binding.Holder.NetnsName
		if c.Binding.Key.IP != defaultIP {
			line += " " + c.Binding.Key.IP.String()
		}
		if c.Ended {
			line += " ended"
		} else {
			line += " " + c.Binding.Evidence.String()
		}
		if c.Occurrences > 0 {
			line += fmt.Sprintf(", %d before", c.Occurrences)
		}
		if len(c.OtherNodes) > 0 {
			line += ", notify " + strings.Join(c.OtherNodes, " ")
		}
		list = append(list, line)
	}
	if err := errors.Join(w.checkLeases(), w.forget()); err != nil {
		w.t.Error(err)
	}
	return list
}

// leaseID identifies a lease.
type leaseID struct {
	key    Key
	holder HolderID
}

// follow applies one change to the leases.
func (w *world) follow(c Change) {
	w.t.Helper()
	if w.leases == nil {
		w.leases = map[leaseID]lease{}
	}
	who := leaseID{c.Binding.Key, c.Binding.Holder.ID}
	was, now := w.leases[who], lease{c.Binding.Holder.MAC, c.Binding.Evidence, c.Binding.Holder.Place, c.Occurrences}
	switch {
	case who.holder.Node != w.d.table.opts.Node:
		w.t.Errorf("a change of %v", who)
	case c.Ended && was == lease{}:
		w.t.Errorf("%v ended and was not leased", who)
	case c.Ended:
		delete(w.leases, who)
	case was == now:
		w.t.Errorf("%v is returned again", who)
	default:
		w.leases[who] = now
	}
}

// checkLeases returns an error unless the leases are what the detector has.
func (w *world) checkLeases() error {
	want := map[leaseID]lease{}
	for key := range w.d.table.entries {
		holders, occurrences := w.d.LocalHolders(key)
		for _, b := range holders {
			want[leaseID{key, b.Holder.ID}] = lease{b.Holder.MAC, b.Evidence, b.Holder.Place, occurrences}
		}
	}
	if len(want) != len(w.leases) {
		return fmt.Errorf("%d leases, %d bindings", len(w.leases), len(want))
	}
	for who, c := range want {
		if w.leases[who] != c {
			return fmt.Errorf("%v is leased as %+v, not %+v", who, w.leases[who], c)
		}
	}
	return nil
}

// TestTakeEnded: a binding that ends is returned with each of its interfaces, whether it counted or not.
func TestTakeEnded(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want         []string
	}{
		{"it lives", "0s a announces\n1s a sends", nil},
		{"it leaves", "0s a announces\n1s a loses", []string{"a 1"}},
		{"its interface is gone", "0s a announces\n1s a gone", []string{"a 1"}},
		{"it never counted", "0s a forwards\n1s a loses", []string{"a 1"}},
		{"its address is shared", "0s agent shares\n0s a announces\n1s a loses", []string{"a 2"}},
		{"it comes and goes", "0s a announces\n0s a loses\n0s a announces", []string{"a 1"}},
		{"it expires", "0s a mute\n0s a announces\n301s a mute", []string{"a 1"}},
		{"two interfaces", "0s a announces\n1s a changes-interface\n1s a announces\n2s a loses", []string{"a 1", "a 101"}},
		{"one interface of two", "0s a announces\n1s a changes-interface\n1s a announces\n2s a gone", []string{"a 101"}},
		{"it does not answer", "0s a announces\n0s b mute\n0s b announces\n2s a announces", []string{"b 2"}},
		{"it forwards only", "0s a announces\n0s b mute\n0s b spoofs\n2s a announces", []string{"b 2"}},
		{"a claim is not answered", "0s a announces\n0s b forges-a-claim\n2s a announces", []string{"b 2"}},
		{"a claim expires, and it forwards", "0s a mute\n0s a claims\n200s a forwards\n301s a forwards", []string{"a 1"}},
		{"it is on another node", "0s a announces\n0s b@n2 announces\n1s b@n2 loses", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			w.play(test.script, 0)
			var got []string
			for _, e := range w.d.TakeEnded() {
				got = append(got, fmt.Sprintf("%s %d", w.byID(e.Holder).name, e.Interface.Ifindex))
				if e.Key != (Key{"default", defaultIP}) {
					t.Errorf("ended %+v", e)
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
			if again := w.d.TakeEnded(); again != nil {
				t.Errorf("returned again: %+v", again)
			}
		})
	}
}

func TestTakeChanges(t *testing.T) {
	tests := []struct {
		name   string
		before string // a script whose changes are taken before script is played
		script string
		want   []string
	}{
		{
			name:   "a holder, in order of arrival, once",
			script: "0s b announces\n0s a sends 10.0.0.2\n1s a sends 10.0.0.2\n1s a forwards 10.0.0.9",
			want:   []string{"b announced", "a 10.0.0.2 data"},
		},
		{
			name:   "nothing new",
			before: "0s a announces",
			script: "1s a announces\n200s a announces\n201s a sends",
		},
		{
			name:   "stronger evidence",
			before: "0s a sends",
			script: "1s a announces",
			want:   []string{"a announced"},
		},
		{
			name:   "another MAC",
			before: "0s a announces",
			script: "1s a changes-mac\n1s a announces",
			want:   []string{"a announced"},
		},
		{
			name:   "another MAC and back",
			before: "0s a announces",
			script: "1s a changes-mac\n1s a announces\n2s a restores-mac\n2s a announces",
		},
		{
			name:   "it ends",
			before: "0s a announces",
			script: "1s a gone",
			want:   []string{"a ended"},
		},
		{
			name:   "it expires",
			before: "0s a mute\n0s a announces",
			script: "400s b announces 10.0.0.2",
			want:   []string{"a ended", "b 10.0.0.2 announced"},
		},
		{
			name:   "it came and went",
			script: "0s a announces\n1s a gone",
		},
		{
			name:   "it went and came back",
			before: "0s a announces",
			script: "1s a gone\n2s a announces",
			want:   []string{"a ended", "a announced"},
		},
		{
			name:   "it went and came back by data",
			before: "0s a announces",
			script: "1s a gone\n2s b announces 10.0.0.2\n2s a sends",
			want:   []string{"a ended", "b 10.0.0.2 announced", "a data"},
		},
		{
			name:   "it went, came back and went",
			before: "0s a announces",
			script: "1s a gone\n2s a sends\n2s a loses",
			want:   []string{"a ended"},
		},
		{
			name:   "it went and only forwards now",
			before: "0s a announces",
			script: "1s a gone\n2s a forwards",
			want:   []string{"a ended"},
		},
		{
			name:   "it turns out to forward",
			before: "0s a announces\n0s b mute",
			script: "1s b spoofs\n3s a announces",
			want:   nil,
		},
		{
			name:   "it turns out to forward after it was leased",
			before: "0s a announces\n0s b mute\n0s b spoofs",
			script: "3s a announces",
			want:   []string{"b ended"},
		},
		{
			name:   "a resolved conflict counts",
			before: "0s a announces\n0s b announces",
			script: "10s b gone\n20s a announces",
			want:   []string{"b ended", "a announced, 1 before"},
		},
		{
			name:   "remote holders are leased by their nodes",
			before: "0s a announces",
			script: "1s b@n2 announces\n10s b@n2 gone",
			want:   []string{"a announced, 1 before"}, // but for what there was with them
		},
		{
			name:   "nodes of other holders are notified of the end",
			before: "0s a announces\n1s c@n3 announces\n1s b@n2 announces\n1s d@n2 announces",
			script: "10s a gone",
			want:   []string{"a ended, notify n2/boot n3/boot"},
		},
		{
			name:   "declared shared",
			before: "0s a announces\n0s b@n2 announces\n0s c forwards",
			script: "10s a shares",
			want:   []string{"a ended, notify n2/boot"},
		},
		{
			name:   "shared already",
			before: "0s a shares",
			script: "1s a announces\n1s b announces",
		},
		{
			name:   "shared no more",
			before: "0s a announces\n0s a shares",
			script: "1s b announces\n2s a unshares",
			want:   []string{"a announced", "b announced"},
		},
		{
			name:   "shared, and no more",
			before: "0s a announces",
			script: "1s a shares\n2s a unshares",
			want:   []string{"a ended", "a announced"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, Options{})
			w.play(tt.before, 0)
			w.take()
			w.play(tt.script, 0)
			w.run(w.now.Add(4 * time.Second))
			if diff := cmp.Diff(tt.want, w.take()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if again := w.d.TakeChanges(); again != nil {
				t.Errorf("taken twice: %+v", again)
			}
			w.mustAudit()
		})
	}
}

func TestLocalHolders(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		1s b sends
		2s c forwards
		3s d@n2 announces`, 0)
	names := func() (list []string) {
		holders, _ := w.d.LocalHolders(Key{"default", defaultIP})
		for _, b := range holders {
			list = append(list, b.Holder.NetnsName)
		}
		return list
	}
	if diff := cmp.Diff([]string{"a", "b"}, names()); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
	w.do("0s a shares")
	if got := names(); got != nil {
		t.Errorf("holders of a shared address: %q", got)
	}
	if got, _ := w.d.LocalHolders(Key{"default", ipv4(7)}); got != nil {
		t.Errorf("holders of an unused's address: %+v", got)
	}
}
