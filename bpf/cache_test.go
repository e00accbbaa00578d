package bpf

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// slot is a slot of the cache with the address of an interface.
type slot struct {
	ifindex, epoch uint32
	until          time.Duration
}

// slots returns those of one set that are valid now, by CPU.
func slots(t *testing.T, o *Observer, set int) (all [][]slot) {
	t.Helper()
	var raw [][2][72]byte // struct cache_set
	if err := o.collection.Maps["cache"].Lookup(uint32(set), &raw); err != nil {
		t.Fatal(err)
	}
	for _, cpu := range raw {
		var valid []slot
		for _, b := range cpu {
			s := slot{
				ifindex: binary.LittleEndian.Uint32(b[40:]), epoch: binary.LittleEndian.Uint32(b[44:]),
				until: time.Duration(binary.LittleEndian.Uint64(b[48:])),
			}
			if s.epoch == o.epoch && s.until > 0 {
				valid = append(valid, s)
			}
		}
		all = append(all, valid)
	}
	return all
}

// cacheSets is CACHE_SETS of include/cache.h. An interface has one for each family.
const cacheSets = 1024

// uncounted is how many refused packets of one family may not be counted yet.
func uncounted(kind Kind) uint64 {
	if kind != Data {
		return 0
	}
	return 63 * uint64(runtime.NumCPU())
}

// TestLateSlot: a slot that is filled long after the record was sent ends with the record's refresh time.
func TestLateSlot(t *testing.T) {
	moveTo(t, ownThread(t)[0])
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	until := func() time.Duration {
		t.Helper()
		if err := o.nextEpoch(); err != nil {
			t.Fatal(err)
		}
		run(t, o, loopback, ipv4Frame("10.0.0.1"))
		for _, cpu := range slots(t, o, loopback*2) {
			for _, s := range cpu {
				return s.until
			}
		}
		t.Fatal("no CPU has a slot of this epoch")
		return 0
	}
	enter(t, o, loopback, 1)
	first, recorded := until(), monotonic(t)
	poll(t, func() bool { return monotonic(t) > recorded+50*time.Millisecond })
	if late := until(); late != first {
		t.Errorf("good until %v, want %v as from the start", late, first)
	}
}

// TestSharedSet: of three interfaces with one set of the cache two have a slot, which the third one does
// not take, and all are limited alike.
func TestSharedSet(t *testing.T) {
	isolate(t)
	moveTo(t, ownThread(t)[0])
	const first, distance = 1000, cacheSets / 2
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	for i := range 3 {
		link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: string(rune('a' + i)), Index: first + i*distance}, PeerName: string(rune('x' + i))}
		if err := netlink.LinkAdd(link); err != nil {
			t.Fatal(err)
		}
		enter(t, o, first+i*distance, 1)
	}
	for range 3 {
		for i := range 3 {
			run(t, o, first+i*distance, ipv4Frame("10.0.0.1"))
		}
	}
	got := records(t, o)
	if len(got) != 3 || got[0].Ifindex != first || got[1].Ifindex != first+distance || got[2].Ifindex != first+2*distance {
		t.Errorf("recorded %+v, want one of each interface", got)
	}
	found := 0
	for _, cpu := range slots(t, o, first*2%cacheSets) {
		for i, s := range cpu {
			if found++; s.ifindex != uint32(first+i*distance) {
				t.Errorf("slot %d is that of interface %d", i, s.ifindex)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d slots are in use, want those of the first two", found)
	}

	// The place of an interface that is gone is free.
	if err := o.removeEntry(first); err != nil {
		t.Fatal(err)
	}
	run(t, o, first+2*distance, ipv4Frame("10.0.0.1"))
	run(t, o, first+distance, ipv4Frame("10.0.0.1"))
	wantRecords(t, o, "after one is gone")
	for _, cpu := range slots(t, o, first*2%cacheSets) {
		if len(cpu) > 0 && (len(cpu) != 2 || cpu[0].ifindex != first+2*distance) {
			t.Errorf("the slots are %+v, want those of the last two", cpu)
		}
	}
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
