package links_test

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/agent/internal/ownnetns"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/internal/testneeds"
)

func TestMain(m *testing.M) { ownnetns.Main(m) }

// eventTimeout is how long a test waits for an event. It is long because the machine may be busy.
const eventTimeout = 2 * time.Minute

// watch prepares and starts a Watcher, and returns it with a function that waits for an event.
func watch(t *testing.T, opts links.Options, before ...func(*links.Watcher)) (*links.Watcher, func(what string, ok func(links.Event) bool) links.Event) {
	t.Helper()
	w, _, wait := watchUntil(t, nil, opts, before...)
	return w, wait
}

// watchUntil is watch with what [links.Watcher.Run] stops at. It also returns a channel that is closed when that has returned.
func watchUntil(t *testing.T, stop <-chan struct{}, opts links.Options, before ...func(*links.Watcher)) (
	w *links.Watcher, ended <-chan struct{}, wait func(what string, ok func(links.Event) bool) links.Event,
) {
	t.Helper()
	testneeds.Root(t)
	observer := opts.Observer
	if observer == nil {
		var err error
		if observer, err = bpf.Load(bpf.Options{}); err != nil {
			t.Fatal(err)
		}
		opts.Observer = observer
	}
	opts.Log = cmp.Or(opts.Log, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if opts.Resync == 0 {
		opts.Resync = time.Hour // without resyncs
	}
	w, err := links.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	for _, prepare := range before {
		prepare(w)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := w.Run(ctx, stop); err != nil {
			t.Error(err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		observer.Close()
	})
	return w, done, func(what string, ok func(links.Event) bool) links.Event {
		t.Helper()
		deadline := time.After(eventTimeout)
		for {
			select {
			case event := <-w.Events():
				if ok(event) {
					return event
				}
			case <-deadline:
				t.Fatalf("no event: %s", what)
			}
		}
	}
}

// addVeth makes a veth into the pod, up on both ends, with the peer eth0.
func addVeth(t *testing.T, pod *ownnetns.Pod, name string, addresses ...string) *netlink.Veth {
	t.Helper()
	return addVethAt(t, pod, name, 0, addresses...)
}

func addVethAt(t *testing.T, pod *ownnetns.Pod, name string, index int, addresses ...string) *netlink.Veth {
	t.Helper()
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.Index = name, index
	veth := &netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsPid(pod.Pid)}
	must(t, netlink.LinkAdd(veth))
	// At once and by name: a netns that ends takes its veths down only later.
	t.Cleanup(func() { _ = netlink.LinkDel(veth) })
	inPod(t, pod, func() error {
		lo, err := netlink.LinkByName("lo")
		must(t, err)
		must(t, netlink.LinkSetUp(lo))
		for _, address := range addresses {
			addAddress(t, address)
		}
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		return netlink.LinkSetUp(eth0)
	})
	must(t, netlink.LinkSetUp(veth))
	return veth
}

func addAddress(t *testing.T, address string) {
	t.Helper()
	eth0, err := netlink.LinkByName("eth0")
	must(t, err)
	parsed, err := netlink.ParseAddr(address)
	must(t, err)
	must(t, netlink.AddrAdd(eth0, parsed))
}

func inPod(t *testing.T, pod *ownnetns.Pod, f func() error) {
	t.Helper()
	file := pod.Open(t)
	defer file.Close() // an open file would keep the netns of a deleted pod
	must(t, netns.Do(file, f))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func named(kind links.EventKind, name string) func(links.Event) bool {
	return func(e links.Event) bool { return e.Kind == kind && e.Interface.Name == name }
}

func attached(name string) func(links.Event) bool {
	return func(e links.Event) bool {
		return (named(links.Added, name)(e) || named(links.Changed, name)(e)) && e.Interface.State == links.Attached
	}
}

func holds(kind links.EventKind, name, ip string) func(links.Event) bool {
	return func(e links.Event) bool {
		return named(kind, name)(e) && e.Interface.View.Holds(netip.MustParseAddr(ip), 0, 0)
	}
}

func TestPodInterfaceComesAndGoes(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	addVeth(t, pod, "pod1", "10.1.1.1/24")
	added := wait("pod1 attached", attached("pod1")).Interface
	if added.Netns.Pid != pod.Pid {
		// The first thread of the test may have been in the pod.
		added = wait("the pod's process", func(e links.Event) bool {
			return named(links.Changed, "pod1")(e) && e.Interface.Netns.Pid == pod.Pid
		}).Interface
	}
	if added.State != links.Attached || !added.Seen || added.View.Peer != "eth0" {
		t.Errorf("added as %+v, want attached and seen", added)
	}
	var cookie uint64
	inPod(t, pod, func() (err error) { cookie, err = netns.Cookie(); return err })
	if added.View.Cookie != cookie {
		t.Errorf("cookie %d, want %d", added.View.Cookie, cookie)
	}
	pod.Delete()
	removed := wait("pod1 removed", named(links.Removed, "pod1")).Interface
	if removed.Generation != added.Generation {
		t.Errorf("removed generation %d, want %d", removed.Generation, added.Generation)
	}
}

// Listed distinguishes interfaces that are older than the watcher from new ones.
func TestListed(t *testing.T) {
	addVeth(t, ownnetns.NewPod(t), "veth-before", "10.0.0.1/24")
	_, wait := watch(t, links.Options{})
	if e := wait("the older one", named(links.Added, "veth-before")); !e.Interface.Listed {
		t.Error("an interface older than the watcher is not Listed")
	}
	addVeth(t, ownnetns.NewPod(t), "veth-after", "10.0.0.2/24")
	if e := wait("the newcomer", named(links.Added, "veth-after")); e.Interface.Listed {
		t.Error("a new interface is Listed")
	}
}

func TestInterfacesOlderThanTheWatcher(t *testing.T) {
	pod := ownnetns.NewPod(t)
	addVeth(t, pod, "pod1", "10.1.1.1/24")
	_, wait := watch(t, links.Options{})
	wait("pod1 added with its address", holds(links.Added, "pod1", "10.1.1.1"))
}

func TestAddressAddedAndRemovedInsideAPod(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	addVeth(t, pod, "pod1", "10.1.1.1/24")
	wait("pod1 added", named(links.Added, "pod1"))
	inPod(t, pod, func() error { addAddress(t, "10.1.1.99/32"); return nil })
	wait("the new address", holds(links.Changed, "pod1", "10.1.1.99"))
	inPod(t, pod, func() error {
		eth0, err := netlink.LinkByName("eth0")
		must(t, err)
		address, err := netlink.ParseAddr("10.1.1.99/32")
		must(t, err)
		return netlink.AddrDel(eth0, address)
	})
	wait("the address gone", func(e links.Event) bool {
		return named(links.Changed, "pod1")(e) && !e.Interface.View.Holds(netip.MustParseAddr("10.1.1.99"), 0, 0)
	})
}

func TestTentativeAddressBecomesValid(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	addVeth(t, pod, "pod1", "fd00:1::1/64")
	valid := func(e links.Event) bool {
		return e.Kind != links.HostAddresses && e.Interface != nil &&
			slices.ContainsFunc(e.Interface.View.Addresses, func(a netns.Address) bool { return a.Valid })
	}
	wait("a valid address", valid)
}

func TestPeerMovedAfterCreation(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "pod1"
	must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "late0"}))
	peer, err := netlink.LinkByName("late0")
	must(t, err)
	must(t, netlink.LinkSetNsPid(peer, pod.Pid))
	host, err := netlink.LinkByName("pod1")
	must(t, err)
	t.Cleanup(func() { _ = netlink.LinkDel(host) })
	must(t, netlink.LinkSetUp(host))
	added := wait("pod1 added", named(links.Added, "pod1")).Interface
	if added.View.Peer != "late0" {
		t.Errorf("peer %q, want late0", added.View.Peer)
	}
}

func TestLeavingABridgeIsNoDeletion(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	veth := addVeth(t, pod, "pod1", "10.1.1.1/24")
	wait("pod1 added", named(links.Added, "pod1"))
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "br0"
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	must(t, netlink.LinkAdd(bridge))
	t.Cleanup(func() { netlink.LinkDel(bridge) })
	must(t, netlink.LinkSetMaster(veth, bridge))
	wait("pod1 on br0", func(e links.Event) bool {
		return named(links.Changed, "pod1")(e) && e.Interface.Master == "br0"
	})
	must(t, netlink.LinkSetNoMaster(veth))
	left := wait("pod1 off br0", func(e links.Event) bool {
		return e.Kind == links.Removed || named(links.Changed, "pod1")(e) && e.Interface.Master == ""
	})
	if left.Kind == links.Removed {
		t.Error("the interface was removed when it left a bridge")
	}
}

func TestReusedIfindexIsAnotherInterface(t *testing.T) {
	_, wait := watch(t, links.Options{})
	pod := ownnetns.NewPod(t)
	veth := addVethAt(t, pod, "pod1", 4242, "10.1.1.1/24")
	first := wait("the first", named(links.Added, "pod1")).Interface
	must(t, netlink.LinkDel(veth))
	pod2 := ownnetns.NewPod(t)
	addVethAt(t, pod2, "pod1", 4242, "10.1.1.2/24")
	second := wait("the second", named(links.Added, "pod1")).Interface
	if first.Index != second.Index || first.Generation == second.Generation {
		t.Errorf("index and generation %d/%d, then %d/%d: want one index, two generations",
			first.Index, first.Generation, second.Index, second.Generation)
	}
	if first.View.Cookie == second.View.Cookie {
		t.Error("two pods have one cookie")
	}
}

func TestUnseenNetns(t *testing.T) {
	_, wait := watch(t, links.Options{})
	addHidden(t, hiddenNetns(t), "hidden", 0, 0)
	added := wait("hidden attached", attached("hidden")).Interface
	if added.Seen {
		t.Errorf("added as %+v, want unseen", added)
	}
}

func TestShadowedByALaterProgram(t *testing.T) {
	_, wait := watch(t, links.Options{Resync: 200 * time.Millisecond})
	pod := ownnetns.NewPod(t)
	veth := addVeth(t, pod, "pod1", "10.1.1.1/24")
	wait("pod1 attached", attached("pod1"))
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.SchedCLS, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, -1), asm.Return()},
	})
	must(t, err)
	defer program.Close()
	other, err := link.AttachTCX(link.TCXOptions{
		Interface: veth.Index, Program: program, Attach: ebpf.AttachTCXIngress, Anchor: link.Head(),
	})
	must(t, err)
	wait("pod1 shadowed", func(e links.Event) bool {
		return named(links.Changed, "pod1")(e) && e.Interface.State == links.Shadowed
	})
	must(t, other.Close())
	wait("pod1 attached again", func(e links.Event) bool {
		return named(links.Changed, "pod1")(e) && e.Interface.State == links.Attached
	})
}

func TestOverrunMeansResync(t *testing.T) {
	w, wait := watch(t, links.Options{LinkBuffer: 4096})
	wait("host addresses", func(e links.Event) bool { return e.Kind == links.HostAddresses })
	pod := ownnetns.NewPod(t)
	var veths []netlink.Link
	add := func(count int) {
		for range count {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = fmt.Sprintf("many%d", len(veths))
			peer := fmt.Sprintf("peer%d", len(veths))
			veth := &netlink.Veth{LinkAttrs: attrs, PeerName: peer, PeerNamespace: netlink.NsPid(pod.Pid)}
			must(t, netlink.LinkAdd(veth))
			veths = append(veths, veth)
		}
	}
	// Without a reader of events the watcher stops when their channel is full. Then the library's
	// channel and the kernel's buffer overflow.
	add(cap(w.Events()) + 10)
	for deadline := time.Now().Add(eventTimeout); len(w.Events()) < cap(w.Events()); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the events were not written")
		}
	}
	add(400)
	const gone = 40
	deleted := map[string]bool{}
	for _, veth := range veths[:gone] {
		must(t, netlink.LinkDel(veth))
		deleted[veth.Attrs().Name] = true
	}
	present := map[string]bool{}
	wait("exactly those that are left", func(e links.Event) bool {
		switch e.Kind {
		case links.Added:
			present[e.Interface.Name] = true
		case links.Removed:
			delete(present, e.Interface.Name)
		}
		if len(present) != len(veths)-gone || w.Overruns() == 0 {
			return false
		}
		for name := range present {
			if deleted[name] {
				return false
			}
		}
		return true
	})
}

func TestNothingStaysAttached(t *testing.T) {
	pod := ownnetns.NewPod(t)
	veth := addVeth(t, pod, "pod1", "10.1.1.1/24")
	var log bytes.Buffer
	t.Run("watched", func(t *testing.T) {
		_, wait := watch(t, links.Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
		wait("pod1 attached", attached("pod1"))
	})
	for _, word := range []string{"attached", "detached"} {
		if line := fmt.Sprintf("level=DEBUG msg=%s interface=pod1 ifindex=%d generation=", word, veth.Index); strings.Count(log.String(), line) != 1 {
			t.Errorf("no line %q in\n%s", line, &log)
		}
	}
	result, err := link.QueryPrograms(link.QueryOptions{Target: veth.Index, Attach: ebpf.AttachTCXIngress})
	must(t, err)
	if len(result.Programs) != 0 {
		t.Errorf("%d programs stay on the interface", len(result.Programs))
	}
}
