package links

import (
	"errors"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/tests/lab"
)

// namedPod makes a named netns with a veth into it, as it is tracked before the first look.
func namedPod(t *lab.T, n *lab.Node, name string) (*lab.Netns, *tracked) {
	t.Helper()
	sandbox, err := n.AddSandbox(name)
	t.Do(err)
	file, err := os.Open(sandbox.Path())
	t.Do(err)
	defer file.Close()
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	t.Do(netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(file.Fd())}))
	link, err := netlink.LinkByName(name)
	t.Do(err)
	return sandbox, &tracked{nsid: link.Attrs().NetNsID, peer: link.Attrs().ParentIndex}
}

// A pod that a runtime has named is found without a look at every process of the node,
// also when its id was another's, whose name is gone.
func TestNamesAreFoundTheShortWay(t *testing.T) {
	l := lab.NewT(t)
	n := l.Node("")
	finder, err := netns.NewFinder()
	l.Do(err)
	defer finder.Close()
	w := &Watcher{log: slog.New(slog.DiscardHandler), finder: finder}

	find := func(pod *tracked, sandbox *lab.Netns, long bool) {
		t.Helper()
		before := w.scanned
		w.scanned = before.Add(-scanPause)
		before = w.scanned
		place, view, err := w.open(pod)
		if err != nil || place.Name != sandbox.Name || view.Peer != "eth0" {
			t.Fatalf("found %+v, with %+v and the error %v, want %s", place, view, err, sandbox.Name)
		}
		if !place.Exists() {
			t.Errorf("found %+v, which is another netns's", place)
		}
		if got := w.scanned != before; got != long {
			t.Errorf("all processes were looked at: %t, want %t", got, long)
		}
	}
	// What is there at the start is looked at whole.
	first, pod := namedPod(l, n, "first")
	find(pod, first, true)
	find(pod, first, false)
	second, other := namedPod(l, n, "second")
	find(other, second, false)
	// A peer that has left is no reason to look elsewhere.
	scanned := w.scanned
	if _, _, err := w.open(&tracked{nsid: other.nsid, peer: 1 << 20}); !errors.Is(err, netns.ErrNoPeer) || w.scanned != scanned {
		t.Errorf("error %v, and all processes were looked at: %t", err, w.scanned != scanned)
	}

	id := pod.nsid
	l.Do(n.DeleteSandbox(first))
	var third *lab.Netns
	for round := 0; ; round++ {
		// The kernel gives ids out again from the lowest, once it is through with the netns.
		if third, pod = namedPod(l, n, "third"); pod.nsid == id {
			break
		}
		l.Do(n.DeleteSandbox(third))
		if round == 1000 {
			t.Fatal("the id is not given out again")
		}
		time.Sleep(time.Millisecond)
	}
	find(pod, third, false)

	// A name that was made again: only the long way tells.
	place := w.places[pod.nsid]
	place.Inode++
	w.places[pod.nsid] = place
	find(pod, third, true)
}

// A netns without a name is found by its processes; one that nothing leads to is not.
func TestOpenWithoutAName(t *testing.T) {
	l := lab.NewT(t)
	finder, err := netns.NewFinder()
	l.Do(err)
	defer finder.Close()
	w := &Watcher{log: slog.New(slog.DiscardHandler), finder: finder, places: make(map[int]netns.Place)}
	if _, _, err := w.open(&tracked{nsid: 1 << 20}); !errors.Is(err, errNoPlace) {
		t.Errorf("error %v, want %v", err, errNoPlace)
	}
	w.scanned = time.Now().Add(time.Hour) // however slow the machine is
	if _, _, err := w.open(&tracked{nsid: 1 << 20}); !errors.Is(err, errTooSoon) {
		t.Errorf("error %v, want %v", err, errTooSoon)
	}
}

// Each pod that starts may change the node's own addresses: they are listed at once, and
// then not more often than a share of the time.
func TestHostIsListedSparingly(t *testing.T) {
	w := &Watcher{
		log: slog.New(slog.DiscardHandler), events: make(chan Event, 64),
		bridges: bridges{filtersVLANs, netlink.BridgeVlanList},
	}
	work := func(now time.Time) (lists int, next time.Time) {
		t.Helper()
		next = w.work(t.Context(), now)
		for lists = 0; len(w.events) > 0; lists++ {
			if event := <-w.events; event.Kind != HostAddresses {
				t.Errorf("event %+v", event)
			}
		}
		return lists, next
	}
	w.hostChanged()
	began := time.Now()
	if lists, _ := work(began); lists != 1 || w.hostDirty {
		t.Errorf("%d lists at first, want 1", lists)
	}
	if pause := w.nextHost.Sub(began); pause < lookPause {
		t.Errorf("the next list is due after %v", pause)
	}
	later := time.Now().Add(time.Hour)
	w.nextHost = later
	w.hostChanged()
	if lists, next := work(time.Now()); lists != 0 || !next.Equal(later) {
		t.Errorf("%d lists too soon, the next at %v, want none before %v", lists, next, later)
	}
	if lists, _ := work(later); lists != 1 {
		t.Errorf("%d lists when it was time, want 1", lists)
	}
}
