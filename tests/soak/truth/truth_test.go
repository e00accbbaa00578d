package truth

import (
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/soak/judge"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// stage is a lab with a watcher and the last look into every namespace.
type stage struct {
	*lab.T
	watcher *Watcher
	last    map[judge.Holder]judge.Snapshot
	order   []judge.Snapshot
}

func newStage(t *testing.T) (*stage, *lab.Node) {
	s := &stage{T: lab.NewT(t), last: make(map[judge.Holder]judge.Snapshot)}
	n := s.Node("node1")
	s.watcher = New(s.Prefix(), []string{"node1"}, time.Now(), func(l judge.Snapshot) {
		if before, known := s.last[l.Holder]; l.To < l.From || known && l.From < before.From {
			t.Errorf("a look of %v to %v came after one from %v", l.From, l.To, before.From)
		}
		s.last[l.Holder] = l
		s.order = append(s.order, l)
	})
	return s, n
}

func holder(p *lab.Pod) judge.Holder { return judge.Holder{Node: p.Node.ShortName(), Netns: p.Name} }

// waitAddrs fails the test unless a round shows that a holder has just these addresses.
func (s *stage) waitAddrs(h judge.Holder, has, maybe []netip.Addr) {
	s.Helper()
	s.Do(s.watcher.ReadAll())
	l := s.last[h]
	slices.SortFunc(l.Has, netip.Addr.Compare)
	if !slices.Equal(l.Has, has) || !slices.Equal(l.Maybe, maybe) {
		s.Errorf("%v has %v, perhaps %v; want %v and %v", h, l.Has, l.Maybe, has, maybe)
	}
}

func TestSnapshots(t *testing.T) {
	t.Parallel()
	s, n := newStage(t)
	s.waitAddrs(judge.Holder{Node: "node1", Netns: "host"},
		[]netip.Addr{n.IPv4(1), n.Uplink(), n.Uplink6(), n.IPv6(1)}, nil)

	ips := []netip.Addr{n.IPv4(5), n.IPv6(5)}
	s.Do(s.watcher.ReadAll())
	began := time.Since(s.watcher.start)
	s.Do(s.watcher.Read(s.Prefix() + "p1.node1"))
	p := s.Pod(n, "p1.node1", lab.PodOptions{Addrs: ips})
	s.waitAddrs(holder(p), ips, nil)
	mine := slices.DeleteFunc(slices.Clone(s.order), func(l judge.Snapshot) bool { return l.Holder != holder(p) })
	if len(mine[0].Has)+len(mine[1].Has) > 0 || mine[0].To > began || mine[1].From < began {
		t.Errorf("first snapshots: %+v; want two from before the pod was there", mine[:2])
	}

	s.Do(p.DelAddr(ips[0]), s.watcher.Read(p.Name))
	s.waitAddrs(holder(p), ips[1:], nil)
	s.Do(p.AddAddr(ips[0]))
	s.waitAddrs(holder(p), ips, nil)

	// Nobody answers on an interface that is down; the kernel takes IPv6 addresses away.
	s.Do(p.SetDown())
	s.waitAddrs(holder(p), nil, nil)
	s.Do(p.SetUp())
	s.waitAddrs(holder(p), ips[:1], nil)

	s.Do(p.Delete(), s.watcher.Read(p.Name))
	s.waitAddrs(holder(p), nil, nil)
	count := len(s.order)
	s.Do(s.watcher.ReadAll())
	if got := len(s.order) - count; got != 1 {
		t.Errorf("ReadAll with only the node left: %d snapshots", got)
	}
}

// An address is not in use while its detection runs, nor after that failed.
func TestDetection(t *testing.T) {
	t.Parallel()
	s, n := newStage(t)
	ips := []netip.Addr{n.IPv6(6)}
	older := s.Pod(n, "p1.node1", lab.PodOptions{Addrs: ips})
	rival := s.Pod(n, "p2.node1", lab.PodOptions{Addrs: ips, DAD: true})
	s.Do(rival.WaitDAD(lab.Patience(10*time.Second), ips[0], true))
	s.waitAddrs(holder(older), ips, nil)
	s.waitAddrs(holder(rival), nil, nil)
	for _, l := range s.order {
		if l.Holder == holder(rival) && len(l.Has) > 0 {
			t.Errorf("a look while the detection ran: %+v", l)
		}
	}
}

// A netns without a name may exist for a while.
func TestDying(t *testing.T) {
	t.Parallel()
	s, n := newStage(t)
	ips := []netip.Addr{n.IPv4(7)}
	p := s.Pod(n, "p1.node1", lab.PodOptions{Addrs: ips})
	s.waitAddrs(holder(p), ips, nil)
	open, err := os.Open(p.Path())
	s.Do(err)
	defer open.Close()
	s.Do(p.DeleteNetns(), s.watcher.Read(p.Name))
	// Somebody keeps it, and its devices.
	s.waitAddrs(holder(p), nil, ips)
	s.waitAddrs(holder(p), nil, ips)
	s.Do(open.Close())
	for deadline := time.Now().Add(lab.Patience(10 * time.Second)); len(s.last[holder(p)].Maybe) > 0; time.Sleep(10 * time.Millisecond) {
		s.Do(s.watcher.ReadAll())
		if time.Now().After(deadline) {
			t.Fatal("the netns still exists, and nothing holds it")
		}
	}
}

// Who answers nobody has no address; who answers others only is deaf. Of guests the watcher is told.
func TestManners(t *testing.T) {
	t.Parallel()
	s, n := newStage(t)
	ips := []netip.Addr{n.IPv4(8), n.IPv6(8)}
	p := s.Pod(n, "p1.node1", lab.PodOptions{Addrs: ips})
	s.waitAddrs(holder(p), ips, nil)
	s.Do(p.Sysctl("ipv4/conf/all/arp_ignore", "8"))
	s.waitAddrs(holder(p), ips[1:], nil)
	s.Do(p.Sysctl("ipv4/conf/all/arp_ignore", "0"))
	s.waitAddrs(holder(p), ips, nil)
	if s.last[holder(p)].Deaf {
		t.Error("it is deaf, and drops nothing")
	}
	s.Do(p.DropProbes())
	s.waitAddrs(holder(p), ips, nil)
	if !s.last[holder(p)].Deaf {
		t.Error("it drops probes, and is not deaf")
	}
	s.Do(p.NoARP())
	s.waitAddrs(holder(p), nil, ips[1:])

	machine := s.Pod(n, "p2.node1", lab.PodOptions{Style: lab.Raw})
	s.waitAddrs(holder(machine), nil, nil)
	s.watcher.Guests(machine.Name, ips...)
	s.waitAddrs(holder(machine), ips, nil)
	s.Do(machine.DeleteLink())
	s.waitAddrs(holder(machine), nil, nil)
}
