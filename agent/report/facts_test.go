package report

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/testneeds"
)

// namedNetns names the netns of a pod, as runtimes do, until the test ends.
func namedNetns(t *testing.T, pod *ownnetns.Pod, name string) netns.Ref {
	t.Helper()
	path := fmt.Sprintf("/run/netns/%s-%d", name, pod.Pid)
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, nil, 0o600))
	t.Cleanup(func() { _ = os.Remove(path) })
	must(t, unix.Mount(pod.Path(), path, "", unix.MS_BIND, ""))
	t.Cleanup(func() { _ = unix.Unmount(path, unix.MNT_DETACH) })
	var st unix.Stat_t
	must(t, unix.Stat(path, &st))
	return netns.Ref{Path: path, Inode: st.Ino, Name: filepath.Base(path)}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// holds adds an interface that leads into a netns with addresses, and has the detector see the netns with one of them until conflicts are
// confirmed.
func (r *Report) holds(name string, index int, ref netns.Ref, cookie uint64, ips ...string) *observe.Interface {
	l := links.Interface{
		Name: name, Index: index, Generation: uint32(index), State: links.Attached, Seen: true, Netns: ref,
		View: netns.View{Cookie: cookie, Taken: time.Now(), Peer: "eth0"},
	}
	for _, ip := range ips {
		l.View.Addresses = append(l.View.Addresses, netns.Address{IP: netip.MustParseAddr(ip), Where: netns.OnPeer, Valid: true})
	}
	i, _ := r.Table.Update(links.Event{Kind: links.Added, Interface: &l}, time.Now())
	return i
}

// confirm has holders of an address answer until a conflict is confirmed.
func (r *Report) confirm(t *testing.T, ip string, holders ...detector.Sighting) {
	t.Helper()
	r.confirmFrom(t, time.Now().Add(-4*time.Second), ip, holders...)
}

// confirmFrom is confirm from a time on: the clock of the detector is that of its caller. It takes 4 s, and confirms after 2 s.
func (r *Report) confirmFrom(t *testing.T, now time.Time, ip string, holders ...detector.Sighting) {
	t.Helper()
	for range 8 {
		for _, s := range holders {
			s.Key, s.At, s.Answer = detector.Key{Network: "default", IP: netip.MustParseAddr(ip)}, now, true
			r.Detector.Observe(s, now)
		}
		r.Detector.Tick(now)
		now = now.Add(500 * time.Millisecond)
	}
	for _, c := range r.Detector.Conflicts(false) {
		if c.Key.IP.String() == ip && c.State == detector.Confirmed {
			return
		}
	}
	t.Fatalf("%s has no conflict", ip)
}

func sightingOf(i *observe.Interface) detector.Sighting {
	return detector.Sighting{Holder: i.Describe([6]byte{2, 1}), Evidence: detector.Announced}
}

// conflict returns the document of one conflict.
func (r *Report) conflict(c detector.Conflict) document.Conflict {
	return r.newView(r.Detector.Conflicts(false)).conflict(c)
}

// firstOwn returns the oldest holder of this node.
func (r *Report) firstOwn(c detector.Conflict) *detector.Binding {
	return &c.Holders[slices.IndexFunc(c.Holders, func(b detector.Binding) bool { return r.isOwn(&b) })]
}

var compareFacts = cmp.Options{cmpopts.EquateComparable(netip.Addr{}, netip.Prefix{})}

// What is behind real namespaces, without a runtime: a process without a pod, one of a pod that was given another address, and no process.
func TestFacts(t *testing.T) {
	network := new(fakeCluster)
	r := newReport(t, network)
	changed := 0
	r.Changed = func() { changed++ }
	alone, pod, empty := ownnetns.NewPod(t), ownnetns.NewPod(t), ownnetns.NewPod(t)
	var refs []netns.Ref
	var found []*observe.Interface
	for n, p := range []*ownnetns.Pod{alone, pod, empty} {
		ref := namedNetns(t, p, "cni-dupiptest")
		cookie, err := netns.CookieAt(p.Path())
		must(t, err)
		refs, found = append(refs, ref), append(found, r.holds(fmt.Sprint("veth", n), n+1, ref, cookie, "10.0.0.1"))
	}
	empty.Delete()
	// Row D: it was given .1, and announces .2, which its kernel has not any more.
	r.Table.Name(pods.Change{
		Cookie: found[1].View.Cookie, Pod: detector.Pod{Namespace: "shop", Name: "victim"}, IPs: []netip.Addr{netip.MustParseAddr("10.0.0.1")},
		Result: &books.Result{HostEnds: []string{"veth1"}, Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.0.1/24")}},
	}, time.Now())
	remote := detector.Sighting{Holder: holding("n2", "10.0.0.2", 77).Holder, Evidence: detector.Announced}
	for _, ip := range []string{"10.0.0.2", "10.0.0.3", "192.0.2.9"} {
		r.confirm(t, ip, sightingOf(found[0]), sightingOf(found[1]), sightingOf(found[2]), remote)
	}
	facts := func(c document.Conflict) (list []*document.Facts) {
		for _, i := range found {
			for _, b := range c.Holders {
				if b.ID() == i.Holder {
					list = append(list, b.Facts)
				} else if b.Node == "n2" && b.Facts != nil {
					t.Errorf("facts of another node's holder: %+v", b.Facts)
				}
			}
		}
		return list
	}
	others := []netip.Addr{netip.MustParseAddr("10.0.0.1")}
	path := func(n int) document.Facts {
		return document.Facts{NetnsPath: refs[n].Path, NetnsInode: refs[n].Inode}
	}
	want := []*document.Facts{new(path(0)), new(path(1)), new(path(2))}
	want[0].Behind, want[0].Process = document.BehindAlive, &document.Process{PID: alone.Pid, Command: "cat"}
	want[1].Behind, want[1].GivenOthers = document.BehindAlive, others
	check := func(what string, c document.Conflict, shared int) {
		t.Helper()
		if diff := cmp.Diff(want, facts(c), compareFacts); diff != "" || c.Shared != shared {
			t.Errorf("%s: %d shared, want %d (-want +got):\n%s", what, c.Shared, shared, diff)
		}
	}
	list, err := r.Conflicts(t.Context(), document.Query{})
	must(t, err)
	for _, c := range list.Conflicts {
		if c.Drill {
			if f := facts(c); f[0] != nil || f[1] != nil || c.Shared != 0 {
				t.Errorf("a drill has facts: %+v", f)
			}
			continue
		}
		check("conflicts", c, 2)
	}
	// The reporters are told once, as long as nothing changes.
	must(t, r.readFacts(t.Context()))
	if len(network.reports) != 2 || changed != 2 {
		t.Fatalf("%d reports, %d changes of what is kept, want 2", len(network.reports), changed)
	}
	packed, err := network.reports[0](time.Now(), 1<<12)
	must(t, err)
	report, err := document.DecodeReport(packed, "n1/b", time.Now())
	must(t, err)
	check("a report", report, 2)
	explained, err := r.Explain(t.Context(), document.Query{IP: netip.MustParseAddr("10.0.0.2")})
	must(t, err)
	check("explain", *explained.Stories[0].Conflict, 2)

	// Another node gets them, and the state and a watch have them.
	answers := make(chan []byte, 1)
	must(t, unix.Kill(pod.Pid, unix.SIGKILL))
	pod.Delete()
	want[1].Behind = ""
	time.Sleep(factsAge) // so old may a reading be
	r.Reply(cluster.Query{Kind: cluster.QueryConflicts, Answer: answers, Limit: 1 << 20})
	answer, _, err := document.DecodeAnswer(<-answers, "n1", "b", time.Now())
	must(t, err)
	if len(answer.Conflicts) != 3 {
		t.Fatal(answer)
	}
	for _, c := range answer.Conflicts {
		if !c.Drill {
			check("the answer", c, 2)
		}
	}
	if len(network.reports) != 4 || changed != 4 { // what was behind a holder has changed
		t.Errorf("%d reports, %d changes of what is kept, want 4", len(network.reports), changed)
	}
	events, err := r.WatchConflicts(t.Context())
	must(t, err)
	for range 3 {
		if e := <-events; !e.Conflict.Drill {
			check("a watch", e.Conflict, 2)
		}
	}
	for _, c := range r.judged() {
		said, known, acks := r.Kept(detector.Snapshot{Open: []detector.Conflict{c}})
		if len(known) != 1 || len(known[c.ID]) != 3 {
			t.Errorf("kept: %+v", known)
		}
		r.Kept(detector.Snapshot{})
		if r.Restore(said, known, acks); len(r.facts.known[c.ID]) != 3 {
			t.Errorf("restored: %+v", r.facts.known)
		}
		r.Restore(r.Kept(detector.Snapshot{}))
		if len(r.facts.known) != 0 {
			t.Error("facts of forgotten conflicts are kept")
		}
		must(t, r.readFacts(t.Context()))
		c.State = detector.Resolved
		check("an ended conflict", r.conflict(c), 0)
		c.State = detector.Confirmed
		r.facts.last.at = r.facts.last.at.Add(-time.Hour)
		if f := facts(r.conflict(c)); f[0].Behind != "" || f[0].Process == nil {
			t.Errorf("after an hour without a reading: %+v", f[0])
		}
		r.facts.last = reading{}
	}
}

// Facts are not there before the runtime was asked, but at most for a time; and while the runtime hangs nobody says what is behind a holder.
func TestFactsAreOnTheirWay(t *testing.T) {
	r := newReport(t, nil)
	var err error
	if r.Pods, err = pods.New(pods.Options{Log: r.Log, Socket: "/nowhere/cri.sock"}); err != nil { // not Run: it has not answered yet
		t.Fatal(err)
	}
	pod := ownnetns.NewPod(t)
	ref := namedNetns(t, pod, "cni-dupiptest")
	i := r.holds("veth1", 1, ref, 1, "10.0.0.2")
	r.confirm(t, "10.0.0.2", sightingOf(i), detector.Sighting{Holder: holding("n2", "10.0.0.2", 77).Holder, Evidence: detector.Announced})
	must(t, r.readFacts(t.Context()))
	c := r.judged()[0]
	for after, want := range map[time.Duration]*document.Facts{
		0: nil, factsWait - time.Millisecond: nil, factsWait: {NetnsPath: ref.Path, NetnsInode: ref.Inode, Process: &document.Process{PID: pod.Pid, Command: "cat"}},
	} {
		got := r.factsOf(&c, r.firstOwn(c), c.ConfirmedAt.Add(after))
		if diff := cmp.Diff(want, got, compareFacts); diff != "" {
			t.Errorf("after %v (-want +got):\n%s", after, diff)
		}
	}
}

// The history of a conflict says what its holders were, and not what the one that has ended it looked like before it was gone. Here it was in a
// list of the runtime that is not there any more, and has a process.
func TestFactsOfEnded(t *testing.T) {
	r := newReport(t, nil)
	pod := ownnetns.NewPod(t)
	i := r.holds("veth1", 1, namedNetns(t, pod, "cni-dupiptest"), 1, "10.0.0.2")
	r.confirm(t, "10.0.0.2", sightingOf(i), detector.Sighting{Holder: holding("n2", "10.0.0.2", 77).Holder, Evidence: detector.Announced})
	must(t, r.readFacts(t.Context()))
	judged, now := r.judged(), time.Now()
	c := judged[0]
	for was, want := range map[document.Behind]document.Behind{
		document.BehindRunning: document.BehindRunning, document.BehindAlive: document.BehindAlive, document.BehindStopped: document.BehindAlive, "": document.BehindAlive,
	} {
		f := *r.facts.known[c.ID][i.Holder]
		f.Behind = was
		r.facts.known[c.ID] = map[detector.HolderID]*document.Facts{i.Holder: &f}
		for range 2 {
			r.settle(judged, now)
			if f := r.facts.known[c.ID][i.Holder]; f.Behind != document.BehindAlive {
				t.Errorf("it was %q, and while the conflict is open it is %q", was, f.Behind)
			}
		}
		r.facts.ended(c.ID)
		if f := r.facts.known[c.ID][i.Holder]; f.Behind != want {
			t.Errorf("it was %q, and when the conflict is over %q, want %q", was, f.Behind, want)
		}
	}

	earlier, later := &document.Facts{Behind: document.BehindAlive}, &document.Facts{Behind: document.BehindAlive}
	if liveliest(earlier, nil, later) != later {
		t.Error("of two with as much behind them, it is not the later")
	}
	r.facts.known[c.ID][i.Holder].Behind = document.BehindRunning
	r.settle(judged, now)
	resolved := c
	resolved.State = detector.Resolved
	r.Publish(detector.Event{Kind: detector.EventResolved, At: now, Conflict: resolved})
	if f := r.facts.known[c.ID][i.Holder]; f.Behind != document.BehindRunning {
		t.Errorf("its end was told, and it was %q", f.Behind)
	}
}

// The runtime's list and the processes of a netns decide together what is behind it.
func TestBehind(t *testing.T) {
	const cookie = 7
	began := time.Now()
	ready, stopped, nothing := map[uint64]bool{cookie: true}, map[uint64]bool{cookie: false}, map[uint64]bool{9: true}
	list := func(of map[uint64]bool, after time.Duration) pods.Sandboxes {
		return pods.Sandboxes{Listed: began.Add(after), Complete: true, Settled: true, Netns: of}
	}
	partly, unread := list(nothing, time.Hour), list(nothing, time.Hour)
	partly.Complete, unread.Settled = false, false
	for name, test := range map[string]struct {
		sandboxes                pods.Sandboxes
		pod, foreign             bool
		process, none, blindNone document.Behind
	}{
		"no runtime":                   {sandboxes: pods.Sandboxes{None: true}, process: document.BehindAlive},
		"no answer":                    {},
		"no answer about a pod":        {pod: true},
		"not asked since":              {sandboxes: list(ready, -1)},
		"it runs":                      {list(ready, 1), true, false, "running", "running", "running"},
		"it has stopped":               {list(stopped, 1), true, false, "alive", "stopped", ""},
		"not listed yet":               {sandboxes: list(nothing, listedLate-1)},
		"not listed":                   {list(nothing, listedLate), false, false, "alive", "forgotten", ""},
		"not listed, and no runtime's": {list(nothing, listedLate), false, true, "alive", "", ""},
		"not listed any more":          {list(nothing, 1), true, true, "alive", "forgotten", ""},
		"a list that is too long":      {sandboxes: partly, pod: true},
		"a list with sandboxes that were not read": {sandboxes: unread, pod: true},
	} {
		i := &observe.Interface{Interface: &links.Interface{View: netns.View{Cookie: cookie}}, Found: began}
		if test.pod {
			i.Pod.Pod.Name = "web"
		}
		ref := netns.Ref{Name: "cni-1"}
		if test.foreign {
			ref.Name = "mine"
		}
		with := ref
		with.Pid = 1
		got := [...]document.Behind{behind(i, test.sandboxes, with, false), behind(i, test.sandboxes, ref, false), behind(i, test.sandboxes, ref, true)}
		if want := [...]document.Behind{test.process, test.none, test.blindNone}; got != want {
			t.Errorf("%s: with a process, without, and where processes are not seen: %q, want %q", name, got, want)
		}
	}
}

// The container runtime does not list the containers of other engines, which have a netns before they have a process, and after it.
func TestBehindContainer(t *testing.T) {
	began := time.Now()
	i := &observe.Interface{Interface: &links.Interface{View: netns.View{Cookie: 7}}, Found: began}
	i.Pod.Pod = detector.Pod{Name: "web", Engine: "docker"}
	list := pods.Sandboxes{Listed: began.Add(listedLate), Complete: true, Settled: true}
	if got := behind(i, list, netns.Ref{Name: "484257e640d3"}, false); got != "" {
		t.Errorf("it is %q without a process", got)
	}
	if got := behind(i, list, netns.Ref{Name: "484257e640d3", Pid: 1}, false); got != document.BehindAlive {
		t.Errorf("it is %q with a process", got)
	}
}

// Row C: a node gets an address of a pod of another node, with a lifetime, on a second interface.
func TestFactsOfMachine(t *testing.T) {
	r := newReport(t, nil)
	const index = 77
	ip := netip.MustParsePrefix("10.81.9.20/24")
	host := detector.Holder{ID: r.Table.Host, Interface: detector.Interface{Ifindex: index}, InterfaceName: "eth1"}
	other := holding("n2", "10.81.9.20", 78).Holder
	other.Interface.Ifindex = index
	r.confirm(t, ip.Addr().String(), detector.Sighting{Holder: host, Evidence: detector.Host}, detector.Sighting{Holder: other, Evidence: detector.Host},
		detector.Sighting{Holder: holding("n2", "10.81.9.20", 77).Holder, Evidence: detector.Announced})
	c := r.judged()[0]
	if f := r.factsOf(&c, r.firstOwn(c), time.Now()); f != nil {
		t.Errorf("before it was read: %+v", f)
	}
	testneeds.Root(t)
	began := time.Now()
	must(t, netns.DoInNew(func() error {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth1", Index: index}, PeerName: "peer"}
		if err := netlink.LinkAdd(link); err != nil {
			return err
		}
		address := &net.IPNet{IP: ip.Addr().AsSlice(), Mask: net.CIDRMask(ip.Bits(), 32)}
		if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: address, ValidLft: 600, PreferedLft: 600}); err != nil {
			return err
		}
		return r.readFacts(t.Context())
	}))
	for _, b := range r.conflict(c).Holders {
		if b.Node != "n1" {
			if b.Facts != nil {
				t.Errorf("facts of another node's address: %+v", b.Facts)
			}
			continue
		}
		if b.Facts == nil || b.Facts.Machine == nil {
			t.Fatalf("%+v", b)
		}
		m := *b.Facts.Machine
		if m.Since.Sub(began).Abs() > 2*time.Second {
			t.Errorf("since %v, want %v", m.Since, began)
		}
		m.Since = time.Time{}
		if want := (document.Machine{Device: "eth1", Prefix: ip, Dynamic: true}); m != want {
			t.Errorf("%+v, want %+v", m, want)
		}
	}
}
