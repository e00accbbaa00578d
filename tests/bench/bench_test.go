// Package bench measures what dupip costs and prints one table: each figure with its goal from the
// design. As an ordinary test it measures everything in small, and no figure counts; make bench runs
// it with -size full.
//
// It owns the order of the measurements: it alternates what it compares, so that other load on the
// machine affects all alike, and figures are medians. It uses the agent from outside, as a binary
// with an API, and package bpf by its exported names.
package bench

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// settings are how long and how often to measure.
type settings struct {
	// rounds and repeat are how often each program is run, and with how many packets at
	// a time.
	rounds, repeat int
	// runs is how often each way of watching is put to the test, tcp for how long each time.
	runs int
	tcp  time.Duration
	// batches of records are read from the ring; bursts go through an agent whose pods
	// announce, so many of them.
	batches, bursts, announcing int
	// pods are the sizes of the nodes; idle and talk are how long they are measured without and with traffic.
	pods       []int
	idle, talk time.Duration
	// reservations are the sizes of the books that are read; readings are measured for so long each.
	reservations []int
	readings     int
	reading      time.Duration
	// duplicates are made in waves, so many at a time.
	waves, wave int
	// sandboxes are made on each node that has a container runtime, once in so many turns
	// (a multiple of four) and once more.
	sandboxes, turns int
	// updated are the pods of each node in an update.
	updated int
	// shared addresses are in so many pairs of pods of two nodes, which have so long to confirm all.
	shared, sharedPods int
	sharedFor          time.Duration
}

var sizes = map[string]settings{
	// About nineteen minutes. Idle is as long as an agent takes to probe each of its
	// silent addresses once: half of five minutes, and ten percent more for some.
	"full": {
		rounds: 31, repeat: 200_000, runs: 5, tcp: 2 * time.Second, batches: 31, bursts: 5, announcing: 40,
		pods: []int{10, 100, 250}, idle: 165 * time.Second, talk: 30 * time.Second,
		reservations: []int{1000, 10_000}, readings: 5, reading: 20 * time.Second,
		waves: 20, wave: 5, sandboxes: 200, turns: 8, updated: 100,
		shared: 10_000, sharedPods: 50, sharedFor: time.Minute,
	},
	// Two minutes, for those who change the benchmark: the figures are rough, and idle
	// pods are not probed in so short a time.
	"quick": {
		rounds: 5, repeat: 50_000, runs: 1, tcp: time.Second / 2, batches: 3, bursts: 2, announcing: 10,
		pods: []int{10, 50}, idle: 5 * time.Second, talk: 5 * time.Second,
		reservations: []int{1000, 10_000}, readings: 3, reading: 3 * time.Second,
		waves: 2, wave: 5, sandboxes: 20, turns: 4, updated: 30,
		shared: 2000, sharedPods: 10, sharedFor: 30 * time.Second,
	},
	// Enough to see that everything is measured.
	"tiny": {
		rounds: 1, repeat: 2000, runs: 1, tcp: 50 * time.Millisecond, batches: 1, bursts: 1, announcing: 2,
		pods: []int{1, 2}, idle: 50 * time.Millisecond, talk: 50 * time.Millisecond,
		reservations: []int{10}, readings: 1, reading: 50 * time.Millisecond,
		waves: 1, wave: 2, sandboxes: 4, turns: 4, updated: 2,
		shared: 20, sharedPods: 2, sharedFor: 30 * time.Second,
	},
}

// section is a part of the table.
type section struct {
	name    string
	measure func(*bench)
}

var sections = []section{
	{"packets", measurePackets},
	{"traffic", measureTraffic},
	{"ring", measureRing},
	{"usage", measureUsage},
	{"books", measureBooks},
	{"delay", measureDelay},
	{"mass", measureMass},
	{"start", measureStart},
	{"update", measureUpdate},
	{"sandboxes", measureSandboxes},
}

var (
	size = flag.String("size", "tiny", "how much to measure: full, quick, tiny")
	only = flag.String("only", "", "measure only these sections, with commas")
)

// bench is a section under way, in a lab of its own.
type bench struct {
	*lab.T
	settings
}

func TestMain(m *testing.M) {
	if devices, asked := os.LookupEnv(readerVariable); asked {
		readPackets(strings.Fields(devices))
	}
	flag.Parse()
	if err := check(*size, *only); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	began := time.Now()
	code := lab.Main(m)
	table.print(time.Since(began))
	os.Exit(code)
}

// check returns an error for an unknown size or section.
func check(size, only string) error {
	if _, known := sizes[size]; !known {
		return fmt.Errorf("there is no size %q", size)
	}
	for name := range strings.SplitSeq(only, ",") {
		if name != "" && !slices.ContainsFunc(sections, func(s section) bool { return s.name == name }) {
			return fmt.Errorf("there is no section %q", name)
		}
	}
	return nil
}

func TestBench(t *testing.T) {
	for _, s := range sections {
		if *only != "" && !slices.Contains(strings.Split(*only, ","), s.name) {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			b := &bench{lab.NewT(t), sizes[*size]}
			// The table goes to a file as often as not: progress must not be in it.
			fmt.Fprintf(os.Stderr, "bench: %s\n", s.name)
			rows := len(table.rows)
			s.measure(b)
			if len(table.rows) == rows {
				t.Error("nothing was measured")
			}
		})
	}
}

// figures collects the rows: a title has no figure.
type figures struct{ rows [][3]string }

var table figures

func (b *bench) title(format string, args ...any) {
	table.rows = append(table.rows, [3]string{fmt.Sprintf(format, args...)})
}

// row adds what was measured, the figure, and the goal where the design sets one.
func (b *bench) row(what, goal, figure string, args ...any) {
	b.Helper()
	if figure == "" {
		b.Errorf("%s: no figure", what)
	}
	table.rows = append(table.rows, [3]string{what, fmt.Sprintf(figure, args...), goal})
}

func (f figures) print(took time.Duration) {
	if len(f.rows) == 0 {
		return
	}
	var kernel unix.Utsname
	_ = unix.Uname(&kernel)
	processor := runtime.GOARCH
	if proc, err := procfs.NewDefaultFS(); err == nil {
		if info, err := proc.CPUInfo(); err == nil && len(info) > 0 {
			processor = cmp.Or(info[0].ModelName, processor)
		}
	}
	fmt.Printf("dupip bench, %s, commit %s, took %s\nLinux %s, %d cores, %s, %s\n", time.Now().Format(time.DateOnly), revision,
		took.Round(time.Second), unix.ByteSliceToString(kernel.Release[:]), runtime.NumCPU(), processor, runtime.Version())
	fmt.Printf("Figures are medians. They are this machine's, with whatever else it did meanwhile.\n\n")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "  WHAT\tFIGURE\tGOAL")
	for _, r := range f.rows {
		if r[1] == "" {
			fmt.Fprintf(w, "\n%s\n", r[0])
			continue
		}
		fmt.Fprintf(w, "  %s\t%s\t%s\n", r[0], r[1], r[2])
	}
	_ = w.Flush()
}

// revision is the commit; the Makefile sets it.
var revision = "unknown"

type number interface {
	~int | ~int64 | ~uint64 | ~float64
}

// median returns the middle value, the mean of the two middle ones of an even number, and 0
// for none.
func median[T number](values []T) T {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
}

// percentile returns the smallest value that this percentage of the values does not exceed
// (nearest rank). There must be a value.
func percentile[T cmp.Ordered](values []T, percent int) T {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max((len(sorted)*percent+99)/100, 1)-1]
}

// patience is how long anything may take that takes a moment.
const patience = 15 * time.Second

// eventually polls until ok returns nil.
func (b *bench) eventually(ok func() error) {
	b.Helper()
	b.Do(lab.Poll(b.Context(), lab.Patience(4*patience), ok))
}

// within is a context for what takes a moment.
func (b *bench) within() context.Context {
	ctx, cancel := context.WithTimeout(b.Context(), lab.Patience(4*patience))
	b.Cleanup(cancel)
	return ctx
}

// cpuTime is the CPU time that all threads of a process have had, to the nanosecond: the
// ticks of /proc/PID/stat are as long as an idle agent works in four seconds.
func (b *bench) cpuTime(p interface{ PID() int }) time.Duration {
	b.Helper()
	// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED, linux/posix-timers_types.h.
	return b.clock(int32(^p.PID()<<3 | 2))
}

// threadTime is the CPU time of the calling thread: what other processes do meanwhile is not
// in it.
func (b *bench) threadTime() time.Duration { return b.clock(unix.CLOCK_THREAD_CPUTIME_ID) }

func (b *bench) clock(id int32) time.Duration {
	b.Helper()
	var t unix.Timespec
	b.Do(unix.ClockGettime(id, &t))
	return time.Duration(t.Nano())
}

// during measures the CPU time that a process uses while f runs.
func (b *bench) during(p interface{ PID() int }, f func()) time.Duration {
	b.Helper()
	before := b.cpuTime(p)
	f()
	return b.cpuTime(p) - before
}

// attached waits until an agent has bindings of all addresses of pods at their interfaces.
func (b *bench) attached(a *lab.Agent, pods ...*lab.Pod) {
	b.Helper()
	for _, p := range pods {
		for _, ip := range p.Addrs() {
			_, err := a.Client.WaitBinding(b.within(), ip, func(b lab.Binding) bool { return b.Interface == p.HostInterface })
			b.Do(err)
		}
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct{ size, only, want string }{
		{"full", "", ""}, {"tiny", "ring", ""}, {"quick", "delay,packets", ""}, {"huge", "", "huge"}, {"full", "ring,rong", "rong"},
	} {
		if err := check(tt.size, tt.only); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q of %s: %v, want %q", tt.only, tt.size, err, tt.want)
		}
	}
}

func TestMedianAndPercentile(t *testing.T) {
	hundred := make([]int, 100)
	for i := range hundred {
		hundred[i] = 100 - i
	}
	for _, tt := range []struct {
		what      string
		got, want int
	}{
		{"median of none", median[int](nil), 0},
		{"median of one", median([]int{7}), 7},
		{"median of three", median([]int{9, 1, 5}), 5},
		{"median of four", median([]int{1, 9, 5, 3}), 4},
		{"p99 of one", percentile([]int{7}, 99), 7},
		{"p99 of a hundred", percentile(hundred, 99), 99},
		{"p99 of ten", percentile(hundred[90:], 99), 10},
		{"p50 of a hundred", percentile(hundred, 50), 50},
		{"p0 of a hundred", percentile(hundred, 0), 1},
		{"p100 of a hundred", percentile(hundred, 100), 100},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %d, want %d", tt.what, tt.got, tt.want)
		}
	}
	if !slices.Equal(hundred[:2], []int{100, 99}) {
		t.Error("the values were sorted in place")
	}
}
