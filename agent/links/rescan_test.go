package links

import (
	"log/slog"
	"testing"
	"time"
)

// idle returns a Watcher that observes nothing, with two veths that are due for nothing and an ignored one.
func idle(t *testing.T) *Watcher {
	w := &Watcher{
		opts: Options{Log: slog.New(slog.DiscardHandler)}, events: make(chan Event, 64), requests: requests{wake: make(chan struct{}, 1)}, table: newHarness(t).table,
	}
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
