package scale

import (
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/detector"
)

// A watch compares the events of all detectors with the real duplicates.
type watch struct {
	mu sync.Mutex
	// duplicates are the addresses that do have several holders.
	duplicates map[detector.Key]*duplicate
	// suspicions and alarms are those of addresses that have one holder.
	suspicions, alarms int
}

// duplicate is an address with several holders, and when each of their nodes reported it.
type duplicate struct {
	key detector.Key
	// since is when the second holder was leased.
	since                time.Time
	nodes                int
	suspected, confirmed map[string]time.Time
	resolved             int // times, at all nodes
}

func newWatch() *watch { return &watch{duplicates: make(map[detector.Key]*duplicate)} }

// expect records that an address has its second holder now, and how many nodes will share it.
func (w *watch) expect(key detector.Key, nodes int) *duplicate {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := &duplicate{
		key: key, since: time.Now(), nodes: nodes,
		suspected: make(map[string]time.Time), confirmed: make(map[string]time.Time),
	}
	w.duplicates[key] = d
	return d
}

// knows returns whether an address has, or had, several holders.
func (w *watch) knows(key detector.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.duplicates[key] != nil
}

// restart records that the second holders can be known only from now on.
func (w *watch) restart(list []*duplicate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range list {
		d.since = time.Now()
	}
}

func (w *watch) event(node string, e detector.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d := w.duplicates[e.Conflict.Key]
	switch e.Kind {
	case detector.EventSuspected:
		if d == nil {
			w.suspicions++
		} else if _, known := d.suspected[node]; !known {
			d.suspected[node] = time.Now()
		}
	case detector.EventConfirmed:
		if d == nil {
			w.alarms++
		} else if _, known := d.confirmed[node]; !known {
			d.confirmed[node] = time.Now()
		}
	case detector.EventResolved:
		if d != nil {
			d.resolved++
		}
	}
}

// found returns how many duplicates are confirmed at all of their nodes.
func (w *watch) found(list []*duplicate) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, d := range list {
		if len(d.confirmed) >= d.nodes {
			n++
		}
	}
	return n
}

// delays are the times from since until the first and until all nodes reported something, for those
// duplicates that they did report.
type delays struct{ first, all []time.Duration }

func (w *watch) delays(list []*duplicate, reports func(*duplicate) map[string]time.Time) delays {
	w.mu.Lock()
	defer w.mu.Unlock()
	var d delays
	for _, dup := range list {
		var took []time.Duration
		for _, at := range reports(dup) {
			took = append(took, at.Sub(dup.since))
		}
		if len(took) > 0 {
			d.first = append(d.first, slices.Min(took))
		}
		if len(took) >= dup.nodes {
			d.all = append(d.all, slices.Max(took))
		}
	}
	slices.Sort(d.first)
	slices.Sort(d.all)
	return d
}

func suspected(d *duplicate) map[string]time.Time { return d.suspected }
func confirmed(d *duplicate) map[string]time.Time { return d.confirmed }

// quantile returns a quantile of a sorted list.
func quantile[T any](sorted []T, q float64) T {
	if len(sorted) == 0 {
		var none T
		return none
	}
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
