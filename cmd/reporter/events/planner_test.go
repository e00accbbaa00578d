package events

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/merge"
)

// oneNetwork is a configuration without other networks than those of pods.
var oneNetwork = merge.Rules{ClusterWide: func(string) bool { return true }}

// settled is when the Events of a conflict are written, if one of its nodes does not report it.
const settled = factsTime + time.Second

// world is a cluster in virtual time: agents that report, an API server, and one planner that leads at a time.
type world struct {
	*testing.T
	p     *Planner
	now   time.Time
	api   map[string]kube.Event
	order []string // "10.0.0.1 DuplicateIP shop/a"
	at    map[string]time.Time
	fails error // of all requests
	// failing is the error of a request about an Event.
	failing func(kube.Event) error
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, p: New("r1", "kubectl dupip", DefaultRenew, oneNetwork), now: time.Unix(1e9, 0), api: make(map[string]kube.Event), at: make(map[string]time.Time)}
	w.p.Lead(nil, w.now)
	return w
}

// holder is a pod of the namespace shop, or one whose name is not known yet.
func holder(node, pod string, netns uint64) document.Binding {
	b := document.Binding{
		Holder: document.Holder{Node: node, BootID: "boot", NetnsCookie: netns}, Facts: &document.Facts{Behind: document.BehindRunning},
	}
	if pod != "" {
		b.Pod = &document.Pod{Namespace: "shop", Name: pod, UID: "uid-" + pod, Sandbox: "box-" + pod}
	}
	return b
}

// agents are live members of gossip.
func agents(nodes ...string) (list []cluster.Member) {
	for _, node := range nodes {
		list = append(list, cluster.Member{Name: cluster.NodeName(node), Boot: cluster.BootID(node), Role: cluster.Agent, State: cluster.Alive})
	}
	return list
}

// conflict is one between two pods on nodes red and blue.
func (w *world) conflict(n int, state detector.State) document.Conflict {
	return document.Conflict{
		ID: fmt.Sprintf("%x-1", n), Network: "default", IP: netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}),
		State: state, SuspectedAt: w.now, ConfirmedAt: w.now,
		Holders: []document.Binding{holder("red", fmt.Sprint("a", n), uint64(2*n+1)), holder("blue", fmt.Sprint("b", n), uint64(2*n+2))},
	}
}

func (w *world) report(p *Planner, node string, c document.Conflict) {
	p.Conflict(cluster.Report{Node: node + "/boot"}, c, w.now)
}

// run lets time pass, while the API server answers.
func (w *world) run(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(100 * time.Millisecond) {
		for next := w.p.Next(w.now); next != nil; next = w.p.Next(w.now) {
			err := w.answer(next)
			w.p.Done(next, err, w.now)
			if err != nil && w.fails != nil {
				break
			}
		}
	}
}

func (w *world) answer(next *Write) error {
	if w.fails != nil {
		return w.fails
	}
	if w.failing != nil {
		if err := w.failing(next.Event); err != nil {
			return err
		}
	}
	name := next.Event.Metadata.Name
	e, there := w.api[name]
	switch {
	case next.Event.Series == nil && there:
		return &kube.StatusError{Code: http.StatusConflict}
	case next.Event.Series != nil && !there:
		return &kube.StatusError{Code: http.StatusNotFound}
	case next.Event.Series != nil:
		e.Series = next.Event.Series
	default:
		e = next.Event
		text := fmt.Sprintf("%s %s", e.Reason, e.Regarding.Name)
		w.order, w.at[text] = append(w.order, text), w.now
	}
	w.api[name] = e
	return nil
}

// written is what the API server has, sorted, since the last call.
func (w *world) written() string {
	list := slices.Sorted(slices.Values(w.order))
	w.order = nil
	return strings.Join(list, ", ")
}

func (w *world) expect(what, want string) {
	w.Helper()
	if got := w.written(); got != want {
		w.Errorf("%s: %q, want %q", what, got, want)
	}
}

func TestOneConflict(t *testing.T) {
	w := newWorld(t)
	w.report(w.p, "red", w.conflict(1, detector.Suspected))
	w.run(5 * time.Second)
	w.expect("suspected", "")
	c := w.conflict(1, detector.Confirmed)
	w.report(w.p, "red", c)
	w.run(time.Second)
	w.report(w.p, "blue", c)
	w.run(4 * time.Second)
	w.expect("confirmed by two nodes", "DuplicateIP a1, DuplicateIP b1")
	for _, e := range w.api {
		other := map[string]string{"a1": "b1", "b1": "a1"}[e.Regarding.Name]
		if e.Type != "Warning" || e.Related.Name != other || e.Metadata.Namespace != "shop" || e.Regarding.UID != "uid-"+e.Regarding.Name ||
			!e.EventTime.Equal(c.ConfirmedAt) || !strings.Contains(e.Note, "pod shop/"+other+" on node ") {
			t.Errorf("%+v", e)
		}
	}

	// A third pod gets an Event, and the others no second one.
	third := c
	third.Holders = append(slices.Clone(c.Holders), holder("blue", "c1", 99))
	w.report(w.p, "blue", third)
	w.run(time.Minute)
	w.expect("a third holder", "DuplicateIP c1")

	// It is renewed while it goes on, and written again if Kubernetes has deleted it.
	for i := range 3 {
		w.run(DefaultRenew)
		for _, e := range w.api {
			if e.Series == nil || e.Series.Count != i+2 || w.now.Sub(e.Series.LastObservedTime.Time) > 2*time.Minute {
				t.Errorf("after %d times: %+v", i+1, e.Series)
			}
		}
	}
	clear(w.api)
	w.run(DefaultRenew)
	w.expect("deleted", "DuplicateIP a1, DuplicateIP b1, DuplicateIP c1")

	// It ends when it ended for all nodes that reported it.
	c.State, third.State = detector.Resolved, detector.Resolved
	w.report(w.p, "red", c)
	w.run(time.Second)
	w.expect("ended for one", "")
	w.report(w.p, "blue", third)
	w.run(5 * time.Second)
	w.expect("ended", "DuplicateIPResolved a1, DuplicateIPResolved b1, DuplicateIPResolved c1")
	for _, e := range w.api {
		if e.Reason == ReasonResolved && (e.Type != "Normal" || e.Related == nil) {
			t.Errorf("%+v", e)
		}
	}

	// The next conflict of the same pods gets a new Event.
	again := w.conflict(1, detector.Confirmed)
	again.ID = "1-2"
	w.report(w.p, "red", again)
	w.run(5 * time.Second)
	w.expect("again", "DuplicateIP a1, DuplicateIP b1")
}

func TestDrill(t *testing.T) {
	w := newWorld(t)
	c := w.conflict(1, detector.Confirmed)
	c.IP, c.Drill = netip.MustParseAddr("192.0.2.9"), true
	w.report(w.p, "red", c)
	w.run(time.Minute)
	w.expect("a drill", "")
}

// A conflict ends when its node is away for long, and not while an agent is upgraded.
func TestNodeAway(t *testing.T) {
	w := newWorld(t)
	w.report(w.p, "red", w.conflict(1, detector.Confirmed))
	w.run(settled)
	w.written()
	alive := agents("red/boot")
	away := func(alive []cluster.Member, d time.Duration) {
		for range d / (10 * time.Second) {
			w.p.Members(alive, w.now)
			w.run(10 * time.Second)
		}
	}
	away(nil, 4*time.Minute)
	away(alive, time.Minute)
	away(nil, 4*time.Minute)
	w.expect("away for a moment", "")
	away(nil, 2*time.Minute)
	w.expect("away", "DuplicateIPResolved a1, DuplicateIPResolved b1")
}

// Thirty at once are written at once. Of more, nodes get a summary, and pods get theirs one after the other; what ends
// before is counted.
func TestMany(t *testing.T) {
	w := newWorld(t)
	for n := range maxOpen {
		w.report(w.p, "red", w.conflict(n, detector.Confirmed))
	}
	w.run(settled)
	if len(w.order) != 2*maxOpen+2 { // the two nodes share a range
		t.Errorf("%d Events of %d conflicts", len(w.order), maxOpen)
	}
	for n := range maxOpen {
		w.report(w.p, "red", w.conflict(n, detector.Resolved))
	}
	w.run(5 * time.Second)
	if got := strings.Count(w.written(), ReasonResolved); got != 2*maxOpen {
		t.Errorf("%d are resolved", got)
	}

	const many = 200
	begin := w.now
	for n := range many {
		w.now = w.now.Add(time.Millisecond)
		w.report(w.p, "red", w.conflict(1000+n, detector.Confirmed))
	}
	w.run(factsTime + 5*time.Second)
	for _, node := range []string{"red", "blue"} {
		if at := w.at[ReasonSummary+" "+node]; at.Sub(begin) > 5*time.Second || at.Before(begin) {
			t.Errorf("the Event of %s is written after %v", node, at.Sub(begin))
		}
	}
	w.run(54 * time.Second)
	first := fmt.Sprintf("%q", w.order)
	if n := strings.Count(first, "DuplicateIP "); n < 59 || n > 61 || !strings.Contains(first, "DuplicateIP a1000") || strings.Contains(first, "DuplicateIP a1100") {
		t.Errorf("in a minute: %d, %s", n, first)
	}
	for n := range many {
		w.report(w.p, "red", w.conflict(1000+n, detector.Resolved))
	}
	w.written()
	w.run(5 * time.Minute)
	told := 60
	if got := w.written(); strings.Contains(got, "DuplicateIP ") || w.p.Stats().Skipped != uint64(2*many-told) || strings.Count(got, ReasonResolved) != told {
		t.Errorf("%d skipped; at the end: %s", w.p.Stats().Skipped, got)
	}
	if s := w.p.Stats(); s.Open != 0 || s.Pending != 0 {
		t.Errorf("%+v", s)
	}
}

func TestNodes(t *testing.T) {
	w := newWorld(t)
	summary := func(n int) {
		w.p.Summary("red/boot", cluster.Summary{Findings: map[string]int{"unreserved address": n}})
		w.run(5 * time.Second)
	}
	summary(0)
	w.expect("nothing", "")
	w.p.Summary("red/boot", cluster.Summary{Findings: map[string]int{"two-nodes address": 1, "stranger address": 1}})
	w.run(5 * time.Second)
	w.expect("elsewhere", "IPElsewhere red")
	w.api = make(map[string]kube.Event)
	for kind, reason := range map[string]string{"misrouted": ReasonMisrouted, "diverted": ReasonDiverted} {
		w.p.Summary("red/boot", cluster.Summary{Findings: map[string]int{kind + " address": 1}})
		w.run(5 * time.Second)
		w.expect(kind, reason+" red")
		w.api = make(map[string]kube.Event)
	}
	summary(2)
	summary(3)
	w.expect("unreserved", "UnreservedIP red")
	summary(0)
	summary(1)
	for _, e := range w.api {
		if e.Series != nil {
			t.Errorf("back after a moment: %+v", e)
		}
	}
	summary(0)
	w.run(keepEnded)
	w.p.Members(agents("red/boot"), w.now)
	summary(1)
	for _, e := range w.api {
		if e.Series == nil || e.Regarding.Kind != "Node" || e.Regarding.UID != "red" || e.Metadata.Namespace != "default" {
			t.Errorf("again: %+v", e)
		}
	}
	for n := range 5 {
		w.report(w.p, "red", w.conflict(n, detector.Confirmed))
	}
	w.run(5 * time.Second)
	if got := w.written(); strings.Count(got, ReasonRange) != 2 {
		t.Errorf("a range twice: %s", got)
	}
}

// When too many nodes have findings, those that are known stay so.
func TestTooManyNodes(t *testing.T) {
	w := newWorld(t)
	s := cluster.Summary{Findings: map[string]int{"unreserved address": 1}}
	for range 2 {
		for n := range maxNodes + 1 {
			w.p.Summary(fmt.Sprint("n", n, "/boot"), s)
		}
	}
	if known, skipped := len(w.p.state.found), w.p.Stats().Skipped; known != maxNodes || !w.p.state.found[foundOn{"n0/boot", document.Unreserved}] || skipped != 2 {
		t.Errorf("%d are known, %d were skipped", known, skipped)
	}
}

// Two live nodes of one name: the Event is about the Node of that name, which is the only one that the API server has.
func TestNamesakesWithOneRange(t *testing.T) {
	w := newWorld(t)
	for n := range 5 {
		c := w.conflict(n, detector.Confirmed)
		c.Holders[1].Node, c.Holders[1].BootID = "red", "later-boot"
		w.report(w.p, "red", c)
	}
	w.run(5 * time.Second)
	found := 0
	for _, e := range w.api {
		if e.Reason == ReasonRange {
			found++
			if e.Regarding.Name != "red" || e.Regarding.UID != "red" || !strings.Contains(e.Note, "(boot ") {
				t.Errorf("%+v", e)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d Events about the range, want one for each of the two nodes", found)
	}
}

// While the API server is away, all is kept; then it is written.
func TestAway(t *testing.T) {
	w := newWorld(t)
	w.fails = errors.New("connection refused")
	w.report(w.p, "red", w.conflict(1, detector.Confirmed))
	w.report(w.p, "red", w.conflict(2, detector.Confirmed))
	w.run(time.Minute)
	w.report(w.p, "red", w.conflict(1, detector.Resolved))
	w.run(2 * time.Minute)
	w.fails = nil
	w.run(maxPause + 5*time.Second)
	w.expect("back", "DuplicateIP a1, DuplicateIP a2, DuplicateIP b1, DuplicateIP b2, DuplicateIPResolved a1, DuplicateIPResolved b1")

	// What is refused is tried again: somebody may give the right.
	w.fails = &kube.StatusError{Code: http.StatusForbidden}
	w.report(w.p, "red", w.conflict(3, detector.Confirmed))
	w.run(settled)
	w.fails = nil
	w.report(w.p, "red", w.conflict(4, detector.Confirmed))
	w.run(5 * time.Second)
	w.expect("after a refusal", "DuplicateIP a3, DuplicateIP a4, DuplicateIP b3, DuplicateIP b4")
	// What is refused for good is not tried again.
	w.fails = &kube.StatusError{Code: http.StatusUnprocessableEntity}
	w.report(w.p, "red", w.conflict(5, detector.Confirmed))
	w.run(settled)
	w.fails = nil
	w.run(2 * maxPause)
	w.expect("not valid", "")
}

// Another replica goes on where the first one was: it writes what is missing, and nothing twice.
func TestFailover(t *testing.T) {
	w := newWorld(t)
	second := New("r2", "kubectl dupip", DefaultRenew, oneNetwork)
	both := func(c document.Conflict) {
		w.report(w.p, "red", c)
		w.report(second, "red", c)
	}
	both(w.conflict(1, detector.Confirmed))
	both(w.conflict(2, detector.Confirmed))
	w.run(5 * time.Second)
	w.written()
	w.p.Follow()
	both(w.conflict(1, detector.Resolved))
	both(w.conflict(3, detector.Confirmed))
	w.run(10 * time.Second)
	w.expect("nobody leads", "")
	for range 2 { // forth and back
		w.p, second = second, w.p
		w.p.Lead(w.listed("", nil), w.now)
		w.run(5 * time.Second)
		if w.p.Instance == "r2" {
			w.expect("the second leads", "DuplicateIP a3, DuplicateIP b3, DuplicateIPResolved a1, DuplicateIPResolved b1")
		} else {
			w.expect("the first leads again", "")
		}
	}

	// One that knows nothing yet, and did not read anything either, changes nothing.
	w.p = New("r3", "kubectl dupip", DefaultRenew, oneNetwork)
	w.p.Lead(nil, w.now)
	w.report(w.p, "red", w.conflict(2, detector.Confirmed))
	w.run(5 * time.Second)
	w.expect("a writer that knows nothing", "")
}

// What is kept has bounds.
func TestBounds(t *testing.T) {
	w := newWorld(t)
	w.p.Follow()
	for n := range maxKeys + 100 {
		w.report(w.p, "red", w.conflict(n, detector.Confirmed))
	}
	if s := w.p.Stats(); s.Open != maxKeys || s.Skipped != 100 || len(w.p.notices) != 2*maxKeys {
		t.Errorf("%+v, %d notices", s, len(w.p.notices))
	}
	for n := range maxKeys {
		w.report(w.p, "red", w.conflict(n, detector.Resolved))
	}
	w.now = w.now.Add(keepEnded)
	w.p.Members(nil, w.now)
	if len(w.p.notices) != 0 || len(w.p.byKey) != 0 {
		t.Errorf("%d notices are left", len(w.p.notices))
	}
}
