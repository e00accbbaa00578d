package bpf

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ways are packets with an address, by the kind of their records.
var ways = map[Kind]func(source mac, ip string) []byte{
	Data: func(source mac, ip string) []byte { return frame(source, typeIPv4, ipv4(ip, 0)) },
	Announced: func(source mac, ip string) []byte {
		return frame(source, typeARP, arp(1, source, ip, "10.0.0.9"))
	},
}

// eachWay runs a test for each of the two kinds that are throttled by address.
func eachWay(t *testing.T, test func(t *testing.T, kind Kind, packet func(source mac, ip string) []byte)) {
	for kind, packet := range ways {
		t.Run(kind.String(), func(t *testing.T) { test(t, kind, packet) })
	}
}

// coarse is a clock with the ticks by which an address is due. It lags behind by a tick, and by more
// where a hypervisor takes the CPU away.
func coarse(t *testing.T) time.Duration {
	t.Helper()
	return clock(t, unix.CLOCK_MONOTONIC_COARSE)
}

// untilRecorded sends packets until so many records have come. A record is newer than what the coarse
// clock said when it was made, by lag at most.
func untilRecorded(t *testing.T, o *Observer, want int, packets ...[]byte) (got []Record, lag time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); len(got) < want; {
		if time.Now().After(deadline) {
			t.Fatalf("%d records in a minute, want %d", len(got), want)
		}
		for _, packet := range packets {
			before := coarse(t)
			run(t, o, loopback, packet)
			after := monotonic(t)
			if fresh := records(t, o); len(fresh) > 0 {
				got, lag = append(got, fresh...), max(lag, after-before)
			}
		}
	}
	// Where the machine is busy, two ticks may come at once.
	var tick unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &tick); err != nil {
		t.Fatal(err)
	}
	return got, lag + time.Duration(tick.Nano())
}

// wantGaps checks that no record came sooner after the one before than it may.
func wantGaps(t *testing.T, records []Record, least, lag time.Duration) {
	t.Helper()
	for i, record := range records[1:] {
		if gap := record.Time - records[i].Time; gap < least-lag {
			t.Errorf("recorded again after %v, want %v with a clock that lags by up to %v", gap, least, lag)
		}
	}
}

// TestRefresh: an address is recorded again after the refresh time, not before, even when no token is left
// for new ones.
func TestRefresh(t *testing.T) {
	const refresh = 60 * time.Millisecond
	eachWay(t, func(t *testing.T, _ Kind, packet func(mac, string) []byte) {
		o := load(t, Options{
			Mode:      TC,
			Constants: limits{Refresh: refresh, DataRate: Rate{1, 1}, AnnounceRate: Rate{1, 1}}.constants(),
		})
		enter(t, o, loopback, 1)
		got, lag := untilRecorded(t, o, 4, packet(podMAC, "10.0.0.1"))
		wantGaps(t, got, refresh, lag)
		if got := counters(t, o, loopback); got != (Counters{}) {
			t.Errorf("counted %+v, want nothing", got)
		}
	})
}

// TestRefreshFlood: thousands of known addresses that come due at once are limited, and delay nothing
// that is new.
func TestRefreshFlood(t *testing.T) {
	const all, refresh = 2000, 20 * time.Millisecond
	eachWay(t, func(t *testing.T, kind Kind, packet func(mac, string) []byte) {
		o := load(t, Options{
			Mode:      TC,
			Constants: limits{Refresh: refresh, DataRate: Rate{1, all + 1}, AnnounceRate: Rate{1, all + 1}, RefreshRate: Rate{1, 50}}.constants(),
		})
		enter(t, o, loopback, 1)
		for i := range all {
			run(t, o, loopback, packet(podMAC, source(i)))
		}
		first := records(t, o)
		poll(t, func() bool { return coarse(t) > first[len(first)-1].Time+refresh })
		start := time.Now()
		for i := range all {
			run(t, o, loopback, packet(podMAC, source(i)))
		}
		again := len(records(t, o))
		// On a slow machine some came due in the first round already.
		most := 50 + int(time.Since(start)/time.Second) + 1
		if again == 0 || again > most {
			t.Errorf("%d of %d recorded again at once, want 1 to %d", again, all, most)
		}
		c := counters(t, o, loopback)
		if refused := c.RefusedData + c.RefusedAnnounced; refused == 0 {
			t.Error("no refusal is counted")
		}
		run(t, o, loopback, packet(podMAC, "10.0.0.1"))
		run(t, o, loopback, frame(podMAC, typeARP, arp(2, podMAC, "10.0.0.1", "10.0.0.9")))
		wantRecords(t, o, "new, after the flood", said{Kind: kind, IP: addr("10.0.0.1"), MAC: podMAC},
			said{Kind: Answer, IP: addr("10.0.0.1"), MAC: podMAC})
	})
}

// TestRefreshOfMany: by default 256 addresses that come due at once all get through.
func TestRefreshOfMany(t *testing.T) {
	const all, refresh = 256, 500 * time.Millisecond
	o := load(t, Options{Mode: TC, Constants: limits{Refresh: refresh, DataRate: Rate{10, all}}.constants()})
	enter(t, o, loopback, 1)
	for i := range all {
		run(t, o, loopback, ipv4Frame(source(i)))
	}
	first := records(t, o)
	poll(t, func() bool { return coarse(t) > first[len(first)-1].Time+refresh })
	for i := range all {
		run(t, o, loopback, ipv4Frame(source(i)))
	}
	if got := counters(t, o, loopback); len(records(t, o)) < all || got != (Counters{}) {
		t.Errorf("counted %+v, want all %d recorded again and nothing refused", got, all)
	}
}

// TestChangingMAC: another MAC of a known address is recorded within the limit, and new addresses are
// recorded at once.
func TestChangingMAC(t *testing.T) {
	const change = 60 * time.Millisecond
	eachWay(t, func(t *testing.T, kind Kind, packet func(mac, string) []byte) {
		o := load(t, Options{
			Mode:      TC,
			Constants: limits{Refresh: time.Hour, MACChange: change, DataRate: Rate{1, 2}, AnnounceRate: Rate{1, 2}}.constants(),
		})
		enter(t, o, loopback, 1)
		const ip = "10.0.0.1"
		got, lag := untilRecorded(t, o, 5, packet(podMAC, ip), packet(otherMAC, ip))
		wantGaps(t, got, change, lag)
		for i, record := range got[1:] {
			if record.MAC == got[i].MAC {
				t.Errorf("%x recorded twice in a row", record.MAC)
			}
		}
		run(t, o, loopback, packet(podMAC, "10.0.0.2"))
		wantRecords(t, o, "new", said{Kind: kind, IP: addr("10.0.0.2"), MAC: podMAC})
		if got := counters(t, o, loopback); got != (Counters{}) {
			t.Errorf("counted %+v, want nothing", got)
		}
	})
}

// TestManyMACs: 100,000 MACs of one or of many addresses make few records.
func TestManyMACs(t *testing.T) {
	const macs, addresses = 100_000, 200
	eachWay(t, func(t *testing.T, _ Kind, packet func(mac, string) []byte) {
		o := load(t, Options{
			Mode: TC,
			Constants: limits{
				Refresh: time.Hour, MACChange: time.Millisecond,
				DataRate: Rate{1, addresses}, AnnounceRate: Rate{1, addresses}, RefreshRate: Rate{1, 10},
			}.constants(),
		})
		enter(t, o, loopback, 1)
		start := time.Now()
		recorded := 0
		for i := range macs {
			from := mac{2, 0, byte(i >> 24), byte(i >> 16), byte(i >> 8), byte(i)}
			run(t, o, loopback, packet(from, source(i%addresses)))
			if i%1000 == 0 {
				recorded += len(records(t, o))
			}
		}
		recorded += len(records(t, o))
		if most := addresses + 10 + int(time.Since(start)/time.Second) + 1; recorded < addresses || recorded > most {
			t.Errorf("%d records, want %d to %d", recorded, addresses, most)
		}
		if entries := count(t, o); entries != addresses {
			t.Errorf("%d addresses are remembered, want %d", entries, addresses)
		}
	})
}
