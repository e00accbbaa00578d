package bpf

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// line is struct line of include/cache.h, and lineSet struct line_set.
type (
	line    struct{ Tag, Until uint64 }
	lineSet [2]line
)

// uncounted is how many refused packets may not be counted yet.
func uncounted(kind Kind) uint64 {
	if kind != Data {
		return 0
	}
	return 63 * uint64(runtime.NumCPU())
}

// readLines returns the sets of the cache that have lines.
func readLines(t *testing.T, o *Observer) map[uint32]lineSet {
	t.Helper()
	found := make(map[uint32]lineSet)
	for index := range o.collection.Maps["lines"].MaxEntries() {
		var set lineSet
		if err := o.collection.Maps["lines"].Lookup(index, &set); err != nil {
			t.Fatal(err)
		}
		if set != (lineSet{}) {
			found[index] = set
		}
	}
	return found
}

func writeLines(t *testing.T, o *Observer, index uint32, set lineSet) {
	t.Helper()
	if err := o.collection.Maps["lines"].Put(index, &set); err != nil {
		t.Fatal(err)
	}
}

// theLines returns the only set that has lines.
func theLines(t *testing.T, o *Observer) (uint32, lineSet) {
	t.Helper()
	found := readLines(t, o)
	if len(found) != 1 {
		t.Fatalf("%d sets have lines, want one: %v", len(found), found)
	}
	for index, set := range found {
		return index, set
	}
	panic("not reached")
}

// oneSet has addresses that differ in the VLAN have their lines in one set.
func oneSet(t *testing.T) {
	random := secrets
	secrets = func() [9]uint64 {
		all := random()
		all[7] = 3
		return all
	}
	t.Cleanup(func() { secrets = random })
}

// TestLateLine: a line that is filled long after the record was sent ends with the record's refresh time.
func TestLateLine(t *testing.T) {
	moveTo(t, ownThread(t)[0])
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	// The lowest 20 bits are those of the epoch.
	until := func(i int) uint64 {
		t.Helper()
		run(t, o, loopback, ipv4Frame("10.0.0.1"))
		_, set := theLines(t, o)
		return set[i].Until >> 20
	}
	enter(t, o, loopback, 1)
	first, recorded := until(0), monotonic(t)
	if again := until(1); again != 0 {
		t.Errorf("a packet of an address that has a line filled another, which is good until %d", again)
	}
	poll(t, func() bool { return monotonic(t) > recorded+50*time.Millisecond })
	if err := o.nextEpoch(); err != nil {
		t.Fatal(err)
	}
	if late := until(0); late != first {
		t.Errorf("good until %d ms, want %d as from the start", late, first)
	}
}

// TestSharedSet: of three mappings with one set of lines two have one, which the third does not take, and none makes a record before it is
// due. Those of an earlier epoch, or which have ended, are replaced.
func TestSharedSet(t *testing.T) {
	oneSet(t)
	moveTo(t, ownThread(t)[0])
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	enter(t, o, loopback, 1)
	frames := make([][]byte, 3)
	for vlan := range frames {
		frames[vlan] = frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 1 + vlan})
	}
	all := func() lineSet {
		t.Helper()
		for range 3 {
			for _, f := range frames {
				run(t, o, loopback, f)
			}
		}
		_, set := theLines(t, o)
		return set
	}
	first := all()
	if got := records(t, o); len(got) != 3 {
		t.Errorf("recorded %+v, want one of each VLAN", got)
	}
	if first[0].Tag == first[1].Tag || first[1] == (line{}) {
		t.Errorf("the lines are %x, want two", first)
	}
	if again := all(); again != first {
		t.Errorf("the lines are %x, want %x as before", again, first)
	}
	if err := o.nextEpoch(); err != nil {
		t.Fatal(err)
	}
	second := all()
	if second[0].Tag == first[0].Tag || second[1].Tag == first[1].Tag {
		t.Errorf("in another epoch the lines are %x, and were %x", second, first)
	}
	index, _ := theLines(t, o)
	ended := second
	ended[1].Until = 1
	writeLines(t, o, index, ended)
	if third := all(); third != second {
		t.Errorf("the lines are %x, want %x, with another for the second, which has ended", third, second)
	}
	wantRecords(t, o, "afterwards")
}

// TestMACBack: an address that goes to another MAC and back is recorded each time, although its first line would be good for long.
func TestMACBack(t *testing.T) {
	moveTo(t, ownThread(t)[0])
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour, MACChange: 20 * time.Millisecond}.constants()})
	enter(t, o, loopback, 1)
	for range 3 {
		for _, mac := range []mac{podMAC, otherMAC} {
			packet := frame(mac, typeIPv4, ipv4("10.0.0.1", 0))
			poll(t, func() bool {
				run(t, o, loopback, packet)
				return len(records(t, o)) == 1
			})
			run(t, o, loopback, packet)
			wantRecords(t, o, "the same MAC again")
		}
	}
}

// TestTornLines: a line whose halves were written by two CPUs is no line of any mapping. One CPU mixes the halves of all lines there are while
// another sends packets of their mappings, which are all unknown: each makes a record.
func TestTornLines(t *testing.T) {
	oneSet(t)
	cpus := ownThread(t)
	moveTo(t, cpus[0])
	o := load(t, Options{Mode: TC, RingBytes: 1 << 22, Constants: limits{Refresh: time.Hour, DataRate: Rate{1e9, 1e9}}.constants()})
	enter(t, o, loopback, 1)
	var frames [][]byte
	var addresses []address
	for vlan := range 16 {
		frames = append(frames, frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 1 + vlan}))
		key := Address{loopback, 1, addr("10.0.0.1"), VLAN{Outer: uint16(1 + vlan)}}
		addresses = append(addresses, key.key())
	}
	// The true lines of each mapping, at several times.
	var index uint32
	lines := make([][]line, len(frames))
	for i, f := range frames {
		for range 4 {
			writeLines(t, o, index, lineSet{})
			if err := o.remove(addresses); err != nil {
				t.Fatal(err)
			}
			began := coarse(t)
			poll(t, func() bool { return coarse(t) > began })
			run(t, o, loopback, f)
			var set lineSet
			index, set = theLines(t, o)
			lines[i] = append(lines[i], set[0])
		}
	}
	records(t, o)

	var all []line
	for _, of := range lines {
		all = append(all, of...)
	}
	tear := func(random *rand.Rand) (torn lineSet) {
		for i := range torn {
			a, b := random.IntN(len(all)), random.IntN(len(all)-1)
			if b >= a {
				b++
			}
			torn[i] = line{all[a].Tag, all[b].Until}
		}
		return torn
	}
	isTorn := func(set lineSet) bool {
		return !slices.Contains(all, set[0]) && !slices.Contains(all, set[1])
	}
	done := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		runtime.LockOSThread() // and it ends with this goroutine
		var last unix.CPUSet
		last.Set(cpus[len(cpus)-1])
		if err := unix.SchedSetaffinity(0, &last); err != nil {
			t.Error(err)
		}
		for random := rand.New(rand.NewPCG(1, 2)); ; {
			select {
			case <-done:
				return
			default:
				if torn := tear(random); isTorn(torn) {
					if err := o.collection.Maps["lines"].Put(index, &torn); err != nil {
						t.Error(err)
						return
					}
				}
			}
		}
	})
	const packets = 20_000
	believed, random := 0, rand.New(rand.NewPCG(3, 4))
	for i := range packets {
		which := i % len(frames)
		for torn := tear(random); ; torn = tear(random) { // in place of what the last packet left
			if isTorn(torn) {
				writeLines(t, o, index, torn)
				break
			}
		}
		if err := o.addresses.Delete(&addresses[which]); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Fatal(err)
		}
		run(t, o, loopback, frames[which])
		if len(records(t, o)) != 1 {
			believed++
		}
	}
	close(done)
	writer.Wait()
	if believed > 0 {
		t.Errorf("%d of %d torn lines were believed", believed, packets)
	}
	// Whole ones are.
	writeLines(t, o, index, lineSet{lines[3][0], lines[5][2]})
	run(t, o, loopback, frames[3])
	run(t, o, loopback, frames[5])
	wantRecords(t, o, "mappings that have a line")
}

// TestTokenAfterFlood: a slot that knows that there is no token learns when there is one again, and what
// was refused meanwhile is counted.
func TestTokenAfterFlood(t *testing.T) {
	const rate, flood = 20, 1000
	moveTo(t, ownThread(t)[0])
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour, DataRate: Rate{rate, 1}}.constants()})
	enter(t, o, loopback, 1)
	run(t, o, loopback, ipv4Frame("10.0.0.1"))
	run(t, o, loopback, ipv4Frame("10.0.0.2"))
	run(t, o, loopback, ipv4Frame("10.0.0.3"))
	first := records(t, o)
	poll(t, func() bool { return coarse(t) > first[len(first)-1].Time+2*time.Second/rate })
	run(t, o, loopback, ipv4Frame("10.0.0.4"))
	wantRecords(t, o, "one packet when there is a token", said{Kind: Data, IP: addr("10.0.0.4"), MAC: podMAC})

	before := counters(t, o, loopback).RefusedData
	start := monotonic(t)
	sent, recorded := uint64(0), uint64(0)
	for recorded < 5 || sent < flood {
		run(t, o, loopback, ipv4Frame(source(int(sent))))
		sent++
		recorded += uint64(len(records(t, o)))
		if monotonic(t) > start+10*time.Second {
			t.Fatalf("%d of %d recorded in 10 s, want %d a second", recorded, sent, rate)
		}
	}
	if most := uint64((monotonic(t)-start)*rate/time.Second) + 1; recorded > most {
		t.Errorf("%d recorded, want at most %d", recorded, most)
	}
	c := counters(t, o, loopback)
	if want := before + sent - recorded; c.RefusedData > want || c.RefusedData+63 < want {
		t.Errorf("%d refused, want %d and at most 63 less", c.RefusedData, want)
	}
	run(t, o, loopback, ipv4Frame("10.0.0.1"))
	wantRecords(t, o, "the known address")
}

// TestOneSlot: of two interfaces with one slot, a flood at one takes nothing from the other, and all that is refused is counted. With another
// generation an interface begins anew.
func TestOneSlot(t *testing.T) {
	isolate(t)
	moveTo(t, ownThread(t)[0])
	const one, other = 1000, 1000 + 1024
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour, DataRate: Rate{1, 10}}.constants()})
	for i, index := range []int{one, other} {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: string(rune('a' + i)), Index: index}, PeerName: string(rune('x' + i))}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		enter(t, o, index, 1)
	}
	began := monotonic(t)
	next, recorded := 0, 0
	unknown := func(index, n int) {
		for range n {
			run(t, o, index, ipv4Frame(source(next)))
			next++
		}
	}
	// most is how many tokens an interface can have had.
	most := func() int { return 10 + int((monotonic(t)-began)/time.Second) + 1 }
	unknown(one, 100)
	recorded = len(records(t, o))
	unknown(other, 5)
	if got := len(records(t, o)); got != 5 {
		t.Errorf("%d of 5 addresses of the other interface were recorded", got)
	}
	sent := 100
	for range 300 {
		unknown(one, 2)
		unknown(other, 1)
		sent += 2
	}
	if c := counters(t, o, one); c.RefusedData+63 < uint64(sent-most()) || c.RefusedData > uint64(sent-recorded) {
		t.Errorf("%d of %d are refused, want all but %d, and 63 less at most", c.RefusedData, sent, most())
	}
	records(t, o)
	enter(t, o, one, 2)
	unknown(one, 5)
	if got := len(records(t, o)); got != 5 {
		t.Errorf("%d of 5 addresses of the next interface were recorded", got)
	}
}

// TestEachPart: two addresses that differ in any part of 32 bits are two, also in the cache.
func TestEachPart(t *testing.T) {
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	enter(t, o, loopback, 1)
	addresses := []string{"2001:db8:1:1:1:1:1:1", "2001:db9:1:1:1:1:1:1", "2001:db8:1:2:1:1:1:1", "2001:db8:1:1:1:2:1:1", "2001:db8:1:1:1:1:1:2", "2001:db8:1:1:1:1:2:1"}
	for range 2 {
		for _, ip := range addresses {
			run(t, o, loopback, ipv6Frame(ip))
		}
	}
	if got := records(t, o); len(got) != len(addresses) {
		t.Errorf("%d addresses were recorded, want %d", len(got), len(addresses))
	}
}
