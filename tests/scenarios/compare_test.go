package scenarios

import (
	"context"
	"flag"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/othertools"
)

var compared = flag.Bool("compare", false, "other detectors watch the same packets; a table compares them")

const (
	// comparedAtOnce is how many rows play at the same time then: each has a tshark per
	// node.
	comparedAtOnce = "3"
	// grace is how long a duplicate lasts after the agents have found it, with its holders sending,
	// for detectors that have not found it yet. They find it within three seconds or not at all.
	grace = 4 * time.Second
)

// evaluation has the other detectors that watch a scenario's packets, and what is true. A nil
// evaluation watches nothing.
type evaluation struct {
	stage *Stage
	tools []othertools.Tool
	// networks are those that the agents are configured with.
	networks *config.Config

	mu         sync.Mutex
	duplicates []*duplicate
	// nested are the pods inside pods.
	nested []*lab.Pod
}

// duplicate is something that is to be found: one pod, and what it has in common with
// another holder. An alarm about any of the addresses is enough.
type duplicate struct {
	finding
	ips []netip.Addr
	// From sendingSince to until, its holders sent for the other detectors' sake. From its start to sendingSince,
	// the scenario was paused for this long, for other duplicates.
	sendingSince, until time.Time
	heldUp              time.Duration
}

// compare starts the other detectors on all nodes of a scenario, before it begins.
func (s *Stage) compare() {
	s.Helper()
	if !*compared {
		return
	}
	networks := new(config.Config)
	if i := slices.Index(s.flags, "--config"); i >= 0 {
		var err error
		networks, err = config.Load(s.flags[i+1])
		s.Do(err)
	}
	j := &evaluation{stage: s, networks: networks, tools: append([]othertools.Tool{&dupip{s}}, othertools.All(networks)...)}
	s.evaluation = j
	s.Subscribe(func(news lab.Change) {
		if news.Kind == lab.PodAdded && news.Node.Number == 0 {
			j.mu.Lock()
			defer j.mu.Unlock()
			j.nested = append(j.nested, news.Pod)
		}
	})
	s.Cleanup(func() { bench.add(j.verdict()) })
	var all sync.WaitGroup
	errs := make([]error, len(j.tools))
	for i, p := range j.tools {
		all.Go(func() {
			for _, a := range s.Actors {
				if errs[i] = p.Watch(s.Context(), a.Node); errs[i] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	s.Do(errs...)
}

// duplicate notes something to be found. The result waits, with the holders talking, until
// all have found it or the time of grace is over.
func (j *evaluation) duplicate(f finding, ips []netip.Addr) (wait func()) {
	if j == nil {
		return func() {}
	}
	d := &duplicate{finding: f, ips: ips}
	j.mu.Lock()
	j.duplicates = append(j.duplicates, d)
	j.mu.Unlock()
	return func() {
		missed := func(p othertools.Tool) bool { _, found := d.foundIn(p.Alarms()); return !found }
		d.sendingSince = time.Now()
		d.until = d.sendingSince.Add(grace)
		for _, other := range j.duplicates {
			if other != d && other.until.After(d.since) {
				d.heldUp += other.until.Sub(latest(other.sendingSince, d.since))
			}
		}
		for time.Now().Before(d.until) && !j.stage.Failed() && slices.ContainsFunc(j.tools, missed) {
			j.keepSending(d)
			time.Sleep(sendEvery)
		}
		d.until = time.Now()
	}
}

// foundIn is the time from the second holder's first packet to the first of some alarms, without the
// time for which the scenario was paused, if the alarm came while the holders were kept sending.
func (d *duplicate) foundIn(alarms []othertools.Alarm) (after time.Duration, found bool) {
	for _, a := range alarms {
		if a.At.After(d.from) && !a.At.After(d.until) && slices.Contains(d.ips, a.IP) {
			after = a.At.Sub(d.since)
			if a.At.After(d.sendingSince) {
				after -= d.heldUp
			}
			return max(0, after), true
		}
	}
	return 0, false
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// score is the result of one detector in one scenario.
type score struct {
	name string
	// of is how many duplicates there were, took how long those that were found took.
	of   int
	took []time.Duration
	// wrong are the addresses it alarmed about that had one holder.
	wrong []netip.Addr
	alarm string
}

// verdict holds all detectors against what is true.
func (j *evaluation) verdict() verdict {
	v := verdict{row: j.stage.row}
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, p := range j.tools {
		// Who reads alarms can leave out addresses that are known to be shared.
		alarms := slices.DeleteFunc(p.Alarms(), func(a othertools.Alarm) bool { return j.networks.Shared(a.IP) })
		sc := judge(alarms, j.duplicates, j.stage.allowed)
		sc.name = p.Name()
		if len(sc.wrong) > 0 {
			j.stage.Logf("%s: false alarms about %v, as in: %s", sc.name, sc.wrong, sc.alarm)
		}
		v.scores = append(v.scores, sc)
	}
	return v
}

// judge compares alarms with the duplicates of a scenario. More addresses may have had two holders
// meanwhile. Once an address had two, no alarm about it is wrong, also if it changes hands later.
func judge(alarms []othertools.Alarm, duplicates []*duplicate, more []netip.Addr) score {
	sc := score{of: len(duplicates)}
	for _, d := range duplicates {
		if after, found := d.foundIn(alarms); found {
			sc.took = append(sc.took, after)
		}
	}
	right := func(a othertools.Alarm) bool {
		return slices.Contains(more, a.IP) || slices.ContainsFunc(duplicates, func(d *duplicate) bool {
			return slices.Contains(d.ips, a.IP) && a.At.After(d.from)
		})
	}
	for _, a := range alarms {
		if !right(a) && !slices.Contains(sc.wrong, a.IP) {
			sc.wrong = append(sc.wrong, a.IP)
			sc.alarm = a.Text
		}
	}
	return sc
}

// dupip makes the agents of a scenario one of the detectors: a confirmation is an alarm.
type dupip struct{ stage *Stage }

func (*dupip) Name() string { return "dupip" }

func (d *dupip) Alarms() []othertools.Alarm {
	var all []othertools.Alarm
	for _, a := range d.stage.Actors {
		for _, e := range a.Watch.Events() {
			if e.Type == "confirmed" {
				all = append(all, othertools.Alarm{IP: e.Conflict.IP, At: e.Received, Text: lab.FormatEvents([]lab.Event{e})})
			}
		}
	}
	return all
}

func (*dupip) Watch(context.Context, *lab.Node) error { return nil }
