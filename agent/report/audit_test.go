package report

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
)

// What is asked for decides what was checked: on real books, of which one is whole, one is broken and one is another plugin's.
func TestAuditOfSelection(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const config = `{"name":%q,"type":%q,"ipam":{"type":"host-local","subnet":%q,"dataDir":%q}}`
	write("conf/1.conf", fmt.Sprintf(config, "pods", "ptp", "10.1.2.0/24", root))
	write("conf/2.conf", fmt.Sprintf(config, "broken", "ptp", "10.3.0.0/24", root))
	write("conf/3.conf", fmt.Sprintf(config, "storage", "macvlan", "10.4.0.0/24", root))
	id := strings.Repeat("a", 64)
	write("pods/10.1.2.5", id+"\r\neth0")
	write("broken", "it is no folder")
	var sandboxes atomic.Pointer[pods.Sandboxes]
	list := func(listed time.Time, complete bool) {
		sandboxes.Store(&pods.Sandboxes{Ready: map[string]bool{id: true}, Listed: listed, Complete: complete})
	}
	list(time.Time{}, true)
	live := []audit.Live{{
		IP: netip.MustParseAddr("10.1.2.5"), Interface: "veth7", Sandbox: id[:pods.ShortID], Network: "pods", Pod: detector.Pod{Namespace: "shop", Name: "web"},
	}}
	var hidden atomic.Pointer[string]
	hidden.Store(new(string))
	synctest.Test(t, func(t *testing.T) {
		r := newReport(t, nil)
		r.Books = audit.New(audit.Options{
			Log: slog.New(slog.NewTextHandler(io.Discard, nil)), Books: books.NewIPAM(func() string { return filepath.Join(root, "conf") }), Grace: time.Hour,
			Sandboxes: func() pods.Sandboxes { return *sandboxes.Load() }, Relist: func() {},
			Node: func(context.Context) (audit.Node, error) { return audit.Node{Live: live, Hidden: *hidden.Load()}, nil },
			Done: func(context.Context) {},
		})
		ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
		ended := make(chan struct{})
		go func() { defer close(ended); r.Books.Run(ctx) }()
		defer func() { cancel(); <-ended }()
		read := func() {
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if r.AwaitsBooks() { // as the agent does
				r.ReadBooks()
			}
		}
		metrics := func(open ...detector.Conflict) string {
			return fmt.Sprint(r.bookStats(open).Findings)
		}
		if read(); metrics() != "map[]" || r.ownAudit().Verdict != document.AuditNothing {
			t.Errorf("without a list of sandboxes: %s, %s", metrics(), r.ownAudit().Verdict)
		}
		list(time.Now(), true)
		read()
		for name, test := range map[string]struct {
			q                document.Query
			verdict, checked string
		}{
			"everything":           {document.Query{}, document.AuditPartly, "[pods storage]"},
			"a network":            {document.Query{Network: "pods"}, document.AuditAgrees, "[pods]"},
			"a broken one":         {document.Query{Network: "broken"}, document.AuditNothing, "[]"},
			"another plugin's":     {document.Query{Network: "storage"}, document.AuditPartly, "[storage]"},
			"none":                 {document.Query{Network: "default"}, document.AuditNothing, "[]"},
			"an address elsewhere": {document.Query{IP: netip.MustParseAddr("10.9.0.1")}, document.AuditNothing, "[]"},
			"a pod":                {document.Query{Pod: "shop/web", Network: "pods"}, document.AuditAgrees, "[pods]"},
			"no such pod":          {document.Query{Pod: "shop/db"}, document.AuditNothing, "[]"},
			"no such namespace":    {document.Query{Namespace: "bank", Network: "pods"}, document.AuditNothing, "[]"},
		} {
			a, err := r.Audit(t.Context(), test.q)
			if got := fmt.Sprint(a.Checked); err != nil || a.Verdict != test.verdict || got != test.checked || (a.Verdict != document.AuditAgrees) != (len(a.Unchecked) > 0) {
				t.Errorf("%s: %s, %s, %q, %v; want %s, %s", name, a.Verdict, got, a.Unchecked, err, test.verdict, test.checked)
			}
		}
		// To another node it says the same, of the broken book, too.
		if d := r.answer(cluster.Query{Kind: cluster.QueryFindings}); len(d.Unchecked) != 2 || !strings.HasPrefix(d.Unchecked[0], "network broken:") || len(d.Checked) != 2 {
			t.Errorf("to another node: %q, %q", d.Unchecked, d.Checked)
		}
		if got := metrics(); got != "map[in_conflict:0 mismatched:0 unheld:0 unreserved:0]" {
			t.Errorf("metrics: %s", got)
		}
		hidden.Store(new("veth9"))
		if read(); metrics() != "map[in_conflict:0 mismatched:0 unreserved:0]" {
			t.Errorf("metrics with an interface that is not observed: %s", metrics())
		}
		hidden.Store(new(string))
		list(time.Now(), false)
		if read(); metrics() != "map[in_conflict:0 mismatched:0 unreserved:0]" {
			t.Errorf("metrics without a whole list of sandboxes: %s", metrics())
		}
		// A conflict has what the first reading said that began when there were two holders, also when it is over.
		key := detector.Key{Network: "default", IP: live[0].IP}
		for n, seen := range []time.Duration{0, -10 * time.Second} {
			c := detector.Conflict{ID: fmt.Sprint("x-", n+1), Key: key, State: detector.Confirmed, SecondSeen: time.Now().Add(seen)}
			r.Publish(detector.Event{Kind: detector.EventConfirmed, Conflict: c})
			if early := r.conflict(c).Books != nil; early != (seen < 0) {
				t.Errorf("conflict %d: the books are known at once: %t", n+1, early)
			}
			read()
			if r.AwaitsBooks() {
				t.Errorf("conflict %d: the books were read, and it waits for them", n+1)
			}
			if err := os.Remove(filepath.Join(root, "pods/10.1.2.5")); err != nil {
				t.Fatal(err)
			}
			read()
			c.State = detector.Resolved
			r.Publish(detector.Event{Kind: detector.EventResolved, Conflict: c})
			write("pods/10.1.2.5", id+"\r\neth0")
			if said := r.conflict(c).Books; len(said) != 2 || said[0].Reservation == nil || said[0].Reservation.Sandbox != id[:pods.ShortID] || said[0].Reservation.Pod != nil {
				t.Errorf("conflict %d: %+v", n+1, said)
			}
			// Its pod gets its name later.
			c.Holders = []detector.Binding{{Key: key, Holder: detector.Holder{Pod: live[0].Pod, Sandbox: detector.Sandbox{ID: id[:pods.ShortID]}}}}
			if said := r.conflict(c).Books; said[0].Reservation.Pod.String() != "shop/web" || r.causes.said[c.ID][0].Reservation.Pod != nil {
				t.Errorf("conflict %d: %+v", n+1, said)
			}
			read()
		}
		// Without the broken book the audit rests, and a conflict has it read before it would be.
		if err := os.Remove(filepath.Join(root, "conf/2.conf")); err != nil {
			t.Fatal(err)
		}
		for range 10 { // until it rests, and just after a reading
			for last := r.Books.Last().At; r.Books.Last().At.Equal(last); synctest.Wait() {
				time.Sleep(100 * time.Millisecond)
			}
		}
		rested := r.Books.Last().At
		r.Publish(detector.Event{Kind: detector.EventConfirmed, Conflict: detector.Conflict{ID: "x-3", Key: key, State: detector.Confirmed, SecondSeen: time.Now()}})
		if read(); r.AwaitsBooks() {
			t.Errorf("a conflict waits for the books, which were read %s after they had been", r.Books.Last().At.Sub(rested))
		}
		write("conf/2.conf", fmt.Sprintf(config, "broken", "ptp", "10.3.0.0/24", root))
		// An address that has collided has one alert: its finding is counted apart while the conflict is confirmed.
		if err := os.Remove(filepath.Join(root, "pods/10.1.2.5")); err != nil {
			t.Fatal(err)
		}
		read()
		list(time.Now(), false)
		read()
		of := func(change func(*detector.Conflict)) detector.Conflict {
			c := detector.Conflict{Key: key, State: detector.Confirmed, Holders: []detector.Binding{
				{Holder: detector.Holder{ID: detector.HolderID{Node: "n2/b"}, InterfaceName: "veth7"}},
				{Holder: detector.Holder{ID: detector.HolderID{Node: r.Self.NodeID()}, InterfaceName: "veth7"}},
			}}
			change(&c)
			return c
		}
		if got := metrics(of(func(*detector.Conflict) {})); got != "map[in_conflict:1 mismatched:0 unreserved:0]" {
			t.Errorf("with its conflict: %s", got)
		}
		for name, change := range map[string]func(*detector.Conflict){
			"a suspicion":                   func(c *detector.Conflict) { c.State = detector.Suspected },
			"a conflict of another address": func(c *detector.Conflict) { c.Key.IP = c.Key.IP.Next() },
			"a conflict of another pod":     func(c *detector.Conflict) { c.Holders[1].Holder.InterfaceName = "veth8" },
			"a conflict of other nodes":     func(c *detector.Conflict) { c.Holders = c.Holders[:1] },
		} {
			if got := metrics(of(change)); got != "map[in_conflict:0 mismatched:0 unreserved:1]" {
				t.Errorf("with %s: %s", name, got)
			}
		}
		contested := func() bool {
			t.Helper()
			a, err := r.Audit(t.Context(), document.Query{})
			if err != nil || len(a.Findings) != 1 {
				t.Fatalf("%+v, %v", a, err)
			}
			return a.Findings[0].Contested
		}
		if contested() {
			t.Error("its finding is contested before there is a conflict")
		}
		r.confirm(t, key.IP.String(), detector.Sighting{Holder: holding("n2", "10.1.2.5", 7).Holder, Evidence: detector.Announced},
			detector.Sighting{Holder: detector.Holder{ID: detector.HolderID{Node: r.Self.NodeID(), Netns: 7}, InterfaceName: "veth7"}, Evidence: detector.Announced})
		if !contested() {
			t.Error("its finding is not contested in a conflict")
		}
		// The status and the summary read the audit in goroutines of their own.
		r.Detector = nil
		if got := r.ownAudit().Verdict; got != document.AuditFindings {
			t.Errorf("the verdict of a finding: %s", got)
		}
	})
}
