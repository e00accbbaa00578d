// Package logging makes the log of the programs that run for long: what they log reads the same in text and in JSON, and is bounded.
package logging

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Levels and Formats are the values of --log-level and --log-format.
var (
	Levels  = []string{"debug", "info", "warn", "error"}
	Formats = []string{"text", "json"}
)

// New returns a log in a format, of lines of a level and above. The error names the flag.
func New(w io.Writer, level, format string) (*slog.Logger, error) {
	opts := slog.HandlerOptions{ReplaceAttr: readable}
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil || !slices.Contains(Levels, strings.ToLower(level)) { // not info+4
		return nil, fmt.Errorf("--log-level %q: must be debug, info, warn or error", level)
	}
	opts.Level = parsed
	var handler slog.Handler
	switch strings.ToLower(format) {
	case "text":
		handler = slog.NewTextHandler(w, &opts)
	case "json":
		handler = slog.NewJSONHandler(w, &opts)
	default:
		return nil, fmt.Errorf("--log-format %q: must be text or json", format)
	}
	if parsed < slog.LevelInfo {
		handler = limited{handler, &debugLines{out: handler, kinds: make(map[string]*debugKind)}}
	}
	return slog.New(handler), nil
}

// readable makes values readable, in JSON as in text: slog writes durations as numbers of nanoseconds there, what has a
// String method as a number or an object, and MACs as bytes.
func readable(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case time.Duration:
		a.Value = slog.StringValue(v.String())
	case time.Time, slog.Level, error:
	case fmt.Stringer:
		a.Value = slog.StringValue(fmt.Sprint(v)) // also of a nil pointer
	}
	return a
}

const (
	// debugRate and debugBurst bound the debug lines with one message: packets and pods cause them.
	debugRate  = 20 // per second
	debugBurst = 200
	// maxDebugKinds bounds the messages with a limit of their own; a few, of libraries, are not constant.
	maxDebugKinds = 100
	// leftOutAfter is how long debug lines that are left out are counted before that is logged.
	leftOutAfter = 10 * time.Second
)

// limited is a [slog.Handler] that bounds debug lines.
type limited struct {
	slog.Handler
	debug *debugLines
}

func (l limited) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelInfo && !l.debug.allow(r.Message) {
		return nil
	}
	return l.Handler.Handle(ctx, r)
}

func (l limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	return limited{l.Handler.WithAttrs(attrs), l.debug}
}

func (l limited) WithGroup(name string) slog.Handler {
	return limited{l.Handler.WithGroup(name), l.debug}
}

// debugLines has the limits of debug lines, by message: a flood of one kind leaves the others in the log.
type debugLines struct {
	out   slog.Handler
	mu    sync.Mutex
	kinds map[string]*debugKind
}

type debugKind struct {
	limit   *rate.Limiter
	leftOut int // not logged yet
}

// allow reports whether to log a line, and counts it otherwise.
func (d *debugLines) allow(message string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kinds[message] == nil && len(d.kinds) >= maxDebugKinds {
		message = "others"
	}
	kind := cmp.Or(d.kinds[message], &debugKind{limit: rate.NewLimiter(debugRate, debugBurst)})
	d.kinds[message] = kind
	if kind.limit.Allow() {
		return true
	}
	if kind.leftOut++; kind.leftOut == 1 {
		time.AfterFunc(leftOutAfter, func() { d.logLeftOut(message, kind) })
	}
	return false
}

// logLeftOut logs how many lines were left out.
func (d *debugLines) logLeftOut(message string, kind *debugKind) {
	d.mu.Lock()
	n := kind.leftOut
	kind.leftOut = 0
	d.mu.Unlock()
	r := slog.NewRecord(time.Now(), slog.LevelDebug, "debug lines left out", 0)
	r.Add("about", message, "lines", n, "within", leftOutAfter)
	_ = d.out.Handle(context.Background(), r)
}
