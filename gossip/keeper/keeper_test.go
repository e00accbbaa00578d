package keeper

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

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
	self := cluster.Member{Name: "self", Boot: "s"}
	r := roster.New(wire.MemberIDOf("self", "s", 0), self, start)
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
	n, _, err := l.r.Join(wire.MemberIDOf(m.Name, m.Boot, m.Epoch), m, l.now)
	if err != nil {
		l.t.Fatal(err)
	}
	return n
}

func (l *lab) gone(n *roster.Node) { l.r.Leave(n.Member, l.now) }

// key is an address of the default network.
func key(i int) detector.Key {
	return detector.Key{Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})}
}

func pod(seq uint64, netns uint64) wire.Lease {
	return wire.Lease{Seq: seq, Key: key(1), Claim: wire.Claim{
		Holder: wire.Holder{Netns: netns}, Evidence: detector.Announced, FirstSeen: time.Second,
	}}
}

func withdrawn(seq uint64, netns uint64) wire.Lease {
	return wire.Lease{Seq: seq, Gone: true, Key: key(1), Claim: wire.Claim{Holder: wire.Holder{Netns: netns}}}
}

func host(seq uint64) wire.Lease {
	l := pod(seq, 1)
	l.Claim.Evidence = detector.Host
	return l
}

// take hands over a lease and compares who is told of whom: "a: b1 c1" tells node a of
// the holders 1 of b and c.
func (l *lab) take(from *roster.Node, lease wire.Lease, want ...string) {
	l.t.Helper()
	tells, refused := l.Take(from, lease, l.now)
	if refused != Taken {
		l.t.Errorf("the lease is refused: %s", refused)
	}
	if got := l.text(tells); !slices.Equal(got, want) {
		l.t.Errorf("%s tells seq %d:\n got %q\nwant %q", from.ID, lease.Seq, got, want)
	}
}

func (l *lab) text(tells []Tell) (list []string) {
	for _, t := range tells {
		s := t.To.Name + ":"
		for _, c := range t.Rival.Claims {
			n := l.r.Sender(c.Holder.Member)
			if n == nil {
				l.t.Fatalf("%s is told of a former incarnation", t.To.ID)
			}
			s += fmt.Sprintf(" %s%d", n.Name, c.Holder.Netns)
		}
		list = append(list, s)
	}
	return list
}

func (l *lab) pass(d time.Duration) {
	l.now = l.now.Add(d)
	l.Expire(l.now)
}

func TestRivals(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, pod(1, 1))
	l.take(a, pod(2, 2)) // of one node: its own affair
	l.take(b, pod(1, 1), "b: a1 a2", "a: b1")
	l.take(b, pod(1, 1), "b: a1 a2") // sent again
	l.take(c, pod(9, 1), "c: a1 b1 a2", "a: c1 b1", "b: c1 a1 a2")
	l.pass(31 * time.Second)
	l.take(c, pod(9, 1), "c: a1 b1 a2", "a: c1 b1", "b: c1 a1 a2") // not told for a while
	l.take(c, withdrawn(10, 1))
	l.take(a, pod(1, 1), "a: b1")
	if tells, _ := l.Take(b, pod(1, 1), l.now); tells[0].Rival.Total != 3 {
		t.Errorf("%d holders in all, want 3", tells[0].Rival.Total)
	}
}

// A node that has an address many times, or says so, does not hide who else has it.
func TestManyHoldersOfOneNode(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, pod(1, 1))
	for i := range uint64(2 * maxOfNode) {
		if _, refused := l.Take(b, pod(1+i, 1+i), l.now); refused != Taken {
			t.Fatal(refused)
		}
	}
	tells, _ := l.Take(c, pod(1, 1), l.now)
	for _, t := range l.text(tells) {
		for _, want := range []string{"c: a1 b1", "a: c1 b1", "b: c1 a1"} {
			if t[:1] == want[:1] && !strings.HasPrefix(t, want) {
				l.t.Errorf("told %q, want %q before all others", t, want)
			}
		}
	}
	if len(tells) != 3 {
		t.Errorf("told %q, want all three nodes", l.text(tells))
	}
}

func TestClaim(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	first := pod(1, 7)
	first.Claim.MAC, first.Claim.Episodes = detector.MAC{2}, 3
	l.take(a, first)
	l.pass(10 * time.Second)
	tells, _ := l.Take(b, pod(1, 1), l.now)
	want := first.Claim
	want.Holder.Member, want.FirstSeen, want.LastSeen = a.Member, 11*time.Second, 10*time.Second
	if got := tells[0].Rival; got.Key != key(1) || got.Total != 2 || got.Claims[0] != want {
		t.Errorf("told %+v, want claim %+v", got, want)
	}
}

func TestHosts(t *testing.T) {
	l := newLab(t)
	a, b, c := l.node("a", 1), l.node("b", 1), l.node("c", 1)
	l.take(a, host(1))
	l.take(b, host(1)) // every node has its own 169.254.20.10
	l.take(c, pod(1, 1), "c: a1 b1", "a: c1", "b: c1")
	l.take(a, host(1), "a: c1")
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
				l.take(b, pod(1, 1), "b: a1", "a: b1")
			} else {
				l.take(b, pod(1, 1))
			}
		})
	}
}

func TestChangeTellsAgain(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.take(b, pod(1, 1), "b: a1", "a: b1")
	changed := pod(2, 1)
	changed.Claim.Episodes = 1
	l.take(a, changed, "a: b1", "b: a1")
	l.take(a, pod(1, 1)) // overtaken
}

func TestExpiry(t *testing.T) {
	l := newLab(t)
	a, b := l.node("a", 1), l.node("b", 1)
	l.take(a, pod(1, 1))
	l.pass(200 * time.Second)
	l.take(a, pod(1, 1)) // refreshed
	l.pass(299 * time.Second)
	if l.Len() != 1 {
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
	if len(l.entries) != 0 || !l.Next().IsZero() {
		t.Error("a withdrawal was not forgotten")
	}
	l.take(b, pod(1, 1))
}
