package report

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// newLogging makes the Report of node n1 that logs into a buffer.
func newLogging(t *testing.T, level slog.Level) (*Report, *bytes.Buffer) {
	t.Helper()
	var out bytes.Buffer
	opts := newReport(t, nil).Options
	var owner sync.Mutex
	opts.Do = func(_ context.Context, f func()) error {
		owner.Lock()
		defer owner.Unlock()
		f()
		return nil
	}
	opts.Log = slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: level}))
	r := New(opts)
	r.facts.after = func(time.Duration, func()) {} // the test's goroutine owns the parts
	return r, &out
}

// conflictOf is a conflict between a pod of this node and one of another.
func conflictOf(n int, state detector.State) detector.Conflict {
	ip := fmt.Sprintf("10.0.%d.%d", n/256, n%256)
	c := detector.Conflict{ID: fmt.Sprint("id", n), Scope: detector.CrossNode, State: state}
	for i, node := range []string{"n1", fmt.Sprint("other", n%7)} {
		b := holding(node, ip, uint64(n))
		b.Holder.Pod, b.Holder.NetnsName = detector.Pod{Namespace: "shop", Name: fmt.Sprint("web-", i)}, fmt.Sprint("cni-", i)
		b.Holder.InterfaceName, b.Holder.MAC = fmt.Sprint("veth", i), detector.MAC{2, 5: byte(i)}
		c.Key, c.Holders = b.Key, append(c.Holders, b)
	}
	return c
}

func burstOf(r *Report, kind detector.EventKind, state detector.State, n int) {
	_ = r.Do(context.Background(), func() {
		for i := range n {
			r.Publish(detector.Event{Kind: kind, Conflict: conflictOf(i, state), Reason: "why"})
		}
	})
}

// TestConflictLines: each line has the node, the pod and the holder, also of this node and of holders that have left.
func TestConflictLines(t *testing.T) {
	for _, test := range []struct {
		kind  detector.EventKind
		state detector.State
		level string
	}{
		{detector.EventSuspected, detector.Suspected, "DEBUG"},
		{detector.EventConfirmed, detector.Confirmed, "WARN"},
		{detector.EventChanged, detector.Confirmed, "INFO"},
		{detector.EventChanged, detector.Suspected, "DEBUG"},
		{detector.EventResolved, detector.Resolved, "INFO"},
		{detector.EventFaded, detector.Suspected, "DEBUG"},
	} {
		event := detector.Event{Kind: test.kind, Conflict: conflictOf(1, test.state), Reason: "why"}
		event.Conflict.Holders[1].Gone = true
		if test.kind == detector.EventChanged {
			event.Lost = conflictOf(2, test.state).Holders[1:]
		}
		var json1 struct {
			Level, Msg, IP, Network, Reason string
			Holder1, Holder2, Lost1         struct {
				Node, Pod, Interface, Netns, Mac string
				Since                            time.Time
				Gone                             bool
			}
		}
		r, text := newLogging(t, slog.LevelDebug)
		r.Publish(event)
		var out bytes.Buffer
		r.events.log = slog.New(slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
		r.Publish(event)
		if err := json.Unmarshal(out.Bytes(), &json1); err != nil {
			t.Fatal(err)
		}
		got := json1
		if got.Level != test.level || got.Msg != "conflict "+string(test.kind) || got.IP != "10.0.0.1" || got.Network != "default" || got.Reason != "why" ||
			got.Holder1.Node != "n1" || got.Holder1.Pod != "shop/web-0" || got.Holder1.Netns != "cni-0" || got.Holder1.Since.IsZero() || got.Holder1.Gone ||
			got.Holder2.Node != "other1" || got.Holder2.Pod != "shop/web-1" || got.Holder2.Mac != "02:00:00:00:00:01" || !got.Holder2.Gone {
			t.Errorf("%+v", got)
		}
		if lost := got.Lost1.Node + " " + got.Lost1.Pod; lost != " " && test.kind != detector.EventChanged || lost != "other2 shop/web-1" && test.kind == detector.EventChanged {
			t.Errorf("%s: lost %q", test.kind, lost)
		}
		for _, want := range []string{
			"level=" + test.level, fmt.Sprintf("msg=%q", "conflict "+string(test.kind)), "ip=10.0.0.1", "scope=cross-node", "reason=why",
			"holder1.node=n1 holder1.pod=shop/web-0 holder1.interface=veth0", "holder2.node=other1 holder2.pod=shop/web-1",
		} {
			if !strings.Contains(text.String(), want) {
				t.Errorf("no %s in\n%s", want, text)
			}
		}
	}
}

// TestDrillLines: nobody has to look after a drill.
func TestDrillLines(t *testing.T) {
	for kind, want := range map[detector.EventKind]string{
		detector.EventConfirmed: `level=INFO msg="drill confirmed"`, detector.EventResolved: `level=INFO msg="drill resolved"`,
	} {
		r, text := newLogging(t, slog.LevelInfo)
		event := detector.Event{Kind: kind, Conflict: conflictOf(1, detector.Confirmed)}
		event.Conflict.Key.IP = netip.MustParseAddr("192.0.2.7")
		for range 50 { // more than there are lines
			r.Publish(event)
		}
		r.Close()
		if strings.Count(text.String(), want+" id=id1 ip=192.0.2.7") != 20 || strings.Contains(text.String(), "WARN") {
			t.Errorf("want 20 of %s and no warning:\n%s", want, text)
		}
	}
}

// TestDrillsLeaveRoom: drills keep no line about a conflict out of the log, nor are they in a summary.
func TestDrillsLeaveRoom(t *testing.T) {
	r, text := newLogging(t, slog.LevelInfo)
	drill := detector.Event{Kind: detector.EventResolved, Conflict: conflictOf(1, detector.Resolved)}
	drill.Conflict.Key.IP = netip.MustParseAddr("192.0.2.7")
	for range 100 {
		r.Publish(drill)
	}
	burstOf(r, detector.EventResolved, detector.Resolved, 11)
	r.Close()
	if strings.Count(text.String(), `msg="conflict resolved"`) != 11 || !strings.Contains(text.String(), `resolved=11 within=10s linesLeftOut=0 nodes="n1 (11), `) {
		t.Error(text)
	}
}

// TestManyHolders: a line does not grow without end.
func TestManyHolders(t *testing.T) {
	r, out := newLogging(t, slog.LevelInfo)
	event := detector.Event{Kind: detector.EventConfirmed, Conflict: conflictOf(1, detector.Confirmed)}
	for range 10 {
		event.Conflict.Holders = append(event.Conflict.Holders, event.Conflict.Holders[0])
	}
	r.Publish(event)
	if !strings.Contains(out.String(), "moreHolders=4") || !strings.Contains(out.String(), "holder8.node=n1") || strings.Contains(out.String(), "holder9") {
		t.Error(out)
	}
}

// TestBurst: of many conflicts at once some have a line, and one line has the sum.
func TestBurst(t *testing.T) {
	take := func(r *Report, out *bytes.Buffer) (text string) {
		_ = r.Do(t.Context(), func() {
			text = out.String()
			out.Reset()
		})
		return text
	}
	for _, test := range []struct {
		confirmed, resolved int
		want                string
	}{
		{confirmed: 1},
		{confirmed: burstEvents},
		{confirmed: 12, want: `level=WARN msg="many events of conflicts; \"dupip conflicts\" lists all that are open" confirmed=12 changed=0 resolved=0 ` +
			`within=10s linesLeftOut=0 nodes="n1 (12), other0 (2), other1 (2), other2 (2), other3 (2) and 3 more" networks="default (12)"`},
		{confirmed: 125, want: "confirmed=125 changed=0 resolved=0 within=10s linesLeftOut=105 nodes=\"n1 (125), other0 (18), "},
		{resolved: 125, want: "level=INFO msg=\"many events of conflicts; \\\"dupip conflicts\\\" lists all that are open\" confirmed=0 changed=0 resolved=125 within=10s linesLeftOut=105 "},
	} {
		synctest.Test(t, func(t *testing.T) {
			r, out := newLogging(t, slog.LevelInfo)
			burstOf(r, detector.EventSuspected, detector.Suspected, 500) // debug lines: neither logged nor counted
			burstOf(r, detector.EventConfirmed, detector.Confirmed, test.confirmed)
			burstOf(r, detector.EventResolved, detector.Resolved, test.resolved)
			lines := min(test.confirmed, 20) + min(test.resolved, 20)
			if n := strings.Count(take(r, out), "\n"); n != lines {
				t.Errorf("%d lines, want %d", n, lines)
			}
			time.Sleep(burstTime)
			synctest.Wait()
			text := take(r, out)
			if n := strings.Count(text, "\n"); (test.want == "") != (n == 0) || n > 1 || !strings.Contains(text, test.want) {
				t.Errorf("%+v:\n%s", test, text)
			}
			status := document.Status{Bindings: make(map[string]int), Conflicts: make(map[string]int)}
			_ = r.Do(t.Context(), func() { r.addParts(&status) })
			if n := status.Dropped["log lines about conflicts"]; n != uint64(test.confirmed+test.resolved-lines) {
				t.Errorf("the status counts %d lines", n)
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			if text := take(r, out); text != "" {
				t.Errorf("a burst that is over is logged:\n%s", text)
			}
		})
	}
}

// TestConfirmedIsLogged: conflicts that come and go leave room for the lines about others.
func TestConfirmedIsLogged(t *testing.T) {
	r, out := newLogging(t, slog.LevelInfo)
	burstOf(r, detector.EventResolved, detector.Resolved, 500)
	out.Reset()
	r.Publish(detector.Event{Kind: detector.EventConfirmed, Conflict: conflictOf(1, detector.Confirmed)})
	if !strings.Contains(out.String(), "conflict confirmed") {
		t.Errorf("the log is %q", out)
	}
}

// TestBurstAtTheEnd: an agent that stops logs what it has counted.
func TestBurstAtTheEnd(t *testing.T) {
	r, out := newLogging(t, slog.LevelInfo)
	burstOf(r, detector.EventConfirmed, detector.Confirmed, 30)
	r.Close()
	if !strings.Contains(out.String(), "confirmed=30") {
		t.Error(out)
	}
}

// TestQuietLog: lines below the level cost nothing and are not counted.
func TestQuietLog(t *testing.T) {
	r, out := newLogging(t, slog.LevelInfo)
	event := detector.Event{Kind: detector.EventSuspected, Conflict: conflictOf(1, detector.Suspected)}
	if n := testing.AllocsPerRun(100, func() { r.events.write(&event) }); n != 0 || out.Len() != 0 || r.events.burst != nil {
		t.Errorf("%v allocations, log %q", n, out)
	}
}

// TestStarted: an agent that cannot observe all interfaces does not say that it does.
func TestStarted(t *testing.T) {
	r, out := newLogging(t, slog.LevelInfo)
	r.Self.Since = time.Now()
	expect := func(want string) {
		t.Helper()
		r.Started(r.Self.Since.Add(1234567 * time.Microsecond))
		if _, line, _ := strings.Cut(out.String(), " "); line != want+"\n" {
			t.Errorf("%q, want %q", line, want)
		}
		out.Reset()
	}
	add := func(index int, state links.State) {
		r.Table.Update(links.Event{Kind: links.Added, Interface: &links.Interface{Name: "veth", Index: index, State: state}}, time.Now())
	}
	add(2, links.Attached)
	add(3, links.Shadowed)
	expect("level=INFO msg=observing interfaces=2 took=1.235s")
	add(4, links.Failed)
	r.Table.Update(links.Event{Kind: links.Unobserved, Unobserved: []links.Interface{{State: links.Unsupported}, {State: links.Ignored}}}, time.Now())
	expect(`level=WARN msg="observing, but not all interfaces; \"dupip status\" lists those that are not observed" interfaces=2 took=1.235s failed=1 unsupported=1`)
}
