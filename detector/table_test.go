package detector

import (
	"fmt"
	"testing"
)

func newTable(opts Options) *table {
	opts.Node = "n1"
	return &table{
		opts: opts.withDefaults(), entries: make(map[Key]*entry), holders: make(map[HolderID][]*binding),
		ifaces: make(map[Interface][]*binding), counts: newCounts(),
	}
}

// see records a sighting as far as the table does, and returns the binding; nil if it was refused.
func (t *table) see(node string, netns, ifindex, ip int, ev Evidence, at float64) *binding {
	s := Sighting{
		Key: Key{"default", ipv4(ip)}, Evidence: ev, At: clock(at),
		Holder: Holder{ID: HolderID{Node: node, Netns: uint64(netns)}, Interface: Interface{Ifindex: uint32(ifindex)}, NetnsName: fmt.Sprintf("pod%d", netns)},
	}
	if !t.accept(&s, clock(at)) {
		return nil
	}
	b := t.entries[s.Key].find(s.Holder.ID)
	if b == nil {
		if b = t.admit(&s, clock(at)); b == nil {
			return nil
		}
	}
	if _, ok := t.record(b, &s, clock(at)); !ok {
		return nil
	}
	t.settle(b.entry, clock(at))
	return b
}

// An address that has all the holders it may have takes another one that is worth more than the least of them, which leaves; of several, the
// one seen longest ago, but none that is in a conflict.
func TestTableRoomOfOneKey(t *testing.T) {
	for name, tt := range map[string]struct {
		there    [2]Evidence // the first two of the holders; the others announce
		conflict bool
		again    bool // the first one is seen again
		comes    Evidence
		out      int // the holder that leaves; 0: the new one is refused
	}{
		"forwarded for forwarded":             {[2]Evidence{Forwarded, Forwarded}, false, false, Forwarded, 0},
		"data for the first forwarded":        {[2]Evidence{Forwarded, Forwarded}, false, false, Data, 1},
		"data for the one seen longest ago":   {[2]Evidence{Forwarded, Forwarded}, false, true, Data, 2},
		"data for forwarded, not for a claim": {[2]Evidence{Claimed, Forwarded}, false, false, Data, 2},
		"data for no claim":                   {[2]Evidence{Claimed, Claimed}, false, false, Data, 0},
		"a claim for forwarded":               {[2]Evidence{Data, Forwarded}, false, false, Claimed, 2},
		"announced for the lower of two":      {[2]Evidence{Data, Claimed}, false, false, Announced, 2},
		"announced for no announced":          {[2]Evidence{Announced, Announced}, false, false, Announced, 0},
		"the node for announced":              {[2]Evidence{Announced, Announced}, false, false, Host, 1},
		"announced for none in a conflict":    {[2]Evidence{Data, Forwarded}, true, false, Announced, 0},
	} {
		table := newTable(Options{})
		var e *entry
		for n := range maxHolders {
			ev := Announced
			if n < len(tt.there) {
				ev = tt.there[n]
			}
			e = table.see("n1", n+1, n+1, 1, ev, float64(n)).entry
		}
		if tt.again {
			table.see("n1", 1, 1, 1, tt.there[0], 99)
		}
		if tt.conflict {
			e.conflict = new(conflict)
		}
		came := table.see("n1", 100, 100, 1, tt.comes, 100) != nil
		for n := range 3 {
			if there := e.find(HolderID{Node: "n1", Netns: uint64(n + 1)}) != nil; there == (n+1 == tt.out) {
				t.Errorf("%s: holder %d there: %v", name, n+1, there)
			}
		}
		refused, evicted := table.counts.Refused[refusedKeyFull], table.counts.Evicted[refusedKeyFull]
		if came != (tt.out != 0) || refused+evicted != 1 || (refused == 1) == came || len(e.bindings) != maxHolders {
			t.Errorf("%s: came: %v, refused %d, evicted %d of %d", name, came, refused, evicted, len(e.bindings))
		}
	}
}

// A full table looks for one to evict behind 63 that are in conflicts, and behind no more.
func TestTableRoomBehindConflicts(t *testing.T) {
	for conflicts, want := range map[int]bool{63: true, 64: false} {
		table := newTable(Options{MaxBindings: conflicts + 1})
		for n := range conflicts + 1 {
			if e := table.see("n1", n+1, n+1, n, Data, float64(n)).entry; n < conflicts {
				e.conflict = new(conflict)
			}
		}
		if got := table.see("n1", 100, 100, 100, Announced, 100) != nil; got != want || table.size() != conflicts+1 {
			t.Errorf("behind %d conflicts: came: %v, %d bindings", conflicts, got, table.size())
		}
	}
}

// A holder that is seen on one interface too many is forgotten on the one where it was seen longest ago, also if that was not the first.
func TestTableSources(t *testing.T) {
	table := newTable(Options{})
	var b *binding
	for i, ifindex := range []int{1, 2, 3, maxSources, 1, maxSources + 1} {
		if n := table.counts.Evicted[evictedSource]; n != 0 {
			t.Errorf("%d evicted before there are too many", n)
		}
		b = table.see("n1", 1, ifindex, 1, Data, float64(i))
	}
	if n := table.counts.Evicted[evictedSource]; n != 1 || len(b.sources) != maxSources || table.size() != 1 {
		t.Errorf("%d interfaces evicted, %d left, of %d bindings", n, len(b.sources), table.size())
	}
	for ifindex := range uint32(maxSources + 1) {
		i := Interface{Ifindex: ifindex + 1}
		if on := b.source(i) != nil; on == (i.Ifindex == 2) || on != (len(table.ifaces[i]) == 1) {
			t.Errorf("on %v: %v, %d in the index", i, on, len(table.ifaces[i]))
		}
	}
	if ended := table.TakeEnded(); len(ended) != 1 || ended[0].Interface.Ifindex != 2 {
		t.Errorf("ended %+v", ended)
	}
}

// A binding that is withdrawn is in no list any more, tells who else has the address, and leaves a story, of which the last ones are kept.
func TestTableWithdraws(t *testing.T) {
	table := newTable(Options{MaxHistory: 1})
	b := table.see("n1", 1, 1, 1, Data, 0)
	table.see("n1", 1, 2, 1, Data, 1)
	table.see("n3", 2, 0, 1, Announced, 1)
	table.see("n2", 3, 0, 1, Announced, 1)
	table.TakeChanges()
	b.entry.conflict = new(conflict) // an open conflict learns what has ceased
	table.remove(b, noteGone, "gone", clock(5))
	if why := b.entry.ceased[0].why; why != "pod1 withdrawn: gone" {
		t.Errorf("it ceased to count because %q", why)
	}
	b.entry.conflict = nil
	table.settle(b.entry, clock(5))
	if len(table.holders)+len(table.ifaces)+len(b.entry.bindings)+table.size()+table.due.Len() != 0 {
		t.Errorf("left: %v, %v, %v", table.holders, table.ifaces, b.entry.bindings)
	}
	if c := table.TakeChanges(); len(c) != 1 || !c[0].Ended || fmt.Sprint(c[0].OtherNodes) != "[n2 n3]" || c[0].Binding.Evidence != Data {
		t.Errorf("changes %+v", c)
	}
	if f := b.entry.former; len(table.TakeEnded()) != 2 || len(f) == 0 || f[0].Holder.ID.Netns != 1 || !f[0].LastSeen.Equal(clock(5)) || f[0].ends != 1 {
		t.Errorf("former holders %+v", f)
	}
	for ip, ev := range map[int]Evidence{2: Data, 3: Forwarded} {
		other := table.see("n1", 4, 4, ip, ev, 6)
		table.remove(other, noteGone, "gone", clock(6))
		table.settle(other.entry, clock(6))
	}
	if len(table.entries) != 1 || table.entries[Key{"default", ipv4(2)}] == nil || table.idle.Len() != 1 {
		t.Errorf("stories %v", table.entries)
	}
}
