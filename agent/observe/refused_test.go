package observe

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// newRefusals returns refusals with one interface, which may write so many lines, and what its counter says, negative while nothing is attached.
func newRefusals(lines int) (f *Refusals, i *Interface, reading *int, log *bytes.Buffer) {
	reading, log, i = new(int), new(bytes.Buffer), &Interface{Interface: link("veth0", "", "eth0", 2, 7)}
	return &Refusals{
		opts: &Options{Log: slog.New(slog.NewTextHandler(log, nil)), Counters: func(int) (bpf.Counters, error) {
			if *reading < 0 {
				return bpf.Counters{}, errors.New("nothing is attached")
			}
			return bpf.Counters{RefusedData: uint64(*reading)}, nil
		}},
		interfaces: interfaces{detector.Interface{Ifindex: 2}: i}, lines: rate.NewLimiter(0, lines), next: noon,
	}, i, reading, log
}

// A pod with a thousand refused packets since the last sample gets a line, no other one within ten minutes, and none if there are too many lines.
func TestFloodIsLogged(t *testing.T) {
	f, _, reading, log := newRefusals(2)
	for _, step := range []struct {
		name    string
		after   time.Duration
		reading int
		due     bool
		logged  string // the packets lately
	}{
		{"too early", -1, floodAfter, false, ""},
		{"few", 0, floodAfter - 1, true, ""},
		{"again so soon", sampleEvery - 1, 1 << 20, false, ""},
		{"few more", sampleEvery, 2*floodAfter - 2, true, ""},
		{"many", 2 * sampleEvery, 3*floodAfter - 2, true, "packetsLately=1000"},
		{"many within the pause", sampleEvery + floodPause, 5 * floodAfter, true, ""},
		{"many after the pause", 2*sampleEvery + floodPause, 7 * floodAfter, true, "packetsLately=2000"},
		{"too many lines", 4*sampleEvery + 2*floodPause, 9 * floodAfter, true, ""},
	} {
		*reading = step.reading
		due := f.due(noon.Add(step.after))
		if got := log.String(); due != step.due || (got != "") != (step.logged != "") || !strings.Contains(got, step.logged) {
			t.Errorf("%s: due is %t, logged %q", step.name, due, got)
		}
		log.Reset()
	}
}

// The total never decreases: a reading that fails changes nothing, one that is smaller begins anew, and an interface that goes leaves its own.
func TestRefusedTotal(t *testing.T) {
	f, i, reading, log := newRefusals(1)
	for _, step := range []struct {
		reading int
		want    uint64
	}{{5, 5}, {-1, 5}, {7, 7}, {3, 10}, {0, 10}, {2, 12}} {
		*reading = step.reading
		if got := f.Of(i).RefusedData; got != step.want || f.Total().RefusedData != step.want {
			t.Errorf("after reading %d: %d refused, in all %+v; want %d", step.reading, got, f.Total(), step.want)
		}
	}
	clear(f.interfaces)
	f.forget(i, bpf.Counters{}, noon) // there is no last reading
	f.forget(&Interface{Interface: i.Interface}, bpf.Counters{RefusedAnnounced: 400, RefusedAnswers: 300, RingFull: 300}, noon)
	if got := f.Total(); got != (bpf.Counters{RefusedData: 12, RefusedAnnounced: 400, RefusedAnswers: 300, RingFull: 300}) {
		t.Errorf("after both are gone: %+v", got)
	}
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "packetsLately=1000") {
		t.Errorf("logged %q, want one line about the second", got)
	}
}
