package members

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

// someMember is a member of node n at an address.
func someMember(n int, boot string, epoch int64, at string) (Member, netip.AddrPort, *memberlist.Node) {
	id := identity{Name: fmt.Sprintf("n%d", n), Boot: boot, Epoch: epoch}
	address := netip.MustParseAddrPort(at)
	return id.member(), address, &memberlist.Node{
		Name: memberName(id.Name, id.id()), Addr: address.Addr().AsSlice(), Port: address.Port(),
	}
}

func newTestTable() *table {
	self, at, _ := someMember(0, "b", 10, "10.0.0.100:7951")
	t := newTable(self)
	t.locate(at)
	return t
}

// told is what a handler would be told.
func (t *table) told() string {
	var all []string
	for _, n := range t.news() {
		all = append(all, string("+~-"[n.kind])+n.member.Name+"@"+fmt.Sprint(n.member.Epoch))
	}
	return strings.Join(all, " ")
}

func TestTableEpochs(t *testing.T) {
	now := time.Now()
	for _, test := range []struct {
		name          string
		first, second int64
		want          string
	}{
		{"in order", 1, 2, "-n1@1 +n1@2"},
		{"the older is heard of last", 2, 1, ""},
	} {
		table := newTestTable()
		join := func(epoch int64) {
			m, at, node := someMember(1, "b", epoch, fmt.Sprintf("10.0.0.%d:1", epoch))
			table.joined(m, at, node, now)
		}
		join(test.first)
		if got, want := table.told(), fmt.Sprintf("+n1@%d", test.first); got != want {
			t.Errorf("%s: told %q, want %q", test.name, got, want)
		}
		join(test.second)
		if got := table.told(); got != test.want {
			t.Errorf("%s: told %q, want %q", test.name, got, test.want)
		}
		if table.live() != 2 {
			t.Errorf("%s: %d live", test.name, table.live())
		}
		// What memberlist finds later is known already.
		for _, epoch := range []int64{1, 2} {
			m, _, _ := someMember(1, "b", epoch, "10.0.0.1:1")
			table.left(m.ID, now)
		}
		table.settle(table.unsure())
		if got := table.told(); got != "-n1@2" {
			t.Errorf("%s: in the end told %q", test.name, got)
		}
		if table.live() != 1 || len(table.places)+len(table.nodes) != 0 {
			t.Errorf("%s: %d live, %v, %v", test.name, table.live(), table.places, table.nodes)
		}
	}
}

// Whoever is said to be where this agent is was there before.
func TestTableOwnPlace(t *testing.T) {
	table := newTestTable()
	for i, other := range []struct {
		n     int
		boot  string
		epoch int64
		at    string
	}{{0, "b", 9, "10.0.0.1:1"}, {0, "old", 900, "10.0.0.100:7951"}, {5, "x", 1, "10.0.0.100:7951"}} {
		m, at, node := someMember(other.n, other.boot, other.epoch, other.at)
		table.joined(m, at, node, time.Now())
		if got := table.told(); got != "" || table.live() != 1 {
			t.Errorf("%d: told %q, %d live", i, got, table.live())
		}
	}
	m, at, node := someMember(0, "b", 11, "10.0.0.1:1")
	if table.joined(m, at, node, time.Now()); table.told() != "+n0@11" {
		t.Error("a later agent on this node is hidden")
	}
}

// A later agent on this very kernel under this node's name: the others hear that one only, and
// nobody but this agent can know of both.
func TestTableSuccessorOfSelf(t *testing.T) {
	table, now := newTestTable(), time.Now()
	m, at, node := someMember(0, "b", 11, "10.0.0.1:1")
	table.joined(m, at, node, now)
	if problems := nameProblems(table.members(now)); len(problems) != 0 {
		t.Errorf("at once: %q", problems)
	}
	later := now.Add(2 * namesakesAfter)
	if problems := nameProblems(table.members(later)); len(problems) != 1 || !strings.Contains(problems[0], "2 agents of node n0 run on one machine") {
		t.Errorf("problems: %q", problems)
	}
	table.left(m.ID, later)
	if problems := nameProblems(table.members(later)); len(problems) != 0 {
		t.Errorf("when it is gone: %q", problems)
	}
}

// Each name is told of once, and not all of many.
func TestNameProblems(t *testing.T) {
	var members []Member
	for n := range 40 {
		name, at := fmt.Sprint("n", n/10), fmt.Sprintf("10.0.0.%d:7951", n)
		members = append(members, Member{Member: cluster.Member{Name: name, Boot: fmt.Sprint("b", n), Address: at, Namesake: n < 8 || n >= 10}})
	}
	problems := nameProblems(members)
	const want = "8 live nodes have the name n0 (10.0.0.0:7951, 10.0.0.1:7951, 10.0.0.2:7951, …): a machine that was replaced and still runs, " +
		"or some made from one image; shut the old one down, or give each a --node-name of its own"
	if len(problems) != maxNamed || problems[0] != want {
		t.Errorf("problems %q, want first %q", problems, want)
	}
}

// Whoever says that it is a later agent of a node takes the former one's place only as long as
// it is there: the other may be there all the time.
func TestTableReturns(t *testing.T) {
	table, now := newTestTable(), time.Now()
	join := func(epoch int64, at string) Member {
		m, place, node := someMember(1, "b", epoch, at)
		table.joined(m, place, node, now)
		return m
	}
	join(3, "10.0.0.3:1")
	own := join(5, "10.0.0.5:1")
	if got := table.told(); got != "+n1@5" {
		t.Fatalf("told %q", got)
	}
	later := join(1<<60, "10.0.0.6:1")
	if got := table.told(); got != "-n1@5 +n1@1152921504606846976" {
		t.Fatalf("told %q", got)
	}
	table.left(later.ID, now)
	table.settle(table.unsure())
	if got := table.told(); got != "-n1@1152921504606846976" {
		t.Errorf("when the later one is gone: told %q", got)
	}
	if got := table.told(); got != "+n1@5" { // in this order: they are one node
		t.Errorf("after the later one was gone: told %q", got)
	}
	if _, ok := table.route(own.ID); !ok || table.live() != 2 || len(table.members(now)) != 2 || table.members(now)[1].State != cluster.Alive {
		t.Errorf("%d live, %+v", table.live(), table.members(now))
	}
	table.left(own.ID, now)
	table.settle(table.unsure())
	if got := table.told() + " " + table.told(); got != "-n1@5 +n1@3" {
		t.Errorf("when that is gone, too: told %q", got)
	}
	join(5, "10.0.0.5:1")
	if got := table.told(); got != "-n1@3 +n1@5" && got != "+n1@5 -n1@3" {
		t.Errorf("when it is back: told %q", got)
	}
}

func TestTableFlap(t *testing.T) {
	table, now := newTestTable(), time.Now()
	m, at, node := someMember(1, "b", 1, "10.0.0.1:1")
	table.joined(m, at, node, now)
	table.left(m.ID, now)
	if got := table.told(); got != "" {
		t.Errorf("one who came and went: %q", got)
	}
	table.settle(table.unsure())
	if got := table.told(); got != "" {
		t.Errorf("one who came and went, settled: %q", got)
	}
	table.joined(m, at, node, now)
	if got := table.told(); got != "+n1@1" {
		t.Errorf("it is back: %q", got)
	}
	table.left(m.ID, now)
	if got := table.told(); got != "" || len(table.unsure()) != 1 {
		t.Errorf("before it is known whether it left: %q", got)
	}
	table.joined(m, at, node, now)
	if got := table.told(); got != "" || table.live() != 2 {
		t.Errorf("it was away for a moment: %q", got)
	}
	for _, state := range []memberlist.NodeStateType{memberlist.StateSuspect, memberlist.StateAlive, memberlist.StateLeft} {
		table.apply(map[wire.MemberID]memberlist.NodeStateType{m.ID: state}, now)
	}
	if got := table.members(now)[1].State; got != cluster.Alive {
		t.Errorf("it is %s: somebody else's word counts for more than the event", got)
	}
}

func TestTableBounds(t *testing.T) {
	table, now := newTestTable(), time.Now()
	var last Member
	for i := range maxMembers {
		m, at, node := someMember(i, "x", 1, fmt.Sprintf("10.%d.%d.1:1", i/256, i%256))
		if table.refuses(m.ID) {
			t.Fatalf("member %d is refused", i)
		}
		table.joined(m, at, node, now)
		last = m
	}
	more, _, _ := someMember(1<<20, "x", 1, "10.0.0.1:1")
	if !table.refuses(more.ID) || table.refuses(last.ID) || table.refuses(table.self.ID) {
		t.Error("who is refused and who is not")
	}
	table.told()
	for _, m := range table.members(now) {
		table.left(m.ID, now)
	}
	table.settle(table.unsure())
	if got := strings.Count(table.told(), "-"); got != maxMembers {
		t.Errorf("the handler is told of %d", got)
	}
	if len(table.entries) != maxGone || len(table.gone) != maxGone || table.live() != 1 {
		t.Errorf("%d entries, %d gone, %d live", len(table.entries), len(table.gone), table.live())
	}
	table.expire(now.Add(goneFor))
	if len(table.entries)+len(table.gone)+len(table.dirty) != 0 {
		t.Errorf("%d entries, %d gone", len(table.entries), len(table.gone))
	}
}

// Who was started again is one node and not a dead one beside a live one.
func TestTableShowsTheLatestAgentOfANode(t *testing.T) {
	now, table := time.Now(), newTestTable()
	join := func(n int, boot string, epoch int64) {
		m, at, node := someMember(n, boot, epoch, fmt.Sprintf("10.0.%d.%d:1", n, epoch))
		table.joined(m, at, node, now)
	}
	shown := func() string {
		var all []string
		for _, m := range table.members(now) {
			all = append(all, fmt.Sprintf("%s/%s@%d %s", m.Name, m.Boot, m.Epoch, m.State))
		}
		return strings.Join(all, ", ")
	}
	join(0, "b", 1) // this agent's predecessor
	join(1, "b", 1)
	join(1, "b", 2)
	join(2, "b", 1)
	join(2, "c", 1) // after a reboot nobody knows that it is the same machine
	m, _, _ := someMember(2, "b", 1, "10.0.2.1:1")
	table.left(m.ID, now)
	if got, want := shown(), "n0/b@10 alive, n1/b@2 alive, n2/b@1 dead, n2/c@1 alive"; got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
	m, _, _ = someMember(1, "b", 2, "10.0.1.2:1")
	table.left(m.ID, now)
	if got, want := shown(), "n0/b@10 alive, n1/b@2 dead, n2/b@1 dead, n2/c@1 alive"; got != want {
		t.Errorf("shown %s, want %s", got, want)
	}
}
