// Package doctor examines a node for whoever has an agent that does not start, or that
// sees nothing: each check says what it found and, where that is not good, what to do.
//
// It works with and without a running agent and changes nothing on the node: it takes no
// lock, makes no file, attaches to no device but its own. What it tries out it tries in a
// network namespace made for the moment. How things are done is the business of the
// packages that do them; the doctor calls them, and must not know how to observe.
package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
)

// Status is the outcome of a check.
type Status string

// The outcomes.
const (
	OK Status = "ok"
	// Warn: the agent runs, but something is lost or will be.
	Warn Status = "warn"
	// Fail: the agent does not start, or misses what it is there for.
	Fail Status = "fail"
	// Skip: not examined, because it does not apply or a right is missing.
	Skip Status = "skip"
)

// Check is one thing that was examined.
type Check struct {
	Name    string `json:"name"`
	Status  Status `json:"status"`
	Finding string `json:"finding"`
	// Advice says what to do; empty for [OK] and most of [Skip].
	Advice string `json:"advice,omitzero"`
}

// Summary counts the checks by outcome.
type Summary struct {
	OK       int `json:"ok"`
	Warnings int `json:"warnings"`
	Failures int `json:"failures"`
	Skipped  int `json:"skipped"`
}

// Report is the answer of [Run], in the order in which things depend on each other: of
// several failures the first is the one to mend first.
type Report struct {
	Checks  []Check `json:"checks"`
	Summary Summary `json:"summary"`
}

// Options are the settings of the agent that is meant. Zero values mean the agent's defaults.
type Options struct {
	// Attach is the mode the agent is told to attach in, by default [bpf.Auto].
	Attach bpf.Mode
	// APISocket is the agent's socket, by default [api.DefaultSocket].
	APISocket string
	// MetricsListen is the TCP address of the metrics, by default
	// [metrics.DefaultListen]; "off" is for none.
	MetricsListen string
	// CRISocket is the socket of the container runtime, by default the first of
	// [pods.DefaultSockets] that answers; "off" and "none" are for none.
	CRISocket string
	// StateDir is the folder of the agent's state, by default [state.DefaultDir].
	StateDir string
	// ConfigFile is the configuration file, empty for none.
	ConfigFile string
	// Bind, GossipPort and Join are the agent's way into a cluster; without Bind and
	// Join it is alone. The port is 7951 by default.
	Bind       string
	GossipPort int
	Join       []string
	// KeyFile has the keys of gossip, empty for none. CountKeys reads such a file as the
	// agent does; nil leaves its content unexamined.
	KeyFile   string
	CountKeys func(path string) (int, error)
	// Version is that of this program, to be compared with the agent's.
	Version string
}

func (o Options) withDefaults() Options {
	for _, field := range []struct {
		value    *string
		fallback string
	}{
		{(*string)(&o.Attach), string(bpf.Auto)},
		{&o.APISocket, api.DefaultSocket},
		{&o.MetricsListen, metrics.DefaultListen},
		{&o.StateDir, state.DefaultDir},
	} {
		if *field.value == "" {
			*field.value = field.fallback
		}
	}
	if o.GossipPort == 0 {
		o.GossipPort = defaultGossipPort
	}
	return o
}

// defaultGossipPort is the agent's default.
const defaultGossipPort = 7951

// patience bounds every check: a node in trouble hangs in unlikely places.
const patience = 5 * time.Second

// finding is what a check returns.
type finding struct {
	status       Status
	text, advice string
}

func ok(format string, args ...any) finding {
	return finding{status: OK, text: fmt.Sprintf(format, args...)}
}

func skip(format string, args ...any) finding {
	return finding{status: Skip, text: fmt.Sprintf(format, args...)}
}

func warn(advice, format string, args ...any) finding {
	return finding{Warn, fmt.Sprintf(format, args...), advice}
}

func fail(advice, format string, args ...any) finding {
	return finding{Fail, fmt.Sprintf(format, args...), advice}
}

// check is a row of the table. examine runs on a goroutine of its own, which is left
// behind when it takes too long: it must not write to what others read.
type check struct {
	name    string
	examine func(context.Context, *facts) finding
}

// checks is the table, in the order of [Report].
var checks = []check{
	{"capabilities", checkCapabilities},
	{"kernel", checkKernel},
	{"security", checkSecurity},
	{"bpf jit", checkJIT},
	{"bpf tcx", attachCheck(bpf.TCX)},
	{"bpf tc", attachCheck(bpf.TC)},
	{"bpf xdp", attachCheck(bpf.XDP)},
	{"processes", checkProcesses},
	{"netns names", checkNames},
	{"pods", checkPods},
	{"ipv6", checkIPv6},
	{"agent", checkAgent},
	{"interfaces", checkInterfaces},
	{"drops", checkDrops},
	{"api socket", checkSocket},
	{"metrics", checkMetrics},
	{"gossip port", checkGossipPort},
	{"gossip join", checkJoin},
	{"gossip keys", checkKeys},
	{"gossip", checkGossip},
	{"runtime", checkRuntime},
	{"state dir", checkStateDir},
	{"config", checkConfig},
}

// Run examines the node from the calling process's namespaces. It returns when all is
// done, after a second or so; a check that hangs is given up after five. When ctx ends,
// what is left fails with its error.
func Run(ctx context.Context, opts Options) Report {
	known := gather(ctx, opts.withDefaults())
	var report Report
	for _, c := range checks {
		f := examine(ctx, c, known)
		report.Checks = append(report.Checks, Check{
			Name: c.name, Status: f.status, Finding: clean(f.text), Advice: clean(f.advice),
		})
		switch f.status {
		case OK:
			report.Summary.OK++
		case Warn:
			report.Summary.Warnings++
		case Fail:
			report.Summary.Failures++
		case Skip:
			report.Summary.Skipped++
		}
	}
	return report
}

// examine runs one check, for [patience] at most.
func examine(parent context.Context, c check, known *facts) finding {
	if err := parent.Err(); err != nil {
		return fail("run it again", "not examined: %v", err)
	}
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	done := make(chan finding, 1)
	go func() { done <- c.examine(ctx, known) }()
	select {
	case f := <-done:
		return f
	case <-ctx.Done():
	}
	// It may just have heard of the deadline, too, and knows better what hangs.
	select {
	case f := <-done:
		return f
	case <-time.After(100 * time.Millisecond):
	}
	if err := parent.Err(); err != nil {
		return fail("run it again", "not examined to the end: %v", err)
	}
	return fail("the node itself hangs there: look for blocked processes (ps -eo state,pid,wchan,cmd) and at dmesg",
		"no result after %v", patience)
}

// maxText bounds a finding and an advice, in bytes: file names and answers of others are in them.
const maxText = 1500

// clean makes text fit for a terminal: one line, nothing but what can be printed.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r == utf8.RuneError || !unicode.IsPrint(r):
			return '?'
		}
		return r
	}, text)
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText], "") + "…"
	}
	return text
}

// plural is "1 pod", "2 pods" or "2 processes".
func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	if strings.HasSuffix(noun, "s") {
		noun += "e"
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// some joins the first few of names.
func some(names []string) string {
	const few = 3
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
}
