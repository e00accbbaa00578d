package bpf

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// source is the n-th of many addresses.
func source(n int) string {
	var ip [4]byte
	binary.BigEndian.PutUint32(ip[:], 0x0a400000+uint32(n))
	return netip.AddrFrom4(ip).String()
}

func wantRecords(t *testing.T, o *Observer, step string, want ...said) {
	t.Helper()
	if diff := diff(want, summary(records(t, o))); diff != "" {
		t.Errorf("%s (-want +got)\n%s", step, diff)
	}
}

func counters(t *testing.T, o *Observer, ifindex int) Counters {
	t.Helper()
	c, err := o.Counters(ifindex)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// ownThread keeps the calling test on one thread, until it ends, and returns the CPUs there are for it.
func ownThread(t *testing.T) (cpus []int) {
	t.Helper()
	runtime.LockOSThread()
	var all unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.SchedSetaffinity(0, &all); err != nil {
			t.Error(err)
			return // the thread stays locked and ends with the test
		}
		runtime.UnlockOSThread()
	})
	for cpu := range 1024 {
		if all.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus
}

func moveTo(t *testing.T, cpu int) {
	t.Helper()
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(0, &one); err != nil {
		t.Fatal(err)
	}
}

// TestOncePerAddress: known addresses are not recorded again, new ones at once.
func TestOncePerAddress(t *testing.T) {
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	enter(t, o, loopback, 1)
	a, b := ipv4Frame("10.0.0.1"), ipv4Frame("10.0.0.2")
	request := frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.9"))
	reply := frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9"))
	probe := frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", "10.0.0.1"))

	run(t, o, loopback, a)
	wantRecords(t, o, "new", said{Kind: Data, IP: addr("10.0.0.1"), MAC: podMAC})
	for range 10 {
		run(t, o, loopback, a)
	}
	wantRecords(t, o, "known")
	for range 10 {
		run(t, o, loopback, b)
		run(t, o, loopback, a)
	}
	wantRecords(t, o, "two in turns", said{Kind: Data, IP: addr("10.0.0.2"), MAC: podMAC})
	run(t, o, loopback, frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 7}))
	wantRecords(t, o, "another VLAN", said{Data, addr("10.0.0.1"), podMAC, VLAN{Outer: 7}})
	run(t, o, loopback, ipv6Frame("a00:1::"))
	wantRecords(t, o, "same bytes in IPv6", said{Kind: Data, IP: addr("a00:1::"), MAC: podMAC})

	run(t, o, loopback, request)
	run(t, o, loopback, request)
	wantRecords(t, o, "announced", said{Kind: Announced, IP: addr("10.0.0.1"), MAC: podMAC})
	run(t, o, loopback, a)
	wantRecords(t, o, "data after announced")
	answer := said{Kind: Answer, IP: addr("10.0.0.1"), MAC: podMAC}
	run(t, o, loopback, reply)
	run(t, o, loopback, reply)
	wantRecords(t, o, "answers", answer, answer)
	for _, gratuitous := range [][]byte{
		frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.1")),
		frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.1")),
	} {
		claim := said{Kind: Gratuitous, IP: addr("10.0.0.1"), MAC: podMAC}
		run(t, o, loopback, gratuitous)
		run(t, o, loopback, gratuitous)
		wantRecords(t, o, "gratuitous, after announced and answered", claim, claim)
	}
	tentative := said{Kind: Tentative, IP: addr("10.0.0.1"), MAC: podMAC}
	run(t, o, loopback, probe)
	run(t, o, loopback, probe)
	wantRecords(t, o, "tentative", tentative, tentative)
	run(t, o, loopback, a)
	wantRecords(t, o, "data after all")
	if got := counters(t, o, loopback); got != (Counters{}) {
		t.Errorf("counted %+v, want nothing", got)
	}
}

// TestOnceOnAllCPUs: the CPUs have separate caches and share a table.
func TestOnceOnAllCPUs(t *testing.T) {
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	enter(t, o, loopback, 1)
	for _, cpu := range ownThread(t) {
		moveTo(t, cpu)
		run(t, o, loopback, ipv4Frame("10.0.0.1"))
		run(t, o, loopback, ipv4Frame("10.0.0.1"))
	}
	wantRecords(t, o, "on all CPUs", said{Kind: Data, IP: addr("10.0.0.1"), MAC: podMAC})
}

// TestBuckets: a flood of addresses at one interface is limited, counted, and does not affect others.
func TestBuckets(t *testing.T) {
	isolate(t)
	sprayer, neighbour := addVeth(t, "spray0"), addVeth(t, "quiet0")
	o := load(t, Options{
		Mode:      TC,
		Constants: limits{Refresh: time.Hour, DataRate: Rate{1, 5}, AnnounceRate: Rate{1, 7}, AnswerRate: Rate{1, 9}}.constants(),
	})
	enter(t, o, sprayer, 1)
	enter(t, o, neighbour, 2)
	run(t, o, neighbour, ipv4Frame("10.0.0.1"))
	wantRecords(t, o, "neighbour before", said{Kind: Data, IP: addr("10.0.0.1"), MAC: podMAC})

	const sprayed = 200
	start := time.Now()
	// within checks that a bucket gave its burst and the tokens since, and that the rest was counted.
	within := func(kind Kind, burst int, refused func(Counters) uint64) {
		t.Helper()
		got := 0
		for _, record := range records(t, o) {
			if record.Kind != kind || record.Ifindex != uint32(sprayer) {
				t.Errorf("recorded %+v", record)
			}
			got++
		}
		if grown := int(time.Since(start)/time.Second) + 1; got < burst || got > burst+grown {
			t.Errorf("%d %v records of %d, want %d", got, kind, sprayed, burst)
		}
		counted := refused(counters(t, o, sprayer))
		if want := uint64(sprayed - got); counted > want || counted+uncounted(kind) < want {
			t.Errorf("%d %v refused, want %d", counted, kind, want)
		}
	}
	for i := range sprayed {
		run(t, o, sprayer, ipv4Frame(source(i)))
		run(t, o, sprayer, ipv4Frame("169.254.0.1")) // is not refused, because it does not count
	}
	within(Data, 5, func(c Counters) uint64 { return c.RefusedData })
	for i := range sprayed {
		run(t, o, sprayer, frame(podMAC, typeARP, arp(1, podMAC, source(i), "10.0.0.9")))
	}
	within(Announced, 7, func(c Counters) uint64 { return c.RefusedAnnounced })
	for i := range sprayed {
		run(t, o, sprayer, frame(podMAC, typeARP, arp(2, podMAC, source(i), "10.0.0.9")))
	}
	within(Answer, 9, func(c Counters) uint64 { return c.RefusedAnswers })
	announced := counters(t, o, sprayer).RefusedAnnounced
	for range sprayed {
		run(t, o, sprayer, frame(podMAC, typeARP, arp(1, podMAC, source(0), source(0))))
	}
	within(Gratuitous, 7, func(c Counters) uint64 { return c.RefusedAnnounced - announced })

	// The first address is still known, a refused one was not stored.
	run(t, o, sprayer, ipv4Frame(source(0)))
	wantRecords(t, o, "sprayed and recorded")
	if entries := count(t, o); entries > 1+5+7+6 {
		t.Errorf("%d addresses are remembered, though most were refused", entries)
	}

	run(t, o, neighbour, ipv4Frame("10.0.0.1"))
	wantRecords(t, o, "neighbour known")
	run(t, o, neighbour, ipv4Frame("10.0.0.2"))
	run(t, o, neighbour, frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.2", "10.0.0.9")))
	run(t, o, neighbour, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.2", "10.0.0.9")))
	wantRecords(t, o, "neighbour new",
		said{Kind: Data, IP: addr("10.0.0.2"), MAC: podMAC},
		said{Kind: Announced, IP: addr("10.0.0.2"), MAC: podMAC},
		said{Kind: Answer, IP: addr("10.0.0.2"), MAC: podMAC})
	if got := counters(t, o, neighbour); got != (Counters{}) {
		t.Errorf("counted %+v at the neighbour, want nothing", got)
	}
}

// TestBucketsAreApart: a flood of one kind does not take tokens of the others at the same interface.
func TestBucketsAreApart(t *testing.T) {
	o := load(t, Options{
		Mode:      TC,
		Constants: limits{Refresh: time.Hour, DataRate: Rate{1, 1}, AnnounceRate: Rate{1, 1}, AnswerRate: Rate{1, 1}}.constants(),
	})
	enter(t, o, loopback, 1)
	for i := range 50 {
		run(t, o, loopback, ipv4Frame(source(i)))
	}
	records(t, o)
	run(t, o, loopback, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")))
	run(t, o, loopback, frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.9")))
	wantRecords(t, o, "after a spray of sources",
		said{Kind: Answer, IP: addr("10.0.0.1"), MAC: podMAC},
		said{Kind: Announced, IP: addr("10.0.0.1"), MAC: podMAC})

	// Gratuitous ones have a bucket of their own: others make a pod send advertisements that are not
	// solicited, by checking whether its address is free.
	advertised := frame(podMAC, typeIPv6, ipv6("fe80::1", icmpv6, 255, neighbour(advertisement, 0, "2001:db8::1")))
	enter(t, o, loopback, 2)
	for range 50 {
		run(t, o, loopback, advertised)
	}
	records(t, o)
	run(t, o, loopback, frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.2", "10.0.0.9")))
	run(t, o, loopback, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.2", "10.0.0.9")))
	wantRecords(t, o, "after a flood of advertisements",
		said{Kind: Announced, IP: addr("10.0.0.2"), MAC: podMAC},
		said{Kind: Answer, IP: addr("10.0.0.2"), MAC: podMAC})

	// Tentative addresses share the bucket of the announced ones.
	before, start := counters(t, o, loopback).RefusedAnnounced, time.Now()
	run(t, o, loopback, frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", "10.0.0.3")))
	if refused := counters(t, o, loopback).RefusedAnnounced - before; refused != 1 && time.Since(start) < time.Second {
		t.Errorf("%d announced refused, want 1", refused)
	}
}

// TestRingFull: a record without room is counted, and the next packet makes it again.
func TestRingFull(t *testing.T) {
	const all = 500
	rate := Rate{PerSecond: 1e6, Burst: 1e6}
	o := load(t, Options{
		Mode: TC, RingBytes: 1,
		Constants: limits{Refresh: time.Hour, DataRate: rate, AnnounceRate: rate, AnswerRate: rate}.constants(),
	})
	enter(t, o, loopback, 1)
	for name, packet := range map[string]func(ip string) []byte{
		"data":      ipv4Frame,
		"announced": func(ip string) []byte { return frame(podMAC, typeARP, arp(1, podMAC, ip, "10.0.0.9")) },
		"answer":    func(ip string) []byte { return frame(podMAC, typeARP, arp(2, podMAC, ip, "10.0.0.9")) },
		"tentative": func(ip string) []byte { return frame(podMAC, typeARP, arp(1, podMAC, "0.0.0.0", ip)) },
	} {
		before := counters(t, o, loopback).RingFull
		for i := range all {
			run(t, o, loopback, packet(source(i)))
		}
		seen := make(map[netip.Addr]int)
		for _, record := range records(t, o) {
			seen[record.IP]++
		}
		lost := counters(t, o, loopback).RingFull - before
		if len(seen) == 0 || lost == 0 || uint64(len(seen))+lost != all {
			t.Errorf("%s: %d recorded and %d lost of %d", name, len(seen), lost, all)
		}
		for i := range all {
			run(t, o, loopback, packet(source(i)))
			for _, record := range records(t, o) {
				seen[record.IP]++
			}
		}
		if len(seen) != all {
			t.Errorf("%s: %d of %d addresses recorded in the end", name, len(seen), all)
		}
		for ip, times := range seen {
			if times != 1 && (name == "data" || name == "announced") {
				t.Errorf("%s: %v recorded %d times", name, ip, times)
			}
		}
	}
}

// TestReusedIfindex: stored addresses do not apply to the next interface with the same ifindex.
func TestReusedIfindex(t *testing.T) {
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	// The second address finds the interface in its slot; the third is announced.
	all := func() {
		for _, packet := range [][]byte{ipv4Frame("10.0.0.1"), ipv4Frame("10.0.0.2"), frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.3", "10.0.0.9"))} {
			run(t, o, loopback, packet)
			run(t, o, loopback, packet)
		}
	}
	for generation := range uint32(3) {
		enter(t, o, loopback, generation)
		all()
		got := records(t, o)
		if len(got) != 3 || slices.ContainsFunc(got, func(r Record) bool { return r.Generation != generation }) {
			t.Errorf("generation %d: recorded %+v, want three", generation, got)
		}
		if err := o.removeEntry(loopback); err != nil {
			t.Fatal(err)
		}
		all()
		wantRecords(t, o, "forgotten")
	}
	enter(t, o, loopback, 2)
	all()
	wantRecords(t, o, "the same generation again is the same interface")
}

// addVeth makes a pair of veths and returns the ifindex of one.
func addVeth(t *testing.T, name string) int {
	t.Helper()
	if err := netlink.LinkAdd(&netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p",
	}); err != nil {
		t.Fatal(err)
	}
	return up(t, name).Attrs().Index
}

// count returns how many addresses are remembered.
func count(t *testing.T, o *Observer) int {
	t.Helper()
	entries := o.collection.Maps["addresses"].Iterate()
	var key address
	var value known
	n := 0
	for entries.Next(&key, &value) {
		n++
	}
	if err := entries.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}
