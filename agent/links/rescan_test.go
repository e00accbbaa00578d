package links

import (
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
)

// idle returns a Watcher that observes nothing, with two veths that are due for nothing and an ignored one.
func idle(t *testing.T) *Watcher {
	w := &Watcher{
		opts: Options{Log: slog.New(slog.DiscardHandler)}, events: make(chan Event, 64), table: newHarness(t).table,
		requests: requests{wake: make(chan struct{}, 1), set: make(map[any]bool)},
	}
	routes, err := listDefaultRoutes() // others than before would have all interfaces compared with the kernel's
	if err != nil {
		t.Fatal(err)
	}
	w.table.routes = routes
	w.table.veths[2] = &tracked{iface: Interface{Index: 2, Generation: 20, State: Attached}, nsid: 0}
	w.table.veths[3] = &tracked{iface: Interface{Index: 3, Generation: 30, State: Attached}, nsid: 1}
	w.table.veths[4] = &tracked{iface: Interface{Index: 4, Generation: 40, State: Ignored}, nsid: 1}
	return w
}

// Each request schedules some scans or lists.
func TestRequests(t *testing.T) {
	for _, test := range []struct {
		name               string
		request            func(w *Watcher)
		second, third      bool // the scans of these veths are due
		host, all, relists bool
	}{
		{"nothing", func(*Watcher) {}, false, false, false, false, false},
		{"an address in a pod", func(w *Watcher) { w.requests.add(scanNetns(1)) }, false, true, false, false, false},
		{"an address of the node", func(w *Watcher) { w.requests.add(scanNetns(ownNetns)) }, false, false, true, false, false},
		{"an interface", func(w *Watcher) { w.Refresh(20) }, true, false, false, false, false},
		{"several", func(w *Watcher) { w.Refresh(20); w.Refresh(20); w.requests.add(scanNetns(1)) }, true, true, false, false, false},
		{"events were lost", func(w *Watcher) { w.requests.add(scanEverything{}) }, false, false, false, true, false},
		{"other ignored names", func(w *Watcher) { w.SetIgnore(nil) }, false, false, false, false, true},
	} {
		w := idle(t)
		test.request(w)
		if woken := len(w.requests.wake) > 0; woken != (test.name != "nothing") {
			t.Errorf("%s: woken %t", test.name, woken)
		}
		relists := w.takeRequests()
		second, third, fourth := w.table.veths[2].scans.due, w.table.veths[3].scans.due, w.table.veths[4].scans.due
		if second != test.second || third != test.third || fourth || w.hostPacer.due != test.host || w.overrunPacer.due != test.all || relists != test.relists {
			t.Errorf("%s: scans %t, %t, of an ignored one %t, host %t, all %t, list %t", test.name, second, third, fourth, w.hostPacer.due, w.overrunPacer.due, relists)
		}
		if w.overrunPacer.due = false; w.takeRequests() || w.overrunPacer.due {
			t.Errorf("%s: a request was taken twice", test.name)
		}
	}
}

// What may have missed changes in all namespaces schedules a list of their devices, too.
func TestListsOfAllNamespaces(t *testing.T) {
	for name, change := range map[string]func(w *Watcher){
		"a new session":       func(w *Watcher) { w.scheduleAll() },
		"other ignored names": func(w *Watcher) { w.SetIgnore(nil); w.takeRequests() },
		"a parent has another name": func(w *Watcher) {
			w.table.addDevice(&netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: 9, Name: "renamed"}})
		},
	} {
		w := idle(t)
		ns := &namespace{nsid: 1}
		w.inside.namespaces = map[uint64]*namespace{1: ns}
		w.table.devices[9] = hostDevice{name: "up0"}
		w.table.veths[99] = &tracked{iface: Interface{Index: 99, Master: "up0"}, ns: ns}
		if change(w); !ns.scans.due {
			t.Errorf("%s: no list is due", name)
		}
	}
}

// A change of a link waits for one scan at most: until it is read, an interface may be in the wrong network.
func TestLinksBeforeScans(t *testing.T) {
	scanned := func(updates int) (n int) {
		w := idle(t)
		finder, err := netns.NewFinder()
		if err != nil {
			t.Fatal(err)
		}
		defer finder.Close()
		queue := make(chan netlink.LinkUpdate, 1)
		for range updates {
			queue <- netlink.LinkUpdate{}
		}
		w.finder, w.updates = finder, queue
		now := time.Now()
		for _, index := range []int{2, 3} {
			w.table.veths[index].scans = newScans(now)
			w.table.veths[index].nsid = 1_000_000 // no such netns
		}
		w.scanDue(t.Context(), now)
		for _, index := range []int{2, 3} {
			if w.table.veths[index].scans.next.After(now) {
				n++ // it was tried
			}
		}
		return n
	}
	if before, while := scanned(0), scanned(1); before != 2 || while != 1 {
		t.Errorf("%d scans without a change, %d with one, want 2 and 1", before, while)
	}
}

// Scans that were requested are before others, and of these those before that are the oldest.
func TestOrderOfScans(t *testing.T) {
	w := idle(t)
	now := time.Now()
	const count = 100
	for index := 10; index < 10+count; index++ {
		veth := &tracked{iface: Interface{Index: index, Generation: uint32(10 * index)}, scans: newScans(now)}
		veth.iface.View.Taken = now.Add(time.Duration(index-count) * time.Second)
		w.table.veths[index] = veth
	}
	w.Refresh(500)
	w.Refresh(300)
	w.takeRequests()
	want := []int{30, 50}
	for index := 10; index < 10+count; index++ {
		if index != 30 && index != 50 {
			want = append(want, index)
		}
	}
	var got []int
	for _, veth := range w.table.toScan(now) {
		got = append(got, veth.iface.Index)
	}
	if !slices.Equal(got, want) {
		t.Errorf("scanned in the order %v, want %v", got, want)
	}
	w.table.scanned(w.table.veths[50], netns.Ref{}, netns.View{}, nil, now)
	if w.table.veths[50].requested || !w.table.veths[30].requested {
		t.Error("a scan that was made counts as requested")
	}
}

// While many scans are due, one that is requested waits for one of them.
func TestScansEndForARequest(t *testing.T) {
	w := idle(t)
	now := time.Now()
	finder, err := netns.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	defer finder.Close()
	w.finder = finder
	left := func() (n int) {
		for _, veth := range w.table.veths {
			if veth.scans.ready(now) {
				n++
			}
		}
		return n
	}
	for index := 10; index < 20; index++ {
		w.table.veths[index] = &tracked{iface: Interface{Index: index}, nsid: -1, scans: newScans(now)}
	}
	before := left()
	w.Refresh(20)
	w.work(t.Context(), now, now.Add(time.Hour))
	if n := before - left(); n != 1 {
		t.Errorf("%d scans before the request was taken, want 1", n)
	}
}

// A loss of events schedules a scan of all namespaces, with a pause between two.
func TestOverrunSchedulesAllScans(t *testing.T) {
	w := idle(t)
	now := time.Now()
	lose := func() (scanned bool) {
		t.Helper()
		for _, veth := range w.table.veths {
			veth.scans = scans{pacer: pacer{next: now.Add(time.Hour)}}
		}
		w.hostPacer = pacer{next: now.Add(time.Hour)}
		w.requests.add(scanEverything{})
		w.takeRequests()
		next := w.work(t.Context(), now, now.Add(time.Hour))
		second, third, host := w.table.veths[2].scans.due, w.table.veths[3].scans.due, w.hostPacer.due
		if second != third || third != host || w.table.veths[4].scans.due {
			t.Errorf("to be scanned: %t, %t and the node's addresses %t; the ignored one: %t", second, third, host, w.table.veths[4].scans.due)
		}
		if !second && next != w.overrunPacer.next {
			t.Errorf("the next turn is %v after the pause", next.Sub(w.overrunPacer.next))
		}
		return second
	}
	if !lose() || w.Overruns() != 1 {
		t.Errorf("no netns is scanned after a loss, or %d are counted", w.Overruns())
	}
	now = now.Add(minOverrunPause - 1)
	if lose() || w.Overruns() != 1 {
		t.Errorf("the scan after the next loss is too soon, or %d are counted", w.Overruns())
	}
	now = now.Add(1)
	if !lose() || w.Overruns() != 2 {
		t.Errorf("no scan after the next loss, or %d are counted", w.Overruns())
	}
}

// Each pod that starts may change the node's own addresses. The watcher lists them at once, and then
// keeps a pause after each list.
func TestHostListsArePaced(t *testing.T) {
	w := &Watcher{opts: Options{Log: slog.New(slog.DiscardHandler)}, events: make(chan Event, 64), table: newHarness(t).table}
	never := time.Now().Add(24 * time.Hour)
	work := func(now time.Time) (lists int, next time.Time) {
		t.Helper()
		next = w.work(t.Context(), now, never)
		for lists = 0; len(w.events) > 0; lists++ {
			if event := <-w.events; event.Kind != HostAddresses {
				t.Errorf("event %+v", event)
			}
		}
		return lists, next
	}
	w.scheduleHost()
	began := time.Now()
	if lists, next := work(began); lists != 1 || next != never {
		t.Errorf("%d lists at first, want 1; the next at %v", lists, next)
	}
	if pause := w.hostPacer.next.Sub(began); pause < minPause {
		t.Errorf("the next list is due after %v", pause)
	}
	later := time.Now().Add(time.Hour)
	w.hostPacer.next = later
	w.scheduleHost()
	if lists, next := work(time.Now()); lists != 0 || !next.Equal(later) {
		t.Errorf("%d lists during the pause, the next at %v, want none before %v", lists, next, later)
	}
	if lists, _ := work(later); lists != 1 {
		t.Errorf("%d lists after the pause, want 1", lists)
	}
}

// The first list of the node's own addresses and attaching come after all interfaces that were there, however often the first scans
// are interrupted. But a pod can make many devices that have no end on the node: those delay nothing.
func TestFirstScansComeFirst(t *testing.T) {
	finder, err := netns.NewFinder()
	if err != nil {
		t.Fatal(err)
	}
	defer finder.Close()
	for name, test := range map[string]struct {
		ns       *namespace
		started  bool // there was a list before
		lists    int
		attaches bool
	}{
		"an interface":                 {nil, false, 0, false},
		"an interface after the start": {nil, true, 0, true},
		"a device inside of a pod":     {new(namespace), false, 1, true},
	} {
		w := &Watcher{opts: Options{Log: slog.New(slog.DiscardHandler)}, events: make(chan Event, 64), table: newHarness(t).table, finder: finder}
		now := time.Now()
		later := scans{pacer: pacer{next: now.Add(time.Hour)}}
		w.table.veths[7] = &tracked{iface: Interface{Index: 7, Listed: true, State: Pending}, ns: test.ns, scans: later}
		// Attaching to this one fails, because there is no such netns.
		scanned := &tracked{iface: Interface{Index: 8, FirstName: "eth0", Kind: "macvlan", State: Pending}, ns: new(namespace), nsid: 1_000_000, scans: later}
		scanned.attach.due = true
		w.table.veths[8] = scanned
		if test.started {
			w.hostPacer.next = now.Add(-time.Second)
		}
		w.scheduleHost()
		next := w.work(t.Context(), now, now.Add(time.Hour))
		lists := 0
		for len(w.events) > 0 {
			if e := <-w.events; e.Kind == HostAddresses {
				lists++
			}
		}
		if tried := scanned.iface.State != Pending; lists != test.lists || tried != test.attaches {
			t.Errorf("%s is not scanned yet: %d lists, attached %t, want %d and %t", name, lists, tried, test.lists, test.attaches)
		}
		if test.lists == 0 && !test.attaches && next.Before(now.Add(time.Minute)) {
			t.Errorf("%s is not scanned yet, but work is to be called in %v", name, next.Sub(now))
		}
	}
}

// The watcher keeps a pause after each list of the VLANs of ports, too.
func TestPortListsArePaced(t *testing.T) {
	w := &Watcher{opts: Options{Log: slog.New(slog.DiscardHandler)}, events: make(chan Event, 64), table: newHarness(t).table}
	now := time.Now()
	veth := &tracked{iface: Interface{Index: 7, Name: "pod7", State: Attached, Seen: true}, portDue: true}
	w.table.veths[7] = veth
	w.portPacer.next = now.Add(time.Second)
	if next := w.work(t.Context(), now, now.Add(time.Hour)); !veth.portDue || next != w.portPacer.next {
		t.Errorf("read during the pause: %t; next in %v, want a second", !veth.portDue, next.Sub(now))
	}
	if w.work(t.Context(), now.Add(time.Second), now.Add(time.Hour)); veth.portDue {
		t.Error("not read after the pause")
	}
}

// The pod's end comes up. If it was down in the last scan, it may have had another name: nothing but its link may tell.
func TestScanWhenPeerComesUp(t *testing.T) {
	down := func(a *netlink.LinkAttrs) { a.OperState = netlink.OperDown }
	for _, test := range []struct {
		name     string
		peerDown bool
		before   func(*netlink.LinkAttrs)
		after    []func(*netlink.LinkAttrs)
		want     bool
	}{
		{"it was down", true, down, nil, true},
		{"it was up, and the host end down", false, down, nil, false},
		{"it stays down", true, down, []func(*netlink.LinkAttrs){down, named("new")}, false},
		{"its up was lost", true, func(*netlink.LinkAttrs) {}, []func(*netlink.LinkAttrs){named("new")}, true},
	} {
		h := newHarness(t)
		h.event(pod(test.before))
		h.setPodState(Attached)
		h.scanned(h.veths[7], netns.Ref{}, netns.View{Peer: "veth0578244", PeerDown: test.peerDown}, nil, h.now)
		if h.veths[7].scans.due {
			t.Fatalf("%s: a scan is due before", test.name)
		}
		if h.event(pod(test.after...)); h.veths[7].scans.due != test.want {
			t.Errorf("%s: a scan is due: %t", test.name, !test.want)
		}
	}
}
