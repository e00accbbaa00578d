package detector

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestBindings(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s b announces 10.0.0.9
		1s a sends 10.0.0.9
		2s a forwards 10.0.0.10
		3s a announces fd00::1
		4s host1 announces 10.0.0.2
		5s b announces 10.0.0.9`, 0)
	other := w.actor("c").sighting(defaultIP, Data, w.now)
	other.Key.Network = "blue"
	w.d.Observe(other, w.now)

	type row struct {
		Network, IP, Holder string
		Evidence            Evidence
		First, Last         time.Duration
	}
	rows := func(keep func(*Binding) bool) []row {
		var list []row
		for _, b := range w.d.Bindings(keep) {
			list = append(list, row{
				b.Key.Network, b.Key.IP.String(), b.Holder.String(), b.Evidence,
				w.since(b.FirstSeen), w.since(b.LastSeen),
			})
		}
		return list
	}
	want := []row{
		{"blue", "10.0.0.1", "c", Data, 5 * time.Second, 5 * time.Second},
		{"default", "10.0.0.2", "host1", Host, 4 * time.Second, 4 * time.Second},
		{"default", "10.0.0.9", "b", Announced, 0, 5 * time.Second},
		// It answered the verification.
		{"default", "10.0.0.9", "a", Announced, time.Second, 2 * time.Second},
		{"default", "10.0.0.10", "a", Forwarded, 2 * time.Second, 2 * time.Second},
		{"default", "fd00::1", "a", Announced, 3 * time.Second, 3 * time.Second},
	}
	if diff := cmp.Diff(want, rows(nil)); diff != "" {
		t.Errorf("bindings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[1:2], rows(func(b *Binding) bool { return b.Evidence == Host })); diff != "" {
		t.Errorf("kept (-want +got):\n%s", diff)
	}
}

func TestConflictsAreOrdered(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces 10.0.0.1
		0s b announces 10.0.0.1
		5s a announces 10.0.0.2
		5s b announces 10.0.0.2
		8s a loses 10.0.0.2
		12s a loses 10.0.0.1
		20s a announces 10.0.0.4
		20s host1 announces 10.0.0.4
		20.5s a announces 10.0.0.3
		20.5s c spoofs 10.0.0.3`, 600*time.Millisecond)
	list := func(all bool) []string {
		var rows []string
		for _, c := range w.d.Conflicts(all) {
			rows = append(rows, fmt.Sprintf("%s %s %s", c.Key.IP, c.State, c.Scope))
		}
		return rows
	}
	open := []string{"10.0.0.4 confirmed pod-host", "10.0.0.3 suspected same-node"}
	if diff := cmp.Diff(open, list(false)); diff != "" {
		t.Errorf("open (-want +got):\n%s", diff)
	}
	all := append(slices.Clone(open), "10.0.0.1 resolved same-node", "10.0.0.2 resolved same-node")
	if diff := cmp.Diff(all, list(true)); diff != "" {
		t.Errorf("all (-want +got):\n%s", diff)
	}
	n := w.d.Counts()
	if n.Open[StateScope{Confirmed, PodHost}] != 1 || n.Open[StateScope{Suspected, SameNode}] != 1 || n.Open[StateScope{Confirmed, CrossNode}] != 0 {
		t.Errorf("open %v", n.Open)
	}
	if n.Suspected != 4 || n.Confirmed[SameNode] != 2 || n.Confirmed[PodHost] != 1 || n.Resolved != 2 || n.Faded != 0 || n.Keys != 4 {
		t.Errorf("counts %+v", n)
	}
}

// Changes of results by the caller do not change the detector.
func TestResultsAreCopies(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		5s b gone`, 5*time.Second)
	w.d.Conflicts(true)[0].Holders[0].Holder.NetnsName = "changed"
	w.d.Explain(defaultIP)[0].Conflict.Holders[0].Holder.NetnsName = "changed"
	if got := w.d.Conflicts(true)[0].Holders[0].Holder.NetnsName; got != "a" {
		t.Errorf("the history was changed: %q", got)
	}
}

// A name that is found late is set in every binding, in an open conflict and in later ones. Sightings without
// names do not remove it.
func TestDescribe(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b announces
		1s a announces 10.0.0.2
		3s b gone`, 0)
	for _, name := range []string{"a", "b"} {
		w.apply(w.d.Describe(w.actor(name).id, func(_ Key, h *Holder) {
			h.Pod = Pod{Namespace: "shop", Name: name + "-0"}
			h.ID = HolderID{}
		}, w.now))
	}
	w.do("0s a announces")
	w.do("0s a announces 10.0.0.3")
	var names []string
	for _, b := range w.d.Bindings(nil) {
		names = append(names, b.Holder.Pod.String())
	}
	for _, h := range w.d.Conflicts(false)[0].Holders {
		names = append(names, h.Holder.Pod.String())
	}
	if diff := cmp.Diff([]string{"shop/a-0", "shop/a-0", "shop/a-0", "shop/a-0", "shop/b-0"}, names); diff != "" {
		t.Errorf("names (-want +got):\n%s", diff)
	}
	w.mustAudit()
}

// Reports and logs of a confirmed conflict learn the name of a pod that the runtime lists later: an event has it, once. A suspicion
// has none, because it is confirmed with the name or ends.
func TestNamedAfterConfirmation(t *testing.T) {
	w := newWorld(t, Options{})
	w.play(`0s a announces
		0s b@n2 announces`, 500*time.Millisecond)
	local, remote := w.actor("a"), w.actor("b@n2")
	name := func(id HolderID, pod string) {
		w.apply(w.d.Describe(id, func(_ Key, h *Holder) { h.Pod = Pod{Namespace: "shop", Name: pod} }, w.now, Key{"default", defaultIP}))
	}
	changes := func() (list []string) {
		for _, e := range w.events {
			if e.Kind == EventChanged {
				list = append(list, e.Reason+", so "+e.Conflict.Holders[0].Holder.String()+" and "+e.Conflict.Holders[1].Holder.String())
			}
		}
		w.events = nil
		return list
	}
	name(local.id, "a-0")
	if got := changes(); len(got) > 0 || w.d.Conflicts(false)[0].State != Suspected {
		t.Errorf("a suspicion: %q", got)
	}
	w.run(w.now.Add(2 * time.Second))
	name(local.id, "a-0")
	if got := changes(); len(got) > 0 || w.d.Conflicts(false)[0].State != Confirmed {
		t.Errorf("a name that is known: %q", got)
	}
	name(local.id, "a-1")
	name(local.id, "a-1")
	if diff := cmp.Diff([]string{"shop/a-0 is shop/a-1, so shop/a-1 and b@n2"}, changes()); diff != "" {
		t.Errorf("another name (-want +got):\n%s", diff)
	}
	// A message of the other node has its name.
	s := remote.sighting(defaultIP, Announced, w.now)
	s.Holder.Pod = Pod{Namespace: "shop", Name: "b-0"}
	for range 2 {
		s.Answer, s.At = true, w.now
		w.observe(s)
		w.run(w.now.Add(time.Second))
	}
	if diff := cmp.Diff([]string{"b@n2 is shop/b-0, so shop/a-1 and shop/b-0"}, changes()); diff != "" {
		t.Errorf("the name of another node's holder (-want +got):\n%s", diff)
	}
	w.mustAudit()
}

func TestObserveRefusesNonsense(t *testing.T) {
	w := newWorld(t, Options{})
	good := w.actor("a").sighting(defaultIP, Announced, w.now)
	for _, spoil := range []func(*Sighting){
		func(s *Sighting) { s.Key.IP = netip.Addr{} },
		func(s *Sighting) { s.Holder.ID = HolderID{} },
		func(s *Sighting) { s.Evidence = 0 },
		func(s *Sighting) { s.Evidence = Host + 1 },
	} {
		s := good
		spoil(&s)
		w.apply(w.d.Observe(s, w.now))
	}
	old := good
	old.At = w.now.Add(-5 * time.Minute)
	w.apply(w.d.Observe(old, w.now))
	if n := w.d.Counts().Refused; n[refusedInvalid] != 4 || n[refusedOld] != 1 || len(w.d.table.entries) != 0 {
		t.Errorf("refused %v, entries %d", n, len(w.d.table.entries))
	}
	// A time that is missing or in the future becomes now.
	good.At = w.now.Add(time.Hour)
	w.d.Observe(good, w.now)
	if got := w.d.Bindings(nil)[0].LastSeen; !got.Equal(w.now) {
		t.Errorf("last seen %v", got)
	}
	// An unknown holder changes nothing.
	unknown := Probe{Key: Key{"default", ipv4(5)}, Purpose: Verify}
	w.d.Probed(unknown, Result{Outcome: Sent}, w.now)
	w.apply(w.d.Probed(unknown, Result{Refused, "x", time.Time{}}, w.now))
	w.apply(w.d.Withdraw(unknown.Key, good.Holder.ID, "x", w.now))
	w.apply(w.d.Withdraw(good.Key, HolderID{Node: "n9"}, "x", w.now))
	w.mustAudit()
}

func TestScope(t *testing.T) {
	pod := func(node string) Binding { return Binding{Holder: Holder{ID: HolderID{Node: node}}, Evidence: Data} }
	host := pod("n2")
	host.Evidence = Host
	for _, tt := range []struct {
		want    Scope
		holders []Binding
	}{
		{SameNode, []Binding{pod("n1"), pod("n1")}},
		{CrossNode, []Binding{pod("n1"), pod("n1"), pod("n2")}},
		{PodHost, []Binding{pod("n1"), host}},
	} {
		if got := scopeOf(tt.holders); got != tt.want {
			t.Errorf("scope %v, want %v", got, tt.want)
		}
	}
}
