package detector

import (
	"fmt"
	"net/netip"
	"testing"
	"time"
)

func ipv4(n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)})
}

func (w *world) mustAudit() {
	w.t.Helper()
	if err := audit(w.d); err != nil {
		w.t.Fatal(err)
	}
}

// Q6: one pod sprays sources. If its netns is unseen they are data, otherwise forwarded. The pod cannot fill
// the table, and its own address and those of others still get bindings.
func TestSprayIsBounded(t *testing.T) {
	for _, verb := range []string{"spoofs", "forwards", "forges"} {
		t.Run(verb, func(t *testing.T) {
			w := newWorld(t, Options{Node: "n1"})
			for i := range 50 { // some of the sprayed addresses belong to others
				w.do(fmt.Sprintf("0s pod%d announces %s", i, ipv4(100+i)))
			}
			for i := range 20_000 {
				w.run(w.now.Add(100 * time.Microsecond))
				w.do(fmt.Sprintf("0s sprayer %s %s", verb, ipv4(i)))
				if i == 10_000 {
					w.do("0s a announces 10.9.9.9")
					w.do("0s b announces 10.9.9.9")
				}
			}
			w.run(w.now.Add(time.Second))
			w.mustAudit()
			w.do("0s sprayer announces 10.8.8.8")
			sprayer := w.actor("sprayer")
			on := len(w.d.table.ifaces[sprayer.iface])
			if on > defaultMaxPerInterface {
				t.Errorf("%d bindings on the sprayer's interface", on)
			}
			if got := w.d.Holds(Key{"default", netip.MustParseAddr("10.8.8.8")}, sprayer.id); got != (verb != "forges") {
				// A pod that sprays announcements displaces only its own address.
				t.Errorf("the sprayer's own address is known: %v", got)
			}
			if n := w.d.Counts().Refused[refusedInterfaceFull]; n < 10_000 {
				t.Errorf("%d refused", n)
			}
			if n := len(w.d.table.entries); n > defaultMaxPerInterface+defaultMaxHistory+60 {
				t.Errorf("%d entries", n)
			}
			confirmed := 0
			for _, c := range w.d.Conflicts(true) {
				if c.State != Confirmed {
					continue
				}
				confirmed++
				if took := c.ConfirmedAt.Sub(c.SecondSeen); took > 1100*time.Millisecond {
					t.Errorf("%s took %v", c.Key.IP, took)
				}
			}
			if confirmed != 1 {
				t.Errorf("%d confirmed, want 1", confirmed)
			}
			if n := w.d.Counts().Suspected; n > defaultMaxPerInterface+1 {
				t.Errorf("%d suspicions", n)
			}
		})
	}
}

// A pod that sprays the addresses of its neighbours raises at most one suspicion for each of them within the
// TTL, and no more suspicions than it may have bindings.
func TestSprayOfOthersAddressesIsSuspectedOnce(t *testing.T) {
	w := newWorld(t, Options{})
	const pods = 600
	for i := range pods {
		w.do(fmt.Sprintf("0s pod%d announces %s", i, ipv4(i)))
	}
	for i := range 10 * pods {
		w.run(w.now.Add(10 * time.Millisecond))
		w.do(fmt.Sprintf("0s sprayer spoofs %s", ipv4(i%pods)))
	}
	w.mustAudit()
	if n := w.d.Counts().Suspected; n != defaultMaxPerInterface {
		t.Errorf("%d suspicions", n)
	}
}

// A new binding with stronger evidence replaces the weakest one, of several the one that was not seen for
// longest.
func TestRoomForTheStronger(t *testing.T) {
	type binding struct {
		verb string
		ip   int
	}
	tests := []struct {
		name  string
		there []binding
		comes binding
		out   int // the address that is gone afterwards
		why   string
	}{
		{"forwarded replaces nothing", []binding{{"forwards", 1}, {"forwards", 2}}, binding{"forwards", 3}, 3, refusedInterfaceFull},
		{"data pushes out the oldest forwarded", []binding{{"sends", 1}, {"forwards", 2}, {"forwards", 3}}, binding{"sends", 4}, 2, ""},
		{"data pushes out the one not seen for longest", []binding{{"forwards", 1}, {"forwards", 2}, {"forwards", 1}}, binding{"sends", 3}, 2, ""},
		{"data pushes out no data", []binding{{"sends", 1}, {"announces", 2}}, binding{"sends", 3}, 3, refusedInterfaceFull},
		{"announced pushes out data", []binding{{"announces", 1}, {"sends", 2}}, binding{"announces", 3}, 2, ""},
		{"announced pushes out no announced", []binding{{"announces", 1}, {"announces", 2}}, binding{"announces", 3}, 3, refusedInterfaceFull},
	}
	for _, tt := range tests {
		for _, table := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/table=%v", tt.name, table), func(t *testing.T) {
				addresses := map[int]bool{}
				for _, b := range tt.there {
					addresses[b.ip] = true
				}
				opts, why := Options{MaxPerInterface: len(addresses)}, tt.why
				if table {
					opts = Options{MaxBindings: len(addresses)}
					if why != "" {
						why = refusedTableFull
					}
				}
				w := newWorld(t, opts)
				for _, b := range append(tt.there, tt.comes) {
					w.run(w.now.Add(time.Second))
					w.do(fmt.Sprintf("0s a %s %s", b.verb, ipv4(b.ip)))
				}
				w.mustAudit()
				for _, b := range append(tt.there, tt.comes) {
					known := len(w.d.Bindings(func(x *Binding) bool { return x.Key.IP == ipv4(b.ip) })) == 1
					if known == (b.ip == tt.out) {
						t.Errorf("%s known: %v", ipv4(b.ip), known)
					}
				}
				if why != "" && w.d.Counts().Refused[why] != 1 {
					t.Errorf("refused %v", w.d.Counts().Refused)
				}
			})
		}
	}
}

// Bindings in conflicts are not evicted, also if the interface has no others.
func TestConflictsAreNotEvicted(t *testing.T) {
	w := newWorld(t, Options{MaxPerInterface: 1, MaxBindings: 3})
	w.play(`0s a spoofs
		0s b announces
		0s a announces 10.0.0.2
		0s c announces 10.0.0.3
		0s d announces 10.0.0.4`, 0)
	w.mustAudit()
	if open := w.d.Conflicts(false); len(open) != 1 {
		t.Errorf("%d open", len(open))
	}
	if n := w.d.Counts().Refused; n[refusedInterfaceFull] != 1 || n[refusedTableFull] != 1 {
		t.Errorf("refused %v", n)
	}
}

func TestHoldersOfOneKeyAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range maxHolders + 10 {
		w.do(fmt.Sprintf("0s r%d forwards", i))
	}
	w.do("0s a announces")
	w.do("0s b announces")
	w.run(w.now.Add(2 * time.Second))
	w.mustAudit()
	if n := w.d.Counts().Refused[refusedKeyFull]; n != 10 {
		t.Errorf("%d refused", n)
	}
	if n := w.d.Counts().Evicted[refusedKeyFull]; n != 2 {
		t.Errorf("%d evicted", n)
	}
	if c := w.d.Conflicts(false); len(c) != 1 || c[0].State != Confirmed {
		t.Errorf("conflicts %+v", c)
	}
}

// Many addresses have conflicts: history and stories stay within their limits. The occurrences of an address
// that the history has forgotten begin with 1 again.
func TestHistoryIsBounded(t *testing.T) {
	w := newWorld(t, Options{MaxHistory: 5})
	for i := range 40 {
		a, b, ip := fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i), ipv4(i%20)
		w.do(fmt.Sprintf("0s %s announces %s", a, ip))
		w.do(fmt.Sprintf("0s %s announces %s", b, ip))
		w.run(w.now.Add(2 * time.Second))
		w.do(fmt.Sprintf("0s %s gone", a))
		w.do(fmt.Sprintf("0s %s gone", b))
		w.run(w.now.Add(4 * time.Second))
		w.mustAudit()
	}
	all := w.d.Conflicts(true)
	if len(all) != 5 || w.d.Counts().History != 5 {
		t.Fatalf("%d in the history", len(all))
	}
	for i, c := range all {
		if want := ipv4((39 - i) % 20); c.Key.IP != want || c.State != Resolved {
			t.Errorf("%d is %s, want %s", i, c.Key.IP, want)
		}
		if want := conflictID(c.Key, 1); c.ID != want {
			t.Errorf("%s is %s, want %s", c.Key.IP, c.ID, want)
		}
	}
	if n := len(w.d.table.entries); n > 10 {
		t.Errorf("%d entries", n)
	}
}

// The occurrences of an address grow while the history has one of its conflicts.
func TestOccurrences(t *testing.T) {
	w := newWorld(t, Options{})
	var ids []string
	for i := range 3 {
		w.do(fmt.Sprintf("0s a%d announces", i))
		w.do(fmt.Sprintf("0s b%d announces", i))
		w.run(w.now.Add(2 * time.Second))
		ids = append(ids, w.d.Conflicts(false)[0].ID)
		w.do(fmt.Sprintf("0s a%d gone", i))
		w.do(fmt.Sprintf("0s b%d gone", i))
		w.run(w.now.Add(10 * time.Minute))
	}
	// printf 'default|10.0.0.1' | sha256sum
	if got, want := fmt.Sprint(ids), "[819cfe21-1 819cfe21-2 819cfe21-3]"; got != want {
		t.Errorf("ids %s, want %s", got, want)
	}
}

// A story is kept while the history has a conflict of its key, however many others there are.
func TestOccurrencesOutliveOtherStories(t *testing.T) {
	w := newWorld(t, Options{MaxHistory: 3})
	for occurrence := range 2 {
		w.do(fmt.Sprintf("0s a%d announces", occurrence))
		w.do(fmt.Sprintf("0s b%d announces", occurrence))
		w.run(w.now.Add(2 * time.Second))
		if got, want := w.d.Conflicts(false)[0].ID, conflictID(Key{"default", defaultIP}, occurrence+1); got != want {
			t.Errorf("id %s, want %s", got, want)
		}
		w.do(fmt.Sprintf("0s a%d gone", occurrence))
		w.do(fmt.Sprintf("0s b%d gone", occurrence))
		w.run(w.now.Add(10 * time.Second))
		for i := range 10 {
			w.do(fmt.Sprintf("0s c announces %s", ipv4(i+10)))
			w.do(fmt.Sprintf("0s c loses %s", ipv4(i+10)))
		}
		w.mustAudit()
	}
}

func TestNotesAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 100 {
		w.do(fmt.Sprintf("0s a%d announces", i))
		w.run(w.now.Add(2 * time.Second))
		w.do(fmt.Sprintf("0s a%d gone", i))
	}
	if n := len(w.d.Explain(defaultIP)[0].Notes); n != maxNotes {
		t.Errorf("%d notes", n)
	}
}

// A holder that is seen on more and more interfaces keeps the latest ones only.
func TestSourcesAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	var ifaces []Interface
	for range maxSources + 3 {
		w.do("0s a announces")
		ifaces = append(ifaces, w.actor("a").iface)
		w.do("0s a changes-interface")
		w.run(w.now.Add(time.Second))
	}
	w.mustAudit()
	for _, i := range ifaces[:3] {
		if n := len(w.d.table.ifaces[i]); n != 0 {
			t.Errorf("%d bindings on the stale %v", n, i)
		}
	}
	for n, i := range ifaces[3:] {
		if got := len(w.d.Bindings(nil)); got != 1 {
			t.Fatalf("%d bindings before the last of the %d latest is gone", got, maxSources-n)
		}
		w.apply(w.d.WithdrawInterface(i, "gone", w.now))
	}
	if got := len(w.d.Bindings(nil)); got != 0 {
		t.Errorf("%d bindings are left", got)
	}
}

// Many netns announce an address and do not answer. The penalties of the last ones are kept.
func TestPenaltiesAreBounded(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	for range 3 * maxPenalties {
		w.do("0s b changes-netns")
		w.do("0s b forges")
		w.run(w.now.Add(2 * time.Second))
	}
	e := w.d.table.entries[Key{"default", defaultIP}]
	if n := len(e.penalties); n != maxPenalties {
		t.Errorf("%d penalties", n)
	}
	if e.penalties.of(w.actor("b").id) == nil {
		t.Error("the last one has none")
	}
	w.mustAudit()
}

// SetShared ends conflicts. Their stories may replace others while it still reads the list of keys.
func TestSharedWhileStoriesAreForgotten(t *testing.T) {
	w := newWorld(t, Options{MaxHistory: 1})
	w.play(`0s a announces 10.0.0.8
		0s a loses 10.0.0.8
		0s a announces 10.0.0.9
		0s b announces 10.0.0.9
		2s b loses 10.0.0.9
		6s a loses 10.0.0.9
		7s a announces
		7s b announces
		9s b loses
		9s a loses
		9s a shares`, 0)
	w.mustAudit()
	if n := len(w.d.table.entries); n != 2 {
		t.Errorf("%d stories", n)
	}
}

// A node that requests the next probe request soon gets at most one a second.
func TestRefusalsOfOtherNodesArePaced(t *testing.T) {
	f := newFar(t)
	probed := 0
	fx := Effects{Probes: []Probe{f.probe}}
	for range 1000 { // 10 s
		for _, s := range fx.Probes {
			if s.Holder == f.b.id {
				probed++
				f.d.Probed(s, Result{Refused, "x", f.now.Add(time.Millisecond)}, f.now)
			}
		}
		fx = f.step(10 * time.Millisecond)
	}
	if probed != 10 {
		t.Errorf("probed %d times in 10 s", probed)
	}
}

// A late description of a remote holder does not give it an interface.
func TestDescribeRemote(t *testing.T) {
	w := newWorld(t, Options{})
	w.do("0s a announces")
	w.do("0s b@n2 announces")
	w.take()
	b := w.actor("b@n2")
	w.d.Describe(b.id, func(_ Key, h *Holder) { *h = Holder{Interface: b.iface, Pod: Pod{Name: "web"}} }, w.now)
	w.mustAudit()
	if got := w.d.Bindings(nil)[1].Holder; got.Pod.Name != "web" || got.ID != b.id {
		t.Errorf("described as %+v", got)
	}
	if got := w.take(); got != nil {
		t.Errorf("changes %q", got)
	}
}

// All of the node's own addresses may be on one device. The limit of an interface is for what pods do.
func TestHostHasNoInterfaceLimit(t *testing.T) {
	w := newWorld(t, Options{Node: "n1"})
	const addresses = 4096
	for i := range addresses {
		w.do("0s host1 announces " + ipv4(i).String())
	}
	w.mustAudit()
	if c := w.d.Counts(); c.Bindings[Host] != addresses || c.Refused[refusedInterfaceFull] != 0 {
		t.Errorf("%d bindings of the node's own addresses, %d refused, want %d and 0", c.Bindings[Host], c.Refused[refusedInterfaceFull], addresses)
	}
}
