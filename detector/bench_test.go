package detector

import (
	"testing"
	"time"
)

func filled(n int) (*Detector, []Sighting, time.Time) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := New(Options{Node: "n1"})
	list := make([]Sighting, n)
	for i := range list {
		list[i] = Sighting{
			Key: Key{"default", ipv4(i)},
			Holder: Holder{
				ID: HolderID{Node: "n1", Netns: uint64(i + 1)}, Interface: Interface{uint32(i + 1), 1},
				InterfaceName: "veth", MAC: MAC{2, 0, 0, 0, 0, 1}, NetnsName: "cni",
			},
			Evidence: Data, At: now,
		}
		d.Observe(list[i], now)
	}
	return d, list, now
}

// Nearly all sightings are of a known binding.
func BenchmarkObserveKnown(b *testing.B) {
	d, list, now := filled(10_000)
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		now = now.Add(time.Microsecond)
		list[i].At = now
		d.Observe(list[i], now)
		i = (i + 1) % len(list)
	}
}

func BenchmarkObserveNew(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		filled(1000)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/binding")
}

// Ten thousand silent bindings are due, and no probe is answered.
func BenchmarkTick10000(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		d, _, now := filled(10_000)
		b.StartTimer()
		d.Tick(now.Add(bindingTTL / 2 * 11 / 10))
		d.Tick(now.Add(bindingTTL))
	}
}

// Nothing is due.
func BenchmarkTickIdle(b *testing.B) {
	d, _, now := filled(10_000)
	b.ReportAllocs()
	for b.Loop() {
		d.Tick(now)
	}
}

// The busiest path must not allocate.
func TestObserveKnownDoesNotAllocate(t *testing.T) {
	d, list, now := filled(10)
	n := testing.AllocsPerRun(1000, func() {
		now = now.Add(time.Microsecond)
		list[3].At = now
		d.Observe(list[3], now)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// BenchmarkConflicts suspects and confirms 250 duplicates at once.
func BenchmarkConflicts(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		d, list, now := filled(250)
		run := func(fx Effects) {
			for len(fx.Probes) > 0 {
				var next Effects
				for _, s := range fx.Probes {
					d.Probed(s, Result{Outcome: Sent}, now)
					out := d.Observe(Sighting{Key: s.Key, Holder: Holder{ID: s.Holder, Interface: s.Interface}, Evidence: Announced, Answer: true, At: now}, now)
					next.Probes = append(next.Probes, out.Probes...)
				}
				fx = next
			}
		}
		for i, s := range list {
			s.Holder.ID.Netns += 100_000
			s.Holder.Interface.Ifindex = uint32(5000 + i)
			run(d.Observe(s, now))
		}
		for range 2 {
			now = now.Add(time.Second)
			run(d.Tick(now))
		}
		if n := d.Counts().Confirmed[SameNode]; n != 250 {
			b.Fatalf("%d confirmed", n)
		}
	}
}
