package logging

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// lines is a log that is also written by timers.
type lines struct {
	mu   sync.Mutex
	text []byte
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text = append(l.text, b...)
	return len(b), nil
}

// take returns what was logged since the last call.
func (l *lines) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := string(l.text)
	l.text = nil
	return text
}

func newTestLogger(t *testing.T, level, format string) (*slog.Logger, *lines) {
	t.Helper()
	out := new(lines)
	log, err := New(out, level, format)
	if err != nil {
		t.Fatal(err)
	}
	return log, out
}

// TestLogValues: text and JSON show the same, for every type that a line of the agent has.
func TestLogValues(t *testing.T) {
	at := time.Date(2026, 11, 23, 8, 48, 8, 1e6, time.UTC)
	var nobody *net.TCPAddr
	values := map[string]struct {
		value any
		want  any
	}{
		"duration": {1500 * time.Millisecond, "1.5s"},
		"time":     {at, "2026-11-23T08:48:08.001Z"},
		"ip":       {netip.MustParseAddr("fd00::1"), "fd00::1"},
		"prefix":   {netip.MustParsePrefix("10.0.0.0/24"), "10.0.0.0/24"},
		"port":     {netip.MustParseAddrPort("10.0.0.1:7951"), "10.0.0.1:7951"},
		"listener": {net.Addr(&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9951}), "127.0.0.1:9951"},
		"nobody":   {nobody, "<nil>"},
		"mac":      {detector.MAC{2, 0, 0, 0, 0, 1}, "02:00:00:00:00:01"},
		"hardware": {net.HardwareAddr{2, 0, 0, 0, 0, 1}, "02:00:00:00:00:01"},
		"scope":    {detector.CrossNode, "cross-node"},
		"purpose":  {detector.Verify, string(detector.Verify)},
		"kind":     {bpf.Answer, "answer"},
		"mode":     {bpf.TCX, "tcx"},
		"error":    {fmt.Errorf("reading: %w", &net.AddrError{Err: "no address", Addr: "x"}), "reading: address x: no address"},
		"number":   {42, 42.0},
		"truth":    {true, true},
		"absent":   {nil, nil},
	}
	for _, format := range []string{"text", "json"} {
		t.Run(format, func(t *testing.T) {
			log, out := newTestLogger(t, "info", format)
			want := map[string]any{"level": "INFO", "msg": "all"}
			var attrs []any
			for name, v := range values {
				attrs, want[name] = append(attrs, slog.Any(name, v.value)), v.want
			}
			log.Info("all", slog.Group("group", attrs...))
			text := out.take()
			if strings.Count(text, "\n") != 1 {
				t.Errorf("not one line:\n%s", text)
			}
			if format == "text" {
				for name, v := range values {
					if plain, quoted := fmt.Sprintf("group.%s=%v", name, v.want), fmt.Sprintf("group.%s=%q", name, v.want); !strings.Contains(text, plain) && !strings.Contains(text, quoted) {
						t.Errorf("no %s in\n%s", plain, text)
					}
				}
				return
			}
			var line struct {
				Time  time.Time
				Level string
				Msg   string
				Group map[string]any
			}
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatal(err)
			}
			got := line.Group
			got["level"], got["msg"] = line.Level, line.Msg
			if diff := cmp.Diff(want, got); diff != "" || line.Time.IsZero() {
				t.Errorf("(-want +got)\n%s\n%s", diff, text)
			}
		})
	}
}

// TestLogOptions: a wrong value of a flag is an error that names the flag and the valid values.
func TestLogOptions(t *testing.T) {
	for _, test := range []struct{ level, format, want string }{
		{"loud", "text", "must be debug, info, warn or error"},
		{"info", "xml", "must be text or json"},
	} {
		if _, err := New(new(bytes.Buffer), test.level, test.format); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v", test, err)
		}
	}
	log, out := newTestLogger(t, "warn", "text")
	log.Info("info")
	if text := out.take(); text != "" {
		t.Errorf("logged with --log-level warn: %s", text)
	}
}

// TestDebugIsBounded: a flood of one kind of debug lines is cut and counted, and hides no other line.
func TestDebugIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := newTestLogger(t, "debug", "text")
		const flood = 10_000
		for range flood {
			log.With("interface", "veth1").Debug("record dropped")
			log.WithGroup("g").Info("info")
		}
		log.Debug("attached")
		logged := out.take()
		for text, want := range map[string]int{"record dropped": debugBurst, "msg=info": flood, "msg=attached": 1, "left out": 0} {
			if n := strings.Count(logged, text); n != want {
				t.Errorf("%d lines with %q, want %d", n, text, want)
			}
		}
		time.Sleep(leftOutAfter)
		synctest.Wait()
		want := fmt.Sprintf(`level=DEBUG msg="debug lines left out" about="record dropped" lines=%d within=10s`, flood-debugBurst)
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
		log.Debug("record dropped")
		time.Sleep(leftOutAfter)
		synctest.Wait()
		if text := out.take(); strings.Count(text, "\n") != 1 || !strings.Contains(text, `msg="record dropped"`) {
			t.Errorf("after the flood:\n%s", text)
		}
	})
}

// TestDebugKindsAreBounded: messages that are never the same share one limit.
func TestDebugKindsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, out := newTestLogger(t, "debug", "text")
		for n := range 10_000 {
			log.Debug(errors.New("message " + fmt.Sprint(n)).Error())
		}
		if n := strings.Count(out.take(), "\n"); n != maxDebugKinds+debugBurst {
			t.Errorf("%d lines", n)
		}
		time.Sleep(leftOutAfter)
		synctest.Wait()
		if !strings.Contains(out.take(), "about=others") {
			t.Error("nothing says that lines were left out")
		}
	})
}

// TestDebugCostsNothing: a line of the packet path that is off allocates nothing.
func TestDebugCostsNothing(t *testing.T) {
	log, _ := newTestLogger(t, "info", "json")
	ip := netip.MustParseAddr("fd00::1")
	if n := testing.AllocsPerRun(1000, func() {
		if log.Enabled(t.Context(), slog.LevelDebug) {
			log.Debug("record dropped", "ip", ip)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
