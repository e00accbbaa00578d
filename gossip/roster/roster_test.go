package roster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/wire"
)

var start = time.Unix(1e9, 0)

func member(name, boot string, epoch int64) cluster.Member {
	return cluster.Member{Name: name, Boot: boot, Epoch: epoch, Address: fmt.Sprintf("%s-%s:7951", name, boot)}
}

func id(m cluster.Member) wire.MemberID { return wire.MemberIDOf(m.Name, m.Boot, m.Epoch) }

// lab is a roster with a clock.
type lab struct {
	*Roster
	t   *testing.T
	now time.Time
}

func newLab(t *testing.T) *lab {
	self := member("self", "s", 5)
	return &lab{New(id(self), self, start), t, start}
}

// text describes changes: "came n/b" and "again n/b", "renewed n/b", "went n/b".
func text(changes []Change) string {
	var list []string
	for _, c := range changes {
		what := map[Kind]string{Came: "came", Renewed: "renewed", Went: "went"}[c.Kind]
		if c.Again {
			what = "again"
		}
		list = append(list, what+" "+c.Node.ID)
	}
	return strings.Join(list, ", ")
}

func (l *lab) expect(changes []Change, err error, want string) {
	l.t.Helper()
	if got := text(changes); got != want || err != nil {
		l.t.Errorf("changes are %q, %v; want %q", got, err, want)
	}
}

func (l *lab) join(m cluster.Member, want string) *Node {
	l.t.Helper()
	changes, err := l.Join(id(m), m, l.now)
	l.expect(changes, err, want)
	return l.ByID(m.NodeID())
}

func (l *lab) leave(m cluster.Member, want string) {
	l.t.Helper()
	l.expect(l.Leave(id(m), false, l.now), nil, want)
}

// keepers are the names of all agents that keep something.
func (l *lab) keepers() string {
	var names []string
	for _, n := range l.Keepers(1, 100) {
		names = append(names, n.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// listed are the members that are listed, with their epochs; a star follows namesakes.
func (l *lab) listed() string {
	var list []string
	var all []cluster.Member
	for _, m := range l.Members(l.now) {
		all = append(all, m)
	}
	slices.SortFunc(all, func(a, b cluster.Member) int {
		return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Boot, b.Boot), cmp.Compare(a.Epoch, b.Epoch))
	})
	for _, m := range all {
		s := fmt.Sprintf("%s/%s%d %s", m.Name, m.Boot, m.Epoch, m.State)
		if m.Namesake {
			s += "*"
		}
		list = append(list, s)
	}
	return strings.Join(list, ", ")
}

func TestLife(t *testing.T) {
	l := newLab(t)
	m1, m2 := member("n", "b", 1), member("n", "b", 2)
	n := l.join(m1, "came n/b")
	l.join(m1, "")
	if l.keepers() != "n self" || l.Sender(id(m1)) != n || l.ByID("n/b") != n || l.ByID("n/c") != nil {
		t.Error("the node is not known")
	}
	l.leave(m1, "went n/b")
	l.leave(m1, "")
	if n.Alive() || l.keepers() != "self" || l.Sender(id(m1)) != nil || l.ByID("n/b") != n {
		t.Error("it is still there, or forgotten")
	}
	l.join(m1, "again n/b")
	l.leave(m1, "went n/b")
	l.join(m2, "came n/b")
	l.expect(l.Leave(id(m2), true, l.now), nil, "went n/b")
	if got := l.listed(); got != "n/b2 left, self/s5 alive" {
		t.Error(got)
	}
	l.leave(member("x", "y", 1), "")
	l.leave(member("self", "s", 5), "")
	if !l.Self().Alive() || !l.Self().Self || l.keepers() != "self" {
		t.Error("this node left")
	}
}

// Of several incarnations of one boot the latest counts, as long as it is there, in whatever order they are reported.
func TestIncarnations(t *testing.T) {
	l := newLab(t)
	m1, m2, m3 := member("n", "b", 1), member("n", "b", 2), member("n", "b", 3)
	n := l.join(m2, "came n/b")
	l.join(m1, "") // a late report
	l.join(m3, "renewed n/b")
	if l.Sender(id(m1)) != nil || l.Sender(id(m2)) != nil || l.Sender(id(m3)) != n || n.Epoch != 3 {
		t.Error("a former incarnation may speak")
	}
	l.leave(m2, "")
	l.leave(m3, "renewed n/b") // it may not have been an agent of this node at all
	if l.Sender(id(m1)) != n || n.Epoch != 1 {
		t.Error("the one that is there may not speak")
	}
	l.join(m2, "renewed n/b")
	l.leave(m1, "")
	l.leave(m2, "went n/b")
	if len(l.byMember) != 1 || len(n.runs) != 0 {
		t.Error("something is left")
	}
}

// Incarnations without end: the latest are known.
func TestManyIncarnations(t *testing.T) {
	l := newLab(t)
	l.join(member("n", "b", 1), "came n/b")
	for epoch := range int64(1000) {
		m := member("n", "b", 2+epoch)
		if n := l.join(m, "renewed n/b"); l.Sender(id(m)) != n {
			t.Fatalf("epoch %d is not known", m.Epoch)
		}
		self := member("self", "s", 6+epoch)
		self.Address = "elsewhere"
		l.join(self, "")
	}
	if len(l.byMember) != 2*maxRuns || len(l.Self().runs) != maxRuns {
		t.Errorf("%d incarnations are known", len(l.byMember))
	}
	if self := member("self", "s", 5); l.Sender(id(self)) != l.Self() {
		t.Error("this agent is not known")
	}
}

// What others say of other incarnations of this agent changes nothing.
func TestSelf(t *testing.T) {
	l := newLab(t)
	for _, epoch := range []int64{1, 9} {
		m := member("self", "s", epoch)
		if n := l.join(m, ""); n != l.Self() || n.Epoch != 5 || n.Incarnation != id(member("self", "s", 5)) {
			t.Errorf("epoch %d took this agent's place", epoch)
		}
		if l.Sender(id(m)) != nil {
			t.Errorf("epoch %d may speak for this node", epoch)
		}
		l.leave(m, "")
	}
	// The agent that was here before the node was booted.
	former := member("self", "former", 1)
	former.Address = l.Self().Address
	if n := l.join(former, ""); n != nil || l.Sender(id(former)) != nil {
		t.Error("a former boot of this node is known")
	}
	l.leave(former, "")
	other := member("self", "other", 1)
	l.join(other, "came self/other") // at another address it is another node
}

// A member says something else of itself.
func TestUpdate(t *testing.T) {
	l := newLab(t)
	m := member("n", "b", 1)
	n := l.join(m, "came n/b")
	m.Version, m.Address = "2", "other"
	l.now = start.Add(time.Minute)
	l.join(m, "")
	if n.Version != "2" || n.Address != "other" || !n.Since.Equal(start) {
		t.Errorf("%+v", n)
	}
}

// A node that was booted anew takes the place of its former boot, which had its address. If that sends something all the
// same, it is there beside it.
func TestReplaced(t *testing.T) {
	l := newLab(t)
	old, young := member("n", "old", 1), member("n", "young", 1)
	young.Address = old.Address
	n := l.join(old, "came n/old")
	l.join(young, "went n/old, came n/young")
	if n.State != cluster.Dead || l.Sender(id(old)) != nil || l.keepers() != "n self" || !l.BootedAnew("n/old") || l.BootedAnew("n/young") {
		t.Errorf("%+v is there", n)
	}
	l.expect(l.Heard(id(young), l.now), nil, "")
	l.expect(l.Heard(id(old), l.now), nil, "again n/old")
	l.expect(l.Heard(id(old), l.now), nil, "")
	if l.Sender(id(old)) != n || l.Sender(id(young)) == nil {
		t.Error("one of the two is unknown")
	}
	l.leave(old, "went n/old")

	l = newLab(t)
	l.join(old, "came n/old")
	l.join(young, "went n/old, came n/young")
	l.leave(old, "")
	l.expect(l.Heard(id(old), l.now), nil, "") // what comes late
	if got := l.listed(); got != "n/old1 dead, n/young1 alive, self/s5 alive" || len(l.replaced) != 0 {
		t.Error(got)
	}
}

func TestBootedAnew(t *testing.T) {
	l := newLab(t)
	old, young := member("n", "old", 1), member("n", "young", 1)
	l.join(old, "came n/old")
	l.leave(old, "went n/old")
	if l.BootedAnew("n/old") || l.BootedAnew("x/y") {
		t.Error("it may come back")
	}
	l.join(young, "came n/young")
	if !l.BootedAnew("n/old") || !l.BootedAnew("n/unknown") || l.BootedAnew("n/young") {
		t.Error("it does not come back")
	}
	namesake := member("n", "other", 1)
	namesake.Address = "10.0.0.9:7951"
	l.join(namesake, "came n/other")
	l.now = l.now.Add(cluster.NamesakesAfter)
	l.leave(young, "went n/young")
	if l.BootedAnew("n/young") {
		t.Error("its namesake was there beside it: it may come back")
	}
	namesake.Epoch = 2
	l.join(namesake, "renewed n/other")
	if l.BootedAnew("n/young") {
		t.Error("the namesake's next agent is no later boot")
	}
}

func TestNamesake(t *testing.T) {
	l := newLab(t)
	var nodes []*Node
	for _, boot := range []string{"0", "1", "2", "3"} {
		nodes = append(nodes, l.join(member("n", boot, 1), "came n/"+boot))
	}
	for _, n := range nodes {
		if !l.HasNamesake(n) {
			t.Errorf("%s has no namesake", n.ID)
		}
	}
	if l.HasNamesake(l.Self()) {
		t.Error("this node has a namesake")
	}
	// They go one after the other, the middle one first.
	for i, gone := range []int{2, 0, 3} {
		l.leave(nodes[gone].Member, "went "+nodes[gone].ID)
		l.Cleanup(start.Add(time.Duration(i+1) * time.Hour))
		if l.ByID(nodes[gone].ID) != nil {
			t.Errorf("%s is not forgotten", nodes[gone].ID)
		}
	}
	if l.ByID("n/1") != nodes[1] || l.HasNamesake(nodes[1]) || l.nodes != 2 {
		t.Error("the last of a name is not alone")
	}
}

// Agents that are there together for a while are listed as namesakes; one that started again is not.
func TestListed(t *testing.T) {
	moved := func(m cluster.Member) cluster.Member {
		m.Address += "2"
		return m
	}
	for _, test := range []struct {
		name    string
		members []cluster.Member
		soon    string
		later   string
	}{
		{"two boots", []cluster.Member{member("n", "a", 1), member("n", "b", 1)}, "n/a1 alive, n/b1 alive", "n/a1 alive*, n/b1 alive*"},
		{"two agents of one boot", []cluster.Member{member("n", "a", 1), moved(member("n", "a", 2))}, "n/a2 alive", "n/a1 alive*, n/a2 alive*"},
		{"a restart", []cluster.Member{member("n", "a", 1), member("n", "a", 2)}, "n/a2 alive", "n/a2 alive"},
		{"three", []cluster.Member{member("n", "a", 1), moved(member("n", "a", 2)), member("n", "b", 1)}, "n/a2 alive, n/b1 alive", "n/a1 alive*, n/a2 alive*, n/b1 alive*"},
	} {
		l := newLab(t)
		for _, m := range test.members {
			if _, err := l.Join(id(m), m, l.now); err != nil {
				t.Fatal(err)
			}
		}
		for _, step := range []struct {
			after time.Duration
			want  string
		}{{cluster.NamesakesAfter - time.Second, test.soon}, {cluster.NamesakesAfter, test.later}} {
			l.now = start.Add(step.after)
			if got := l.listed(); got != step.want+", self/s5 alive" {
				t.Errorf("%s after %v: %s", test.name, step.after, got)
			}
		}
	}
	// At once it is known that there are two.
	for _, test := range []struct {
		name    string
		members []cluster.Member
		want    bool
	}{
		{"alone", []cluster.Member{member("n", "a", 1)}, false},
		{"another name", []cluster.Member{member("n", "a", 1), moved(member("m", "a", 2))}, false},
		{"another address", []cluster.Member{member("n", "a", 1), moved(member("n", "b", 2))}, true},
	} {
		l := newLab(t)
		for _, m := range test.members {
			if _, err := l.Join(id(m), m, l.now); err != nil {
				t.Fatal(err)
			}
		}
		for n, m := range l.Members(l.now) {
			if m.Name == "n" && m.Doubled != test.want || m.Namesake {
				t.Errorf("%s: %s is doubled: %v, a namesake: %v", test.name, n.ID, m.Doubled, m.Namesake)
			}
		}
	}
	// A second agent of this node.
	l := newLab(t)
	l.join(moved(member("self", "s", 9)), "")
	l.now = start.Add(time.Hour)
	if got := l.listed(); got != "self/s5 alive*, self/s9 alive*" {
		t.Error(got)
	}
}

// Members with other roles are not listed.
func TestRoles(t *testing.T) {
	l := newLab(t)
	l.join(member("n", "b", 1), "came n/b")
	gone := member("gone", "b", 1)
	l.join(gone, "came gone/b")
	l.leave(gone, "went gone/b")
	reporter := member("r", "b", 1)
	reporter.Role = cluster.Reporter
	l.join(reporter, "came r/b")
	if got := l.listed(); got != "gone/b1 dead, n/b1 alive, self/s5 alive" {
		t.Error(got)
	}
	if l.keepers() != "n self" {
		t.Errorf("keepers are %s", l.keepers())
	}
}

// A node that comes back after a minute or more was away.
func TestAway(t *testing.T) {
	for gone, want := range map[time.Duration]bool{30 * time.Second: false, 5 * time.Minute: true} {
		l := newLab(t)
		m := member("n", "b", 1)
		n := l.join(m, "came n/b")
		if !n.AwayFrom.IsZero() {
			t.Error("a new node was away")
		}
		l.now = start.Add(time.Hour)
		l.leave(m, "went n/b")
		l.now = l.now.Add(gone)
		n = l.join(m, "again n/b")
		if away := n.AwayFrom.Equal(start.Add(time.Hour)); away != want || !n.Since.Equal(l.now) || n.AwayUntil.Equal(l.now) != want {
			t.Errorf("gone for %v: away from %v, back at %v", gone, n.AwayFrom, n.Since)
		}
	}
}

// One member has another role than the one before it on that node.
func TestRoleChanges(t *testing.T) {
	l := newLab(t)
	agent, reporter := member("n", "b", 1), member("n", "b", 2)
	reporter.Role = cluster.Reporter
	l.join(agent, "came n/b")
	l.join(reporter, "went n/b, came n/b")
	if l.keepers() != "self" {
		t.Errorf("keepers are %s", l.keepers())
	}
	l.leave(reporter, "went n/b, came n/b")
	if n := l.ByID("n/b"); l.keepers() != "n self" || !n.Alive() || n.Incarnation != id(agent) {
		t.Errorf("keepers are %s, the node is %+v", l.keepers(), n.Member)
	}
}

func TestCleanup(t *testing.T) {
	l := newLab(t)
	l.Cleanup(start)
	dead := member("dead", "b", 1)
	n := l.join(dead, "came dead/b")
	l.leave(dead, "went dead/b")
	if gone := l.Cleanup(start.Add(keepGone - time.Minute)); len(gone) != 0 || l.ByID("dead/b") != n {
		t.Errorf("forgot %v too early", gone)
	}
	if gone := l.Cleanup(start.Add(keepGone)); len(gone) != 1 || gone[0] != n || l.ByID("dead/b") != nil || len(l.byName) != 1 {
		t.Errorf("forgot %v", gone)
	}
	if gone := l.Cleanup(start.Add(2 * keepGone)); len(gone) != 0 {
		t.Errorf("forgot %v twice", gone)
	}
}

// As many nodes as can be known, all there, leave no room for another. Nodes that came and went, however many, do.
func TestBounds(t *testing.T) {
	l := newLab(t)
	l.Cleanup(start)
	for i := range maxNodes - 1 {
		m := member(fmt.Sprint(i), "b", 1)
		l.join(m, "came "+m.NodeID())
	}
	more := member("more", "b", 1)
	if _, err := l.Join(id(more), more, l.now); !errors.Is(err, ErrFull) || l.nodes != maxNodes {
		t.Errorf("%d nodes, %v", l.nodes, err)
	}
	l.join(member("0", "b", 2), "renewed 0/b")
	for i := range 100 {
		l.leave(member(fmt.Sprint(7*i+1), "b", 1), fmt.Sprintf("went %d/b", 7*i+1))
	}
	l.join(more, "came more/b")
	if forgotten := l.Cleanup(start.Add(time.Second)); len(forgotten) != 100 || l.nodes != maxNodes-99 { // others have to forget them, too
		t.Errorf("%d are forgotten, %d known", len(forgotten), l.nodes)
	}
}

func TestKeepers(t *testing.T) {
	l := newLab(t)
	for i := range 40 {
		m := member(fmt.Sprint(i), "b", 1)
		l.join(m, "came "+m.NodeID())
	}
	newcomer := member("newcomer", "b", 1)
	moved := 0
	for i := range uint64(2000) {
		h := i * 0x9e3779b97f4a7c15
		before, all := l.Keepers(h, 3), l.Keepers(h, 100)
		score := func(a, b *Node) int {
			if a.Score(h) > b.Score(h) {
				return -1
			}
			return 1
		}
		if len(all) != 41 || !slices.IsSortedFunc(all, score) || !slices.Equal(before, all[:3]) {
			t.Fatal("the first are not those with the highest scores")
		}
		// One that comes takes the place of the last, and moves no others.
		l.Join(id(newcomer), newcomer, l.now) //nolint:errcheck // there is room
		after := l.Keepers(h, 3)
		if at := slices.Index(after, l.ByID(newcomer.NodeID())); at >= 0 {
			moved++
			after = slices.Delete(after, at, at+1)
			before = before[:2]
		}
		l.Leave(id(newcomer), true, l.now)
		if !slices.Equal(before, after) {
			t.Fatalf("%x moved more than it had to", h)
		}
	}
	if moved < 80 || moved > 220 {
		t.Errorf("%d of 2000 keys moved, about 143 expected", moved)
	}
}

func BenchmarkKeepers5000(b *testing.B) {
	self := member("self", "s", 5)
	r := New(id(self), self, start)
	for i := range 5000 {
		m := member(fmt.Sprint(i), "b", 1)
		r.Join(id(m), m, start) //nolint:errcheck // there is room
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		r.Keepers(uint64(i)*1099511628211, 3)
	}
}

func BenchmarkMembers5000(b *testing.B) {
	self := member("self", "s", 5)
	r := New(id(self), self, start)
	for i := range 5000 {
		m := member(fmt.Sprint(i), "b", 1)
		r.Join(id(m), m, start) //nolint:errcheck // there is room
	}
	b.ReportAllocs()
	for b.Loop() {
		for range r.Members(start) {
		}
	}
}
