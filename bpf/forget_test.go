package bpf

import (
	"errors"
	"os"
	"sync"
	"testing"
	"time"
)

// TestForget: the next packet of a forgotten address makes a record, on each CPU; others stay known.
func TestForget(t *testing.T) {
	cpus := ownThread(t)
	isolate(t)
	other := addVeth(t, "other0")
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: time.Hour}.constants()})
	enter(t, o, loopback, 7)
	enter(t, o, other, 8)
	request := frame(podMAC, typeARP, arp(1, podMAC, "10.0.0.1", "10.0.0.9"))
	tagged := frame(podMAC, typeIPv4, ipv4("10.0.0.1", 0), [2]int{typeVLAN, 7})
	all := func() {
		t.Helper()
		for _, cpu := range cpus {
			moveTo(t, cpu)
			for range 2 { // the second one finds the slot
				for _, packet := range [][]byte{ipv4Frame("10.0.0.1"), ipv6Frame("2001:db8::1"), request, ipv4Frame("10.0.0.2"), tagged} {
					run(t, o, loopback, packet)
				}
				run(t, o, other, ipv4Frame("10.0.0.1"))
			}
		}
	}
	seen := func(kind Kind, ip string) said { return said{Kind: kind, IP: addr(ip), MAC: podMAC} }
	all()
	wantRecords(t, o, "new", seen(Data, "10.0.0.1"), seen(Data, "2001:db8::1"), seen(Announced, "10.0.0.1"), seen(Data, "10.0.0.2"),
		said{Data, addr("10.0.0.1"), podMAC, VLAN{Outer: 7}}, seen(Data, "10.0.0.1"))
	all()
	wantRecords(t, o, "known")

	epoch := o.epoch
	forget := func(addresses ...Address) {
		t.Helper()
		if err := o.Forget(addresses); err != nil {
			t.Fatal(err)
		}
	}
	forget(Address{loopback, 7, addr("10.0.0.1"), VLAN{}}, Address{loopback, 7, addr("2001:db8::1"), VLAN{}},
		Address{loopback, 7, addr("10.9.9.9"), VLAN{}})
	if o.epoch == epoch {
		t.Error("the epoch is as before")
	}
	all()
	wantRecords(t, o, "forgotten", seen(Data, "10.0.0.1"), seen(Data, "2001:db8::1"), seen(Announced, "10.0.0.1"))
	forget(Address{loopback, 7, addr("10.0.0.1"), VLAN{Outer: 7}})
	all()
	wantRecords(t, o, "a VLAN", said{Data, addr("10.0.0.1"), podMAC, VLAN{Outer: 7}})
	forget(Address{uint32(other), 8, addr("10.0.0.1"), VLAN{}})
	all()
	wantRecords(t, o, "the other interface", seen(Data, "10.0.0.1"))
	forget(Address{uint32(other), 6, addr("10.0.0.1"), VLAN{}})
	all()
	wantRecords(t, o, "of an earlier generation", seen(Data, "10.0.0.1"))

	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if err := o.Forget(nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestForgetMeanwhile: forgetting does not disturb an attachment, and ends with Close.
func TestForgetMeanwhile(t *testing.T) {
	eachMode(t, func(t *testing.T, o *Observer) {
		p := newPod(t, "host0")
		var forgetting sync.WaitGroup
		forgetting.Go(func() {
			for {
				if err := o.Forget([]Address{{uint32(p.ifindex), 9, addr("10.0.0.7"), VLAN{}}}); errors.Is(err, os.ErrClosed) {
					return
				} else if err != nil {
					t.Error(err)
					return
				}
			}
		})
		for generation := range uint32(5) {
			attachment := attach(t, o, p.ifindex, generation)
			p.send(t, ipv4Frame("10.0.0.7"))
			waitFor(t, o, data("10.0.0.7")...)
			if err := attachment.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := o.Close(); err != nil {
			t.Error(err)
		}
		forgetting.Wait()
	})
}

// BenchmarkForgetTable measures how long it takes to forget a full table of addresses, and one that is empty.
func BenchmarkForgetTable(b *testing.B) {
	o := load(b, Options{Mode: TC})
	addresses := make([]Address, o.addresses.MaxEntries())
	for i := range addresses {
		addresses[i] = Address{loopback, 1, addr(source(i)), VLAN{}}
	}
	for name, full := range map[string]bool{"full": true, "empty": false} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				b.StopTimer()
				for i := range addresses {
					key := addresses[i].key()
					if !full {
						break
					}
					if err := o.addresses.Put(&key, &known{}); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				if err := o.Forget(addresses); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(addresses)), "ns/address")
		})
	}
}
