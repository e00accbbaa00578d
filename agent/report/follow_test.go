package report

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// While the runtime hangs the agent reads facts often, for 2 s, and the reporters are told of none before all are known. Then it reads them
// now and then, until the conflict ends.
func TestFactsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := new(fakeCluster)
		r := newReport(t, network)
		var err error
		if r.Pods, err = pods.New(pods.Options{Log: r.Log, Socket: "/nowhere/cri.sock"}); err != nil { // not Run: it has not answered
			t.Fatal(err)
		}
		var waits []time.Duration
		var read func()
		r.facts.after = func(wait time.Duration, f func()) { waits, read = append(waits, wait), f }
		seen, unseen := r.holds("veth1", 1, netns.Ref{Inode: 1}, 1, "10.0.0.2"), r.holds("veth2", 2, netns.Ref{}, 2)
		unseen.Seen = false // what is known of it is known at once
		r.confirmFrom(t, time.Now().Add(-2*time.Second), "10.0.0.2", sightingOf(seen), sightingOf(unseen))
		c := r.judged()[0]
		for range 2 {
			r.Publish(detector.Event{Kind: detector.EventConfirmed, Conflict: c}) // and reports it
		}
		var reports []int
		for read != nil && len(waits) < 20 {
			if len(waits) == 8 {
				r.Detector.Withdraw(c.Key, seen.Holder, "it gave the address up", time.Now())
				r.Detector.Tick(time.Now().Add(time.Hour))
			}
			time.Sleep(waits[len(waits)-1])
			f := read
			read = nil
			f()
			reports = append(reports, len(network.reports))
		}
		if want := []time.Duration{0, soonAgain, soonAgain, soonAgain, soonAgain, laterAgain, laterAgain, laterAgain}; !slices.Equal(waits, want) {
			t.Errorf("it waits for %v, want %v", waits, want)
		}
		if want := []int{2, 2, 2, 2, 3, 3, 3, 3}; !slices.Equal(reports, want) {
			t.Errorf("%v reports, want %v", reports, want)
		}
	})
}

// A conflict of a holder that the last reading was not about is read at once.
func TestFactsOfNewHolders(t *testing.T) {
	r := newReport(t, nil)
	if _, err := netns.Find(map[uint64]bool{1: true}); errors.Is(err, fs.ErrPermission) {
		t.Skip("Docker keeps others than root from the names of its namespaces:", err)
	}
	for n := range 2 {
		i := r.holds(fmt.Sprint("veth", n), n+1, netns.Ref{Inode: uint64(n + 1)}, uint64(n+1))
		ip := fmt.Sprint("10.0.0.", n)
		r.confirm(t, ip, sightingOf(i), detector.Sighting{Holder: holding("n2", ip, 77).Holder, Evidence: detector.Announced})
		must(t, r.readFacts(t.Context()))
		if _, scanned := r.facts.last.namespaces[i.Netns.Inode]; !scanned {
			t.Errorf("pod %d is not looked for", n)
		}
	}
	host := detector.Holder{ID: r.Table.Host, Interface: detector.Interface{Ifindex: 9}}
	r.confirm(t, "10.0.0.9", detector.Sighting{Holder: host, Evidence: detector.Host},
		detector.Sighting{Holder: holding("n2", "10.0.0.9", 77).Holder, Evidence: detector.Announced})
	must(t, r.readFacts(t.Context()))
	for _, c := range r.judged() {
		if !r.complete(c) {
			t.Errorf("what is known of %s is not complete", c.Key.IP)
		}
	}
}
