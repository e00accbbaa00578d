package events

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// listed is what the API server has, as it lists it, in a namespace that may be another one.
func (w *world) listed(namespace string, series *kube.Series) (all []kube.Listed) {
	for _, e := range w.api {
		l := kube.Listed{EventTime: e.EventTime, Series: e.Series}
		if l.Metadata.Name, l.Metadata.Namespace = e.Metadata.Name, e.Metadata.Namespace; namespace != "" {
			l.Metadata.Namespace = namespace
		}
		if series != nil {
			l.Series = series
		}
		all = append(all, l)
	}
	return all
}

// reportBoth reports a conflict of two pods and unreserved addresses of a node: Events in the namespace shop, and in default.
func (w *world) reportBoth() {
	w.report(w.p, "red", w.conflict(1, detector.Confirmed))
	w.p.Report(cluster.Report{Node: "red/boot", Summary: &cluster.Summary{Findings: map[string]int{"unreserved address": 1}}}, w.now)
}

// TestForgedElsewhere: an Event counts in the namespace of what it is about only. Anybody can compute its name, and the API
// server accepts an Event about a pod of another namespace.
func TestForgedElsewhere(t *testing.T) {
	honest := newWorld(t)
	honest.reportBoth()
	honest.run(5 * time.Second)
	const all = "DuplicateIP a1, DuplicateIP b1, UnreservedIP red"
	honest.expect("nobody forges", all)
	for _, namespace := range []string{"tenant", "kube-system", ""} {
		w := newWorld(t)
		w.p.Follow()
		w.now = honest.now
		forged := honest.listed("tenant", &kube.Series{Count: 9, LastObservedTime: kube.MicroTime{Time: w.now}})
		for i := range forged {
			forged[i].Metadata.Namespace = namespace
		}
		for _, e := range slices.Clone(forged) { // and that of its end
			e.Metadata.Name += "-resolved"
			forged = append(forged, e)
		}
		w.p.Lead(forged, w.now)
		w.reportBoth()
		w.run(5 * time.Second)
		w.expect("forged in "+namespace, all)
		w.report(w.p, "red", w.conflict(1, detector.Resolved))
		w.run(5 * time.Second)
		w.expect("their end", "DuplicateIPResolved a1, DuplicateIPResolved b1")
	}
}

// TestForgedSeries: times and counts in the right namespace, which who may write Events there chooses, keep no Event from being
// renewed.
func TestForgedSeries(t *testing.T) {
	for what, series := range map[string]kube.Series{
		"in the future": {Count: 3, LastObservedTime: kube.MicroTime{Time: time.Unix(1e11, 0)}},
		"long ago":      {Count: 3},
		"often":         {Count: math.MaxInt32, LastObservedTime: kube.MicroTime{Time: time.Unix(1e9, 0)}},
		"never":         {Count: -7, LastObservedTime: kube.MicroTime{Time: time.Unix(1e9, 0)}},
	} {
		w := newWorld(t)
		w.reportBoth()
		w.run(5 * time.Second)
		w.p = New("r2", DefaultRenew, oneNetwork)
		w.p.Lead(w.listed("", &series), w.now)
		w.reportBoth()
		w.run(DefaultRenew + time.Minute)
		for _, e := range w.api {
			s := e.Series
			if s == nil || w.now.Sub(s.LastObservedTime.Time) > DefaultRenew+time.Minute || s.LastObservedTime.After(w.now) ||
				s.Count < 2 || s.Count > math.MaxInt32 {
				t.Errorf("%s: %s %s is renewed as %+v", what, e.Reason, e.Regarding.Name, s)
			}
		}
	}
}
