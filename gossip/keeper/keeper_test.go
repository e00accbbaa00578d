package keeper

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
)

var start = time.Unix(1e9, 0)

// lab is a table with its roster and a clock.
type lab struct {
	*Table
	t   *testing.T
	r   *roster.Roster
	now time.Time
}

func newLab(t *testing.T) *lab {
	r := roster.New(wire.MemberIDOf("self", "s", 0), cluster.Member{Name: "self", Boot: "s"}, start)
	return &lab{Table: New(r), t: t, r: r, now: start}
}

// node is a member "name" or "name/boot" of an epoch; its address is that of its name and boot.
func (l *lab) node(id string, epoch int64) *roster.Node {
	l.t.Helper()
	name, boot, ok := strings.Cut(id, "/")
	if !ok {
		boot = "b"
	}
	return l.nodeAt(cluster.Member{Name: name, Boot: boot, Epoch: epoch, Address: name + "-" + boot})
}

func (l *lab) nodeAt(m cluster.Member) *roster.Node {
	l.t.Helper()
	if _, err := l.r.Join(wire.MemberIDOf(m.Name, m.Boot, m.Epoch), m, l.now); err != nil {
		l.t.Fatal(err)
	}
	return l.r.ByID(m.NodeID())
}

func (l *lab) gone(n *roster.Node) { l.r.Leave(n.Incarnation, false, l.now) }

// key is an address of the default network.
func key(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

func pod(seq uint64, netns uint64) wire.Lease {
	return wire.Lease{Seq: seq, Key: key(1), Binding: cluster.Binding{
		Holder: detector.Holder{ID: detector.HolderID{Netns: netns}}, Evidence: detector.Announced, FirstSeen: start.Add(-time.Second),
	}}
}

func withdrawn(seq uint64, netns uint64) wire.Lease {
	return wire.Lease{Seq: seq, Gone: true, Key: key(1), Binding: cluster.Binding{Holder: detector.Holder{ID: detector.HolderID{Netns: netns}}}}
}

func host(seq uint64) wire.Lease {
	l := pod(seq, 1)
	l.Binding.Evidence = detector.Host
	return l
}

// accept hands a lease over, as it is decoded.
func (l *lab) accept(from *roster.Node, lease wire.Lease) (wire.Notice, []*roster.Node, Refusal) {
	lease.Binding.Holder.ID.Node = from.ID
	return l.Accept(from, lease, l.now)
}

// take hands a lease over. It compares what is acknowledged and then who is to be notified, and of whom: "b c" and
// "a: b1 c1" acknowledges the holders of b and c, and notifies node a of the holders 1 of b and c.
func (l *lab) take(from *roster.Node, lease wire.Lease, want ...string) {
	l.t.Helper()
	others, notify, refused := l.accept(from, lease)
	if refused != Accepted {
		l.t.Errorf("the lease is refused: %s", refused)
	}
	var got []string
	if len(others.Others) > 0 {
		got = append(got, text(others))
	}
	for _, n := range notify {
		got = append(got, n.Name+": "+text(l.Others(n, lease.Key)))
	}
	if !slices.Equal(got, want) {
		l.t.Errorf("%s sends seq %d:\n got %q\nwant %q", from.ID, lease.Seq, got, want)
	}
}

func text(others wire.Notice) string {
	var list []string
	for _, b := range others.Others {
		list = append(list, fmt.Sprintf("%s%d", cluster.NodeName(b.Holder.ID.Node), b.Holder.ID.Netns))
	}
	return strings.Join(list, " ")
}

func (l *lab) pass(d time.Duration) {
	l.now = l.now.Add(d)
	l.Expire(l.now)
}

func TestOtherHolders(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, pod(1, 1))
	l.take(a, pod(2, 2)) // of one node: for its own agent
	l.take(b, pod(1, 1), "a2 a1", "a: b1")
	l.take(b, pod(1, 1), "a2 a1") // sent again
	l.take(c, pod(9, 1), "b1 a2 a1", "b: c1 a2 a1", "a: c1 b1")
	l.pass(notifyAgain)
	l.take(c, pod(9, 1), "b1 a2 a1", "b: c1 a2 a1", "a: c1 b1") // not notified for a while
	l.take(c, withdrawn(10, 1))
	l.take(a, pod(1, 1), "b1")
	if others, _, _ := l.accept(b, pod(1, 1)); others.Total != 3 {
		t.Errorf("%d holders in all, want 3", others.Total)
	}
	if got := l.Others(c, key(1)); len(got.Others) != 0 {
		t.Errorf("one that has it no more is notified of %+v", got)
	}
	if got := l.Others(a, key(2)); len(got.Others) != 0 {
		t.Errorf("notified of %+v", got)
	}
}

// A node that has an address many times, or says so, does not hide who else has it.
func TestManyHoldersOfOneNode(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, pod(1, 1))
	for i := range uint64(2 * maxOfNode) {
		if _, _, refused := l.accept(b, pod(1+i, 1+i)); refused != Accepted && refused != Overfull {
			t.Fatal(refused)
		}
	}
	others, notify, _ := l.accept(c, pod(1, 1))
	got := []string{text(others), text(l.Others(a, key(1))), text(l.Others(b, key(1)))}
	for i, want := range []string{"b8 a1", "c1 b8", "c1 a1"} {
		if !strings.HasPrefix(got[i], want) {
			t.Errorf("got %q, want %q before all others", got[i], want)
		}
	}
	if len(notify) != 2 {
		t.Errorf("%d nodes are notified", len(notify))
	}
}

func TestBinding(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	first := pod(1, 7)
	first.Binding.Holder.MAC, first.Binding.Occurrences = detector.MAC{2}, 3
	l.take(a, first)
	l.pass(10 * time.Second)
	got, _, _ := l.accept(b, pod(1, 1))
	want := wire.Notice{Key: key(1), Total: 2, Others: []cluster.Binding{first.Binding}}
	want.Others[0].Holder.ID.Node, want.Others[0].LastSeen = a.ID, start
	if diff := cmp.Diff(want, got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestHosts(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, host(1))
	l.take(b, host(1)) // every node has its own 169.254.20.10
	l.take(c, pod(1, 1), "b1 a1", "b: c1", "a: c1")
	l.take(a, host(1), "c1")
}

// Two nodes are told of each other where they may not have one address, or that is worth to be known.
func TestPlaces(t *testing.T) {
	const uplink, bridge, unasked = detector.PlaceUplink, detector.PlaceBridge, detector.PlaceUnasked
	for pair, told := range map[[2]detector.Place]bool{
		{0, 0}: false, {uplink, 0}: false, {unasked, 0}: false, {uplink, uplink}: true, {uplink, unasked}: true, {unasked, unasked}: true, {bridge, 0}: true, {bridge, uplink}: true,
		{bridge, bridge}: true,
	} {
		at := func(place detector.Place) wire.Lease {
			lease := host(1)
			lease.Binding.Holder.Place = place
			return lease
		}
		for _, places := range [][2]detector.Place{pair, {pair[1], pair[0]}} {
			l := newLab(t)
			l.take(l.node("a", 1), at(places[0]))
			if others, _, _ := l.accept(l.node("b", 1), at(places[1])); (len(others.Others) > 0) != told {
				t.Errorf("%v: told %v, want %t", places, others.Others, told)
			}
		}
	}
}

// Two claims are no conflict; one against a holder is.
func TestClaims(t *testing.T) {
	claim := func(seq uint64) wire.Lease {
		l := pod(seq, 1)
		l.Binding.Evidence = detector.Claimed
		return l
	}
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, claim(1))
	l.take(b, claim(1))
	l.take(c, pod(1, 1), "b1 a1", "b: c1", "a: c1")
}

func TestVersions(t *testing.T) {
	for _, c := range []struct {
		name   string
		leases []wire.Lease
		live   bool
	}{
		{"lease", []wire.Lease{pod(1, 1)}, true},
		{"withdrawal", []wire.Lease{pod(1, 1), withdrawn(2, 1)}, false},
		{"late lease", []wire.Lease{withdrawn(2, 1), pod(1, 1)}, false},
		{"late lease after both", []wire.Lease{pod(1, 1), withdrawn(2, 1), pod(1, 1)}, false},
		{"late withdrawal", []wire.Lease{pod(3, 1), withdrawn(2, 1)}, true},
		{"back again", []wire.Lease{pod(1, 1), withdrawn(2, 1), pod(3, 1)}, true},
		{"back again, in reverse", []wire.Lease{pod(3, 1), withdrawn(2, 1), pod(1, 1)}, true},
		{"withdrawal with the number of a lease", []wire.Lease{pod(1, 1), withdrawn(1, 1)}, true},
		{"lease with the number of a withdrawal", []wire.Lease{withdrawn(1, 1), pod(1, 1)}, false},
		{"withdrawal twice", []wire.Lease{pod(1, 1), withdrawn(2, 1), withdrawn(2, 1)}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			a, b := l.node("a", 1), l.node("b", 1)
			for _, lease := range c.leases {
				l.take(a, lease)
			}
			if got := l.Len() == 1; got != c.live {
				t.Fatalf("%d leases", l.Len())
			}
			if c.live {
				l.take(b, pod(1, 1), "a1", "a: b1")
			} else {
				l.take(b, pod(1, 1))
			}
		})
	}
}

func TestChangeNotifiesAgain(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.take(b, pod(1, 1), "a1", "a: b1")
	changed := pod(2, 1)
	changed.Binding.Occurrences = 1
	l.take(a, changed, "b1", "b: a1")
	l.take(a, pod(1, 1)) // overtaken
}

func TestExpiry(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.pass(200 * time.Second)
	l.take(a, pod(1, 1)) // refreshed
	l.pass(299 * time.Second)
	if l.Len() != 1 || !l.Expire(l.now).Equal(l.now.Add(time.Second)) {
		t.Fatal("a lease ended early")
	}
	l.pass(time.Second)
	if l.Len() != 0 || len(l.entries) != 0 {
		t.Fatal("a lease did not end")
	}
	l.take(a, withdrawn(5, 1))
	l.pass(59 * time.Second)
	l.take(a, pod(4, 1))
	if l.Len() != 0 {
		t.Error("a withdrawal was forgotten early")
	}
	l.pass(2 * time.Second)
	if len(l.entries) != 0 || !l.Expire(l.now).IsZero() {
		t.Error("a withdrawal was not forgotten")
	}
	l.take(b, pod(1, 1))
}

func TestForget(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.take(a, withdrawn(2, 2))
	l.take(b, pod(1, 1), "a1", "a: b1")
	l.Forget(a)
	l.Forget(a)
	if l.Len() != 1 || l.Table.gone.Len() != 0 || len(l.senders) != 1 {
		t.Errorf("%d leases, %d withdrawals, %d nodes", l.Len(), l.Table.gone.Len(), len(l.senders))
	}
	l.take(b, pod(1, 1))
}

// TestSingle: of which addresses routes can be followed: those that one pod of another live node has.
func TestSingle(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	lease := func(n *roster.Node, address int, made wire.Lease) {
		made.Key = key(address)
		l.accept(n, made)
	}
	lease(a, 1, pod(1, 1))
	lease(b, 2, pod(2, 2))
	lease(b, 2, withdrawn(3, 2)) // its end is remembered
	lease(a, 2, pod(4, 3))
	lease(a, 3, pod(5, 4)) // two have it
	lease(b, 3, pod(6, 5))
	lease(a, 4, host(7))
	lease(b, 5, pod(8, 6))
	lease(l.r.Self(), 6, pod(9, 7))
	lease(a, 7, pod(10, 8))
	lease(a, 7, withdrawn(11, 8))
	check := func(want ...string) {
		t.Helper()
		var got []string
		for _, s := range l.Single(100) {
			got = append(got, fmt.Sprintf("%v of %s/%d", s.Key.IP, s.Binding.Holder.ID.Node, s.Binding.Holder.ID.Netns))
		}
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	check("10.0.0.1 of a/b/1", "10.0.0.2 of a/b/3", "10.0.0.5 of b/b/6")
	if n := len(l.Single(2)); n != 2 {
		t.Errorf("%d of at most 2", n)
	}
	l.gone(b)
	check("10.0.0.1 of a/b/1", "10.0.0.2 of a/b/3")
}
