package observe

import (
	"log/slog"
	"testing"
	"time"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Early records are dropped one by one when they are 15 s old, by their own time, and have to be reported again. Those that wait for a scan stay.
func TestRecordsExpire(t *testing.T) {
	forgotten := 0
	w := &Records{
		opts: &Options{
			Log: slog.New(slog.DiscardHandler), Forget: func(bpf.Record) { forgotten++ },
			TimeOf: func(d time.Duration) time.Time { return noon.Add(d) },
		},
		interfaces: interfaces{detector.Interface{Ifindex: 9}: {awaiting: awaiting{records: make([]bpf.Record, 2)}}},
		early:      map[detector.Interface][]bpf.Record{{Ifindex: 2}: {{Time: 0}, {Time: 1}, {Time: time.Second}}, {Ifindex: 3}: {{Time: 2}}},
		dropped:    make(map[string]uint64),
	}
	for _, step := range []struct {
		after               time.Duration
		pending, interfaces int
	}{{earlyFor - 1, 6, 2}, {earlyFor, 5, 2}, {earlyFor + 2, 3, 1}, {earlyFor + time.Second, 2, 0}} {
		w.expire(noon.Add(step.after))
		if gone := 6 - step.pending; w.Pending() != step.pending || len(w.early) != step.interfaces || forgotten != gone || w.Dropped()[droppedGone] != uint64(gone) {
			t.Errorf("after %v: %d wait, early ones of %d interfaces, %d are forgotten, dropped %v; want %d and %d",
				step.after, w.Pending(), len(w.early), forgotten, w.Dropped(), step.pending, step.interfaces)
		}
	}
	if w.Dropped()[droppedGone] = 0; w.Dropped()[droppedGone] != 4 {
		t.Error("who reads the counters changes them")
	}
}
