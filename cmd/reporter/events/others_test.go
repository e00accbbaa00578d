package events

import (
	"errors"
	"math"
	"net/http"
	"slices"
	"strings"
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
	w.p.Summary("red/boot", cluster.Summary{Findings: map[string]int{"unreserved address": 1}})
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
		w.p = New("r2", "kubectl dupip", DefaultRenew, oneNetwork)
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

// TestWithoutList: a replica that could not read what is there makes no Event twice, and those of new conflicts soon.
func TestWithoutList(t *testing.T) {
	const many = 10 * maxOpen
	w := newWorld(t)
	for n := range many {
		w.report(w.p, "red", w.conflict(n, detector.Confirmed))
	}
	w.run(many * 3 * time.Second)
	before := len(w.api)
	w.written()
	w.p = New("r2", "kubectl dupip", DefaultRenew, oneNetwork)
	w.p.Lead(nil, w.now)
	for n := range many {
		c := w.conflict(n, detector.Confirmed)
		c.ConfirmedAt = w.now.Add(-time.Hour)
		w.report(w.p, "red", c)
	}
	w.report(w.p, "red", w.conflict(many, detector.Confirmed))
	w.run(10 * time.Second)
	w.expect("a new conflict among many", "DuplicateIP a300, DuplicateIP b300")
	if len(w.api) != before+2 {
		t.Errorf("%d Events, and %d before", len(w.api), before)
	}
}

// TestOneThatFails: Events that cannot be written, because who may write in their namespace has made them so, hold nobody else's
// up.
func TestOneThatFails(t *testing.T) {
	const many = 4 * maxOpen // their Events get turns, one a second
	for _, tt := range []struct {
		err   error
		tries int // of the tenant's Events in ten minutes, at most
		late  time.Duration
	}{
		{&kube.StatusError{Code: http.StatusInternalServerError, Message: "etcdserver: request is too large"}, 30, 0},
		{&kube.StatusError{Code: http.StatusTooManyRequests}, 30, 0}, // the plugin EventRateLimit counts by namespace
		{&kube.StatusError{Code: http.StatusForbidden}, 30, 0},       // a quota
		{&kube.StatusError{Code: http.StatusRequestEntityTooLarge}, 2 * many, 0},
		{errors.New("timeout"), 30, maxPause},
	} {
		w, tries := newWorld(t), 0
		w.failing = func(e kube.Event) error {
			if e.Metadata.Namespace == "tenant" {
				tries++
				return tt.err
			}
			return nil
		}
		for n := range many {
			c := w.conflict(n, detector.Confirmed)
			for i := range c.Holders {
				c.Holders[i].Pod.Namespace = "tenant"
			}
			w.report(w.p, "red", c)
		}
		w.run(10*time.Minute + 10*time.Second)
		if tries > tt.tries {
			t.Errorf("%v: %d requests, at most %d", tt.err, tries, tt.tries)
		}
		w.written()
		for n := range 5 {
			w.report(w.p, "red", w.conflict(1000+n, detector.Confirmed))
			w.run(tt.late + 5*time.Second)
			if got := w.written(); strings.Count(got, "DuplicateIP ") != 2 {
				t.Errorf("%v: %q", tt.err, got)
			}
		}
	}
}

// TestManyRefused: thousands of Events that the API server refuses in one namespace make few requests.
func TestManyRefused(t *testing.T) {
	for code, most := range map[int]int{http.StatusForbidden: 10, http.StatusRequestEntityTooLarge: 61, http.StatusUnprocessableEntity: 61} {
		w, tries := newWorld(t), 0
		w.failing = func(e kube.Event) error {
			if e.Metadata.Namespace != "tenant" {
				return nil
			}
			tries++
			return &kube.StatusError{Code: code}
		}
		for n := range 1000 {
			c := w.conflict(n, detector.Confirmed)
			for i := range c.Holders {
				c.Holders[i].Pod.Namespace = "tenant"
			}
			w.report(w.p, "red", c)
		}
		w.run(time.Minute)
		if tries > most {
			t.Errorf("%d: %d requests in a minute, at most %d", code, tries, most)
		}
	}
}

// TestOneThatFailsAmongOthers: in its namespace, what fails comes last.
func TestOneThatFailsAmongOthers(t *testing.T) {
	w := newWorld(t)
	w.failing = func(e kube.Event) error {
		if e.Regarding.Name == "a1" {
			return &kube.StatusError{Code: http.StatusInternalServerError}
		}
		return nil
	}
	for n, want := range []string{"DuplicateIP b1", "DuplicateIP a2, DuplicateIP b2", "DuplicateIP a3, DuplicateIP b3"} {
		w.report(w.p, "red", w.conflict(1+n, detector.Confirmed))
		w.run(maxPause + 5*time.Second)
		w.expect("beside one that fails", want)
	}
}

// TestRenewalRefused: what cannot be renewed now is renewed later, and its end is written.
func TestRenewalRefused(t *testing.T) {
	for _, code := range []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusRequestEntityTooLarge} {
		w := newWorld(t)
		w.report(w.p, "red", w.conflict(1, detector.Confirmed))
		w.run(5 * time.Second)
		w.fails = &kube.StatusError{Code: code}
		w.run(DefaultRenew)
		w.fails = nil
		w.run(DefaultRenew)
		for _, e := range w.api {
			if e.Series == nil || e.Series.Count != 2 {
				t.Errorf("%d: %+v", code, e.Series)
			}
		}
		w.written()
		w.report(w.p, "red", w.conflict(1, detector.Resolved))
		w.run(5 * time.Second)
		w.expect("the end", "DuplicateIPResolved a1, DuplicateIPResolved b1")
	}
}
