package agent

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// recorder is the other nodes as far as a loop sees them: it notes what they are told.
type recorder struct {
	leases    []cluster.Lease
	withdrawn []detector.Key
	rivals    []string
	asked     []detector.Solicitation
	told      []cluster.Testimony
	pairs     []cluster.Pair
}

func (r *recorder) Run(context.Context) error        { return nil }
func (r *recorder) Messages() <-chan cluster.Message { return nil }
func (r *recorder) Lease(l cluster.Lease)            { r.leases = append(r.leases, l) }
func (r *recorder) Withdraw(key detector.Key, _ detector.HolderID, rivals []string) {
	r.withdrawn = append(r.withdrawn, key)
	r.rivals = append(r.rivals, rivals...)
}
func (r *recorder) Ask(s detector.Solicitation, _ []cluster.Claim) { r.asked = append(r.asked, s) }
func (r *recorder) Testify(_ uint64, t cluster.Testimony)          { r.told = append(r.told, t) }
func (r *recorder) Pair(p cluster.Pair)                            { r.pairs = append(r.pairs, p) }
func (r *recorder) Query(context.Context, cluster.Query) (cluster.Result, error) {
	return cluster.Result{}, nil
}
func (r *recorder) Reply(uint64, cluster.Document) {}
func (r *recorder) Members() []cluster.Member      { return nil }
func (r *recorder) Pairs() []cluster.Pair          { return nil }
func (r *recorder) Status() cluster.Status         { return cluster.Status{} }

// here is a place that is there.
func here(t *testing.T) netns.Place {
	t.Helper()
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/net", &stat); err != nil {
		t.Fatal(err)
	}
	return netns.Place{Path: "/proc/self/ns/net", Inode: stat.Ino}
}

// joined makes a loop that is part of a cluster.
func joined(t *testing.T, text string) (*loop, *recorder) {
	t.Helper()
	l, r := newLoop(t, text), new(recorder)
	l.cluster, l.ready = r, true
	return l, r
}

// attach is add for a netns that is there.
func (l *loop) attach(t *testing.T, name, master, peer string, index int, cookie uint64, ips ...string) *podInterface {
	i := l.add(name, master, peer, index, cookie, ips...)
	i.Place = here(t)
	return i
}

func key(network, ip string) detector.Key {
	return detector.Key{Network: network, IP: netip.MustParseAddr(ip)}
}

var elsewhere = detector.HolderID{Node: "other/boot", Netns: 9}

// rival tells the loop of a holder on another node.
func (l *loop) rival(k detector.Key) {
	l.heard(cluster.Rival{Key: k, Total: 2, Claims: []cluster.Claim{{
		Holder: detector.Holder{ID: elsewhere}, Evidence: detector.Announced, FirstSeen: time.Now(), LastSeen: time.Now(),
	}}})
}

func TestLeases(t *testing.T) {
	l, r := joined(t, "networks:\n  - {name: storage, scope: cluster, match: {peers: [net1]}}\n")
	l.see(l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1"), "10.0.0.1")
	l.see(l.attach(t, "veth2", "br1", "net1", 2, 12, "10.9.0.1"), "10.9.0.1")
	l.see(l.attach(t, "veth3", "br1", "net2", 3, 13, "10.9.0.2"), "10.9.0.2")
	l.see(l.attach(t, "veth4", "docker0", "eth0", 4, 14, "172.17.0.2"), "172.17.0.2")
	l.lease()
	var got []detector.Key
	for _, lease := range r.leases {
		got = append(got, lease.Key)
	}
	// Only what must be unique in the whole cluster.
	if want := []detector.Key{key("default", "10.0.0.1"), key("storage", "10.9.0.1")}; !slices.Equal(got, want) {
		t.Fatalf("leases of %v, want %v", got, want)
	}
	l.configure(parsed(t, "networks:\n  - {name: storage, scope: node, match: {peers: [net1]}}\n"))
	l.lease()
	if want := []detector.Key{key("storage", "10.9.0.1")}; !slices.Equal(r.withdrawn, want) {
		t.Errorf("withdrawn %v when its network became each node's own, want %v", r.withdrawn, want)
	}
	l.configure(parsed(t, "networks:\n  - {name: storage, scope: cluster, match: {peers: [net1]}}\n"))
	if last := r.leases[len(r.leases)-1].Key; last != key("storage", "10.9.0.1") {
		t.Errorf("the last lease is of %v, want that of storage when it reaches over the cluster again", last)
	}
	l.configure(parsed(t, "shared: [10.9.0.1]\nnetworks:\n  - {name: storage, scope: node, match: {peers: [net1]}}\n"))
	n := len(r.leases)
	l.configure(parsed(t, "shared: [10.9.0.1]\nnetworks:\n  - {name: storage, scope: cluster, match: {peers: [net1]}}\n"))
	if l.lease(); len(r.leases) != n {
		t.Errorf("an address that many may have is leased: %+v", r.leases[n:])
	}
}

// A network may lose its name and its reach by one and the same change of the file.
func TestLeasesOfANetworkThatIsNotDeclaredAnyMore(t *testing.T) {
	l, r := joined(t, "networks:\n  - {name: storage, scope: cluster, match: {peers: [net1]}}\n")
	l.see(l.attach(t, "veth2", "br1", "net1", 2, 12, "10.9.0.1"), "10.9.0.1")
	l.lease()
	l.configure(parsed(t, ""))
	l.lease()
	if want := []detector.Key{key("storage", "10.9.0.1")}; !slices.Equal(r.withdrawn, want) {
		t.Errorf("withdrawn %v when no network has that name any more, want %v", r.withdrawn, want)
	}
}

func TestRivals(t *testing.T) {
	l, r := joined(t, "")
	i := l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1")
	k := key("default", "10.0.0.1")
	l.rival(k)
	if n := len(l.detector.Conflicts(false)); n != 0 || len(r.asked) != 0 {
		t.Fatalf("a rival about an address that nobody has here: %d conflicts, asked %v", n, r.asked)
	}
	l.see(i, "10.0.0.1")
	l.lease()
	l.rival(k)
	if c := l.detector.Conflicts(false); len(c) != 1 || c[0].Scope != detector.CrossNode {
		t.Fatalf("conflicts %+v, want one across nodes", c)
	}
	if len(r.asked) != 1 || r.asked[0].Holder != elsewhere {
		t.Fatalf("asked %+v, want the other node once", r.asked)
	}
	l.heard(cluster.Testimony{Solicitation: r.asked[0], Outcome: cluster.Answered, At: time.Now(), Claim: cluster.Claim{
		Holder: detector.Holder{ID: elsewhere}, Evidence: detector.Announced,
	}})
	l.heard(cluster.Testimony{Solicitation: detector.Solicitation{Key: k, Holder: elsewhere}, Outcome: cluster.Gone})
	if c := l.detector.Conflicts(false); len(c) != 1 || len(r.asked) != 2 {
		t.Fatalf("conflicts %+v, asked %d times after news that nobody asked for; want it to be asked", c, len(r.asked))
	}
	l.heard(cluster.Testimony{Solicitation: r.asked[1], Outcome: cluster.Gone, Reason: "it left"})
	if c := l.detector.Conflicts(false); len(c) != 0 {
		t.Errorf("conflicts %+v after the other holder was gone", c)
	}
	l.rival(k)
	l.apply(l.detector.WithdrawInterface(i.ref, "gone", time.Now()))
	l.lease()
	if !slices.Equal(r.rivals, []string{elsewhere.Node}) {
		t.Errorf("nodes told of the end: %v, want that of the rival", r.rivals)
	}
	if known := l.detector.Bindings(nil); len(known) != 0 {
		t.Errorf("bindings %+v are left", known)
	}
}

// A node that is heard again is asked at once what it had left unanswered.
func TestReturned(t *testing.T) {
	l, r := joined(t, "")
	l.see(l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1"), "10.0.0.1")
	l.rival(key("default", "10.0.0.1"))
	l.heard(cluster.Testimony{Solicitation: r.asked[0], Outcome: cluster.Unreachable})
	l.heard(cluster.Returned{Node: elsewhere.Node})
	if len(r.asked) != 2 || r.asked[1].Holder != elsewhere {
		t.Errorf("asked %+v, want the other node again", r.asked)
	}
}

// A network that is each node's own has no rivals, whatever others say.
func TestRivalInANodesOwnNetwork(t *testing.T) {
	l, _ := joined(t, "")
	l.see(l.attach(t, "veth1", "docker0", "eth0", 1, 11, "172.17.0.2"), "172.17.0.2")
	l.rival(key("docker0", "172.17.0.2"))
	if c := l.detector.Conflicts(false); len(c) != 0 {
		t.Errorf("conflicts %+v", c)
	}
}

// Only the node of a holder speaks for it.
func TestTestimonyAboutOneself(t *testing.T) {
	l, _ := joined(t, "")
	i := l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1")
	l.see(i, "10.0.0.1")
	l.heard(cluster.Testimony{
		Solicitation: detector.Solicitation{Key: key("default", "10.0.0.1"), Holder: i.holder}, Outcome: cluster.Gone,
	})
	if !l.detector.Heard(key("default", "10.0.0.1"), i.holder) {
		t.Error("another node ended a binding of this one")
	}
}

func TestQuestions(t *testing.T) {
	off := "networks:\n  - {name: quiet, scope: cluster, solicit: off, match: {peers: [net1]}}\n"
	pod := detector.HolderID{Node: "n/", Netns: 11}
	tests := []struct {
		name    string
		network string
		holder  detector.HolderID
		then    func(l *loop, i *podInterface)
		want    cluster.Outcome
		never   bool // not to be asked again until something changes
	}{
		{name: "answers", holder: pod, want: cluster.Answered, then: func(l *loop, i *podInterface) { l.answer(i, "10.0.0.1") }},
		{name: "is silent", holder: pod, want: cluster.Unanswered},
		{name: "answers for what it does not have", holder: pod, want: cluster.Forwards, then: func(l *loop, i *podInterface) {
			i.View.Addresses, i.View.Taken = i.View.Addresses[1:], time.Now().Add(time.Hour)
			l.answer(i, "10.0.0.1")
		}},
		{name: "nobody yet", holder: detector.HolderID{Node: "n/", Netns: 99}, want: cluster.Refused},
		{name: "nobody", holder: detector.HolderID{Node: "n/", Netns: 99}, want: cluster.Gone},
		{name: "goes", holder: pod, want: cluster.Gone, then: func(l *loop, i *podInterface) {
			l.apply(l.detector.WithdrawInterface(i.ref, "gone", time.Now()))
		}},
		{name: "a network of the node's own", network: "docker0", holder: pod, want: cluster.Gone},
		{name: "a network without questions", network: "quiet", holder: pod, want: cluster.Refused, never: true},
		{name: "an address that its pod is probing", holder: pod, want: cluster.Refused},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			l, r := joined(t, off)
			peer := "eth0"
			if test.network == "quiet" {
				peer = "net1"
			}
			i := l.attach(t, "veth1", "cni0", peer, 1, 11, "10.0.0.1", "10.0.0.2")
			l.see(i, "10.0.0.1")
			if test.name == "nobody yet" {
				l.readyAt = time.Now()
			}
			if test.name == "an address that its pod is probing" {
				i.View.Addresses = nil
				i.probes[segmentAddress{ip: netip.MustParseAddr("10.0.0.1")}] = time.Now()
			}
			network := test.network
			if network == "" {
				network = "default"
			}
			l.heard(cluster.Question{ID: 1, From: elsewhere.Node, Key: key(network, "10.0.0.1"), Holder: test.holder})
			if test.then != nil {
				test.then(l, i)
			}
			for deadline := time.Now().Add(10 * time.Second); len(r.told) == 0 && time.Now().Before(deadline); {
				l.advanceQuestions(time.Now())
			}
			if len(r.told) != 1 || r.told[0].Outcome != test.want || len(l.questions.due) != 0 {
				t.Fatalf("told %+v, %d questions left; want outcome %d", r.told, len(l.questions.due), test.want)
			}
			if test.want == cluster.Refused && r.told[0].RetryAt.IsZero() != test.never {
				t.Errorf("to be asked again at %v", r.told[0].RetryAt)
			}
		})
	}
}

// Whoever asks is a rival, too.
func TestQuestionTellsOfTheAsker(t *testing.T) {
	l, r := joined(t, "")
	i := l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1")
	l.see(i, "10.0.0.1")
	l.heard(cluster.Question{
		ID: 1, From: elsewhere.Node, Key: key("default", "10.0.0.1"), Holder: i.holder,
		Claims: []cluster.Claim{{Holder: detector.Holder{ID: elsewhere}, Evidence: detector.Data, LastSeen: time.Now()}},
	})
	if len(r.asked) != 1 || r.asked[0].Holder != elsewhere {
		t.Errorf("asked %+v, want the asker to be asked as well", r.asked)
	}
}

func TestPairsAreToldByOne(t *testing.T) {
	l, r := joined(t, "")
	i := l.attach(t, "veth1", "cni0", "eth0", 1, 11, "10.0.0.1")
	l.see(i, "10.0.0.1")
	l.rival(key("default", "10.0.0.1"))
	l.countPairs()
	if len(r.pairs) != 0 {
		t.Errorf("told %+v of a mere suspicion", r.pairs)
	}
	for range 2 { // "n/" is less than "other/boot"
		l.answer(i, "10.0.0.1")
		l.heard(cluster.Testimony{Solicitation: r.asked[len(r.asked)-1], Outcome: cluster.Answered, At: time.Now(), Claim: cluster.Claim{
			Holder: detector.Holder{ID: elsewhere}, Evidence: detector.Announced,
		}})
		for deadline := time.Now().Add(10 * time.Second); len(l.detector.Conflicts(false)) > 0 && time.Now().Before(deadline); {
			n := len(r.asked)
			l.apply(l.detector.Tick(time.Now()))
			if len(r.asked) > n || l.detector.Conflicts(false)[0].State == detector.Confirmed {
				break
			}
		}
	}
	l.countPairs()
	l.countPairs()
	if len(r.pairs) != 1 || r.pairs[0].A != "n/" || r.pairs[0].B != elsewhere.Node || r.pairs[0].Addresses != 1 {
		t.Errorf("told %+v, want one address shared, once", r.pairs)
	}
}

// answer is the pod's answer to a question, as the observer tells of it.
func (l *loop) answer(i *podInterface, ip string) {
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock)
	l.classify(i, bpf.Record{
		Time: time.Duration(clock.Nano()), Kind: bpf.Answer, IP: netip.MustParseAddr(ip),
		Ifindex: i.ref.Ifindex, Generation: i.ref.Generation, MAC: [6]byte{2},
	})
}
