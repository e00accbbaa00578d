package exchange

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// harness is an Exchange with a clock that the test moves, its actions and, as its [Cluster], what it sends.
type harness struct {
	*Exchange
	t   *testing.T
	now time.Time
	// probe returns the result of a probe; nil: all are sent.
	probe func(Probe) detector.ProbeRefusal
	// late: nothing says whether probes were sent.
	late bool
	// answers: holders answer each probe at once.
	answers bool

	probed    []detector.Probe
	leases    []detector.Key
	withdrawn []detector.Key
	others    []string
	ended     []detector.Key
	requested []detector.Probe
	replies   []cluster.ProbeReply
	events    []string
}

// newHarness returns the exchange of node "n/". The network default and those in wide span the cluster.
func newHarness(t *testing.T, wide ...string) *harness {
	w := &harness{t: t, now: began}
	w.Exchange = New(Options{Node: "n/", Detector: detector.New(detector.Options{Node: "n/"}), Cluster: w})
	w.configure(append(wide, "default")...)
	w.Ready(w.now.Add(-time.Hour))
	return w
}

// configure sets the networks that span the cluster.
func (w *harness) configure(wide ...string) {
	w.Configure(func(network string) bool { return slices.Contains(wide, network) }, w.now)
	w.run()
}

// run carries out all actions that are due.
func (w *harness) run() {
	w.Publish()
	for a := w.Next(w.now); a != nil; a = w.Next(w.now) {
		switch a := a.(type) {
		case Probe:
			refusal := detector.ProbeRefusal{}
			if w.probe != nil {
				refusal = w.probe(a)
			}
			if refusal == (detector.ProbeRefusal{}) {
				w.probed = append(w.probed, a.Probe)
			}
			if w.late {
				continue
			}
			w.Probed(a, refusal, w.now)
			if w.answers && refusal == (detector.ProbeRefusal{}) {
				w.observe(a.Holder.Netns, a.Key, true)
			}
		case Ended:
			for _, e := range a {
				w.ended = append(w.ended, e.Key)
			}
		case detector.Event:
			w.events = append(w.events, string(a.Kind))
		default:
			w.t.Fatalf("unknown action %T", a)
		}
	}
}

func (w *harness) Lease(l cluster.Lease) { w.leases = append(w.leases, l.Key) }

func (w *harness) Withdraw(key detector.Key, _ detector.HolderID, others []string) {
	w.withdrawn, w.others = append(w.withdrawn, key), append(w.others, others...)
}

func (w *harness) RequestProbe(p detector.Probe, _ []cluster.Binding) {
	w.requested = append(w.requested, p)
}

func (w *harness) ReplyProbe(to string, id uint64, reply cluster.ProbeReply) {
	if to != remote.Node || id == 0 {
		w.t.Errorf("reply %d to %q", id, to)
	}
	w.replies = append(w.replies, reply)
}

// observe simulates an announcement or an answer of a holder of this node.
func (w *harness) observe(netns uint64, key detector.Key, answer bool) {
	w.Observe(detector.Sighting{
		Key: key, Evidence: detector.Announced, Answer: answer, At: w.now,
		Holder: detector.Holder{
			ID: detector.HolderID{Node: w.Node, Netns: netns}, Interface: detector.Interface{Ifindex: uint32(netns), Generation: 1},
		},
	}, w.now)
	w.run()
}

// gone simulates that the interface of a holder of this node is removed.
func (w *harness) gone(netns uint64) {
	w.Apply(w.Detector.WithdrawInterface(detector.Interface{Ifindex: uint32(netns), Generation: 1}, "gone", w.now), w.now)
	w.run()
}

// deliver passes a message of another node to the exchange, and carries out the resulting actions.
func (w *harness) deliver(m cluster.Message) {
	w.Receive(m, w.now)
	w.run()
}

// pass lets time pass, and calls Tick whenever it is due.
func (w *harness) pass(d time.Duration) {
	end := w.now.Add(d)
	for at := w.NextTick(); !at.IsZero() && !at.After(end); at = w.NextTick() {
		if at.After(w.now) {
			w.now = at
		}
		w.Tick(w.now)
		w.run()
	}
	w.now = end
}

func key(network, ip string) detector.Key {
	return detector.Key{Network: network, IP: netip.MustParseAddr(ip)}
}

var (
	one    = key("default", "10.0.0.1")
	remote = detector.HolderID{Node: "other/boot", Netns: 9}
)

// notice delivers a conflict notice about the holder remote.
func (w *harness) notice(k detector.Key) {
	w.deliver(cluster.ConflictNotice{Key: k, Bindings: []cluster.Binding{{
		Holder: detector.Holder{ID: remote}, Evidence: detector.Announced, FirstSeen: w.now, LastSeen: w.now,
	}}})
}

// reply delivers a reply to the last probe request of this node.
func (w *harness) reply(outcome detector.Outcome) {
	t := cluster.ProbeReply{Probe: w.requested[len(w.requested)-1], Outcome: outcome}
	switch outcome {
	case detector.Answered:
		t.At, t.Binding = w.now, cluster.Binding{Holder: detector.Holder{ID: remote}, Evidence: detector.Announced}
	case detector.Refused:
		t.RetryAt = w.now.Add(time.Second)
	}
	w.deliver(t)
}

func TestLeases(t *testing.T) {
	w := newHarness(t, "storage")
	for n, k := range []detector.Key{one, key("storage", "10.9.0.1"), key("net2@br1", "10.9.0.2"), key("docker0", "172.17.0.2")} {
		w.observe(uint64(11+n), k, false)
	}
	// Only addresses that must be unique in the whole cluster are leased.
	storage := key("storage", "10.9.0.1")
	if want := []detector.Key{one, storage}; !slices.Equal(w.leases, want) {
		t.Fatalf("leases of %v, want %v", w.leases, want)
	}
	w.configure("default")
	if want := []detector.Key{storage}; !slices.Equal(w.withdrawn, want) {
		t.Errorf("withdrawn %v when its network did not span the cluster any more, want %v", w.withdrawn, want)
	}
	w.configure("default", "storage")
	if last := w.leases[len(w.leases)-1]; len(w.leases) != 3 || last != storage {
		t.Errorf("leases of %v, want storage's again when it spans the cluster again", w.leases)
	}
	w.Apply(w.Detector.SetShared(func(k detector.Key) bool { return k == storage }, w.now), w.now)
	w.configure("default")
	n := len(w.leases)
	if w.configure("default", "storage"); len(w.leases) != n {
		t.Errorf("a shared address is leased: %+v", w.leases[n:])
	}
	w.gone(11)
	if !slices.Contains(w.ended, one) || w.withdrawn[len(w.withdrawn)-1] != one {
		t.Errorf("ended %v, withdrawn %v after the holder was gone", w.ended, w.withdrawn)
	}
}

func TestAlone(t *testing.T) {
	w := newHarness(t)
	w.Cluster = nil
	w.observe(11, one, false)
	w.observe(12, one, false)
	w.answers = true
	w.pass(5 * time.Second)
	w.gone(11)
	w.pass(5 * time.Second)
	if got := strings.Join(w.events, " "); got != "suspected confirmed resolved" || len(w.ended) != 1 {
		t.Errorf("events %s, ended %v", got, w.ended)
	}
	if len(w.leases)+len(w.withdrawn)+len(w.requested)+len(w.replies) != 0 {
		t.Errorf("messages to a cluster: %+v", w)
	}
}

func TestConflictAcrossNodes(t *testing.T) {
	w := newHarness(t)
	w.notice(one)
	if n := len(w.Detector.Conflicts(false)); n != 0 || len(w.requested) != 0 {
		t.Fatalf("a notice about an address without local holders: %d conflicts, requests %v", n, w.requested)
	}
	w.observe(11, one, false)
	w.notice(one)
	if c := w.Detector.Conflicts(false); len(c) != 1 || c[0].Scope != detector.CrossNode {
		t.Fatalf("conflicts %+v, want one across nodes", c)
	}
	if len(w.requested) != 1 || w.requested[0].Holder != remote || w.Requested != 1 {
		t.Fatalf("requests %+v, want one to the other node", w.requested)
	}
	w.reply(detector.Answered)
	w.deliver(cluster.ProbeReply{Probe: detector.Probe{Key: one, Holder: remote}, Outcome: detector.Gone})
	if c := w.Detector.Conflicts(false); len(c) != 1 || len(w.requested) != 2 {
		t.Fatalf("conflicts %+v, %d requests after an unrequested reply; want a second request", c, len(w.requested))
	}
	w.deliver(cluster.ProbeReply{Probe: w.requested[1], Outcome: detector.Gone, Reason: "it left"})
	if c := w.Detector.Conflicts(false); len(c) != 0 {
		t.Errorf("conflicts %+v after the other holder was gone", c)
	}
	w.notice(one)
	w.gone(11)
	if !slices.Equal(w.others, []string{remote.Node}) {
		t.Errorf("nodes that are notified of the end: %v, want the other holder's", w.others)
	}
	if known := w.Detector.Bindings(nil); len(known) != 0 {
		t.Errorf("bindings %+v are left", known)
	}
}

// The name of another node's pod that comes with a reply is reported, once.
func TestNameInReply(t *testing.T) {
	w := newHarness(t)
	w.answers = true
	w.observe(11, one, false)
	w.notice(one)
	for range 40 { // two rounds, and then checks of the conflict
		for _, probe := range w.requested {
			answer := cluster.Binding{Holder: detector.Holder{ID: remote}, Evidence: detector.Announced}
			if slices.Contains(w.events, "confirmed") {
				answer.Holder.Pod = detector.Pod{Namespace: "shop", Name: "web-0"}
			}
			w.deliver(cluster.ProbeReply{Probe: probe, Outcome: detector.Answered, At: w.now, Binding: answer})
		}
		w.requested = nil
		w.pass(time.Second)
	}
	if want := []string{"suspected", "confirmed", "changed"}; !slices.Equal(w.events, want) {
		t.Errorf("events %q, want %q", w.events, want)
	}
}

// Each outcome has its effect on a suspicion.
func TestReplies(t *testing.T) {
	for _, test := range []struct {
		outcome  detector.Outcome
		open     int
		requests int // in the 1.1 s after the reply
	}{
		{detector.Answered, 1, 1},
		{detector.Unanswered, 0, 0},
		{detector.Forwards, 0, 0},
		{detector.Gone, 0, 0},
		{detector.Refused, 1, 1},
		{detector.Unreachable, 1, 0},
	} {
		w := newHarness(t)
		w.answers = true
		w.observe(11, one, false)
		w.notice(one)
		w.reply(test.outcome)
		w.pass(1100 * time.Millisecond)
		if c := w.Detector.Conflicts(false); len(c) != test.open || len(w.requested) != 1+test.requests {
			t.Errorf("%s: got %d conflicts, %d requests; want %d and %d", outcomes[test.outcome], len(c), len(w.requested), test.open, 1+test.requests)
		}
	}
}

// A node that returns receives its unanswered requests again.
func TestReturned(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	w.notice(one)
	w.reply(detector.Unreachable)
	w.deliver(cluster.Returned{Node: remote.Node})
	if len(w.requested) != 2 || w.requested[1].Holder != remote {
		t.Errorf("requests %+v, want a second one to the other node", w.requested)
	}
}

// In a network that does not span the cluster, notices of other nodes are ignored.
func TestNoticeInNodeNetwork(t *testing.T) {
	w := newHarness(t)
	docker := key("docker0", "172.17.0.2")
	w.observe(11, docker, false)
	w.notice(docker)
	if c := w.Detector.Conflicts(false); len(c) != 0 {
		t.Errorf("conflicts %+v", c)
	}
	// If a network does not span the cluster any more, its remote holders are withdrawn.
	w = newHarness(t, "storage")
	storage := key("storage", "10.9.0.1")
	w.observe(11, storage, false)
	w.notice(storage)
	if w.configure("default"); len(w.Detector.Conflicts(false)) != 0 || len(w.Detector.Bindings(nil)) != 1 {
		t.Errorf("conflicts %+v, bindings %+v", w.Detector.Conflicts(false), w.Detector.Bindings(nil))
	}
}

// Only a holder's own node may report about it.
func TestReplyAboutOwnHolder(t *testing.T) {
	w := newHarness(t)
	w.observe(11, one, false)
	self := detector.HolderID{Node: "n/", Netns: 11}
	w.deliver(cluster.ProbeReply{Probe: detector.Probe{Key: one, Holder: self}, Outcome: detector.Gone})
	w.deliver(cluster.ConflictNotice{Key: one, Bindings: []cluster.Binding{{Holder: detector.Holder{ID: detector.HolderID{Node: "n/", Netns: 99}}, Evidence: detector.Announced, LastSeen: w.now}}})
	if b := w.Detector.Bindings(nil); len(b) != 1 || b[0].Holder.ID != self {
		t.Errorf("bindings %+v, want what this node has seen", b)
	}
}
