package scale

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/scale/simnet"
)

// goal is how soon both nodes of a duplicate have to suspect and to confirm it, at the 99th percentile. 0 is none.
type goal struct{ suspected, confirmed time.Duration }

// steady is the goal for duplicates in a cluster where nothing else happens.
var steady = goal{suspected: time.Second, confirmed: 1300 * time.Millisecond}

// goalOf returns the goal for two nodes that share so many addresses, so many of them in each pod. The probes of
// one pod are limited, too.
func goalOf(addresses, perPod int) goal {
	switch {
	case addresses <= 250 && perPod == 1:
		return steady
	case addresses <= 500:
		return goal{confirmed: 3 * time.Second}
	case addresses <= 1000:
		return goal{confirmed: 10 * time.Second}
	}
	return goal{}
}

// A report measures a phase after the other and writes what came out.
type report struct {
	simulation *simulation
	out        io.Writer

	start instant
	was   instant // when the phase began
	sentB []simnet.Traffic
	// messages and drops are what each agent had sent and dropped then.
	messages, drops map[*agent]map[string]uint64
}

// instant is one moment on three clocks: that of the simulation, the real one, and that
// of the processor.
type instant struct {
	virtual   time.Time
	real, cpu time.Duration
}

func now() instant {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		panic(err)
	}
	return instant{time.Now(), realTime(), time.Duration(usage.Utime.Nano() + usage.Stime.Nano())}
}

func newReport(tw *simulation, out io.Writer) *report {
	return &report{simulation: tw, out: out, start: now()}
}

// begin begins a phase.
func (r *report) begin(what string) {
	fmt.Fprintf(r.out, "\n%s\n", what)
	r.reset()
}

// reset forgets what was measured of the phase so far.
func (r *report) reset() {
	r.was = now()
	r.sentB = r.simulation.traffic()
	r.messages, r.drops = r.simulation.counters()
}

func (r *report) row(what, format string, values ...any) {
	const width = 44
	pad := max(0, width-utf8.RuneCountInString(what))
	fmt.Fprintf(r.out, "  %s%s  %s\n", what, strings.Repeat(" ", pad), fmt.Sprintf(format, values...))
}

// end ends the phase.
func (r *report) end() {
	n := now()
	w := r.simulation.watch
	w.mu.Lock()
	suspicions, alarms := w.suspicions, w.alarms
	w.suspicions, w.alarms = 0, 0
	w.mu.Unlock()
	if suspicions+alarms > 0 {
		r.row("without a duplicate", "%d suspected, %d confirmed (goal 0)", suspicions, alarms)
	}
	if alarms > 0 {
		r.simulation.t.Errorf("%d conflicts were confirmed where there is one holder", alarms)
	}
	sent, dropped := r.simulation.counters()
	r.row("messages of a node", "%s", perNode(sent, r.messages, len(r.simulation.agents)))
	if text := perNode(dropped, r.drops, len(r.simulation.agents)); text != "" {
		r.row("dropped by a node", "%s", text)
	}
	r.row("time", "%s simulated, %s real, %s of CPU, %d MiB in use", n.virtual.Sub(r.was.virtual).Round(time.Second),
		(n.real - r.was.real).Round(100*time.Millisecond), (n.cpu - r.was.cpu).Round(100*time.Millisecond), resident())
}

// foundIn reports how many duplicates were found and how soon, and fails the test if one was missed or late.
func (r *report) foundIn(list []*duplicate, want goal) {
	w := r.simulation.watch
	s, c := w.delays(list, suspected), w.delays(list, confirmed)
	if len(s.all) < len(list) || len(c.all) < len(list) {
		r.simulation.t.Errorf("of %d duplicates %d were suspected and %d confirmed at both nodes", len(list), len(s.all), len(c.all))
		for _, d := range list {
			if len(d.confirmed) < d.nodes {
				r.simulation.t.Logf("%s: suspected by %s, confirmed by %s", d.key.IP,
					slices.Sorted(maps.Keys(d.suspected)), slices.Sorted(maps.Keys(d.confirmed)))
			}
		}
	}
	if len(s.first) > 0 && s.first[0] >= 0 {
		r.row("suspected at one of the nodes", "%d of %d, %s", len(s.first), len(list), spread(s.first))
	}
	r.inTime("suspected at both nodes", len(list), s.all, want.suspected)
	r.inTime("confirmed at both nodes", len(list), c.all, want.confirmed)
}

// lasted reports how many conflicts were resolved although nothing has changed, and fails the test if there
// is one.
func (r *report) lasted(list []*duplicate) {
	w := r.simulation.watch
	w.mu.Lock()
	defer w.mu.Unlock()
	n := 0
	for _, d := range list {
		n += d.resolved
	}
	r.row("resolved meanwhile", "%d at %d nodes (goal 0)", n, 2*len(list))
	if n > 0 {
		r.simulation.t.Errorf("%d of %d conflicts were resolved although they last", n, 2*len(list))
	}
}

// inTime reports how long something took with some of the duplicates, and fails the test if that was too long.
func (r *report) inTime(what string, duplicates int, took []time.Duration, goal time.Duration) {
	text := ""
	if goal > 0 {
		text = fmt.Sprintf(" (goal p99 %s)", goal)
		if p99 := quantile(took, 0.99); p99 > goal {
			r.simulation.t.Errorf("%s: p99 %s, want %s at most", what, p99, goal)
		}
	}
	r.row(what, "%d of %d, %s%s", len(took), duplicates, spread(took), text)
}

// knownTo reports how many of the nodes of each address know that they share it.
func (r *report) knownTo(list []*duplicate) {
	w := r.simulation.watch
	w.mu.Lock()
	suspecting, confirming, least, nodes := 0, 0, len(r.simulation.agents), 0
	for _, d := range list {
		suspecting += len(d.suspected)
		confirming += len(d.confirmed)
		least = min(least, len(d.suspected))
		nodes += d.nodes
	}
	w.mu.Unlock()
	r.row("holders whose node suspected it", "%d of %d, of one address %d at least", suspecting, nodes, least)
	r.row("holders whose node confirmed it", "%d of %d", confirming, nodes)
	if suspecting < nodes || confirming < nodes {
		r.simulation.t.Errorf("of %d holders %d were suspected and %d confirmed at their node", nodes, suspecting, confirming)
	}
}

// probesOf reports the verification of duplicates at some nodes: what they sent until now.
func (r *report) probesOf(list []*duplicate, nodes ...int) {
	for _, i := range nodes {
		c := &r.simulation.agents[i].count
		n := float64(len(list))
		r.row("probes of "+nodeName(i)+" per address", "%.2f sent, %.2f refused; %.2f probe requests",
			float64(c.probes.Load())/n, float64(c.refused.Load())/n, float64(c.requests.Load())/n)
	}
}

// sent reports what nodes have sent since the phase began.
func (r *report) sent() {
	all := r.since()
	bytes := make([]uint64, len(all))
	packets := make([]uint64, len(all))
	streamed := make([]uint64, len(all))
	var total simnet.Traffic
	for i, t := range all {
		bytes[i], packets[i], streamed[i] = t.Bytes+t.StreamBytes, t.Packets+t.StreamPackets, t.StreamBytes
		total = total.Add(t)
	}
	slices.Sort(bytes)
	slices.Sort(packets)
	r.row("sent by a node", "%s in %d packets; the busiest %s in %d", amount(mean(bytes)), mean(packets),
		amount(quantile(bytes, 1)), quantile(packets, 1))
	slices.Sort(streamed)
	r.row("of it by streams", "%s; the one with the most %s", amount(mean(streamed)), amount(quantile(streamed, 1)))
	if total.Overflowed > 0 {
		r.row("lost in full inboxes", "%d packets", total.Overflowed)
	}
}

// sentBy reports what some nodes have sent since the phase began, and the maximum of the others.
func (r *report) sentBy(nodes ...int) {
	all := r.since()
	most := uint64(0)
	for i, t := range all {
		if !slices.Contains(nodes, i) {
			most = max(most, t.Bytes+t.StreamBytes)
		}
	}
	for _, i := range nodes {
		r.row("sent by "+nodeName(i), "%s in %d packets", amount(all[i].Bytes+all[i].StreamBytes), all[i].Packets+all[i].StreamPackets)
	}
	r.row("sent by the busiest other node", "%s", amount(most))
}

// rate reports the cost of a node per second.
func (r *report) rate() {
	all, n := r.since(), now()
	seconds := n.virtual.Sub(r.was.virtual).Seconds()
	var total simnet.Traffic
	for _, t := range all {
		total = total.Add(t)
	}
	if *crowded > 0 {
		most := all[len(all)-1]
		r.row("sent by a crowded node", "%.0f B and %.2f packets a second",
			float64(most.Bytes+most.StreamBytes)/seconds, float64(most.Packets+most.StreamPackets)/seconds)
	}
	nodes := float64(len(all))
	r.row("sent by a node", "%.0f B and %.2f packets a second",
		float64(total.Bytes+total.StreamBytes)/nodes/seconds, float64(total.Packets+total.StreamPackets)/nodes/seconds)
	r.row("CPU of a node", "%.0f µs a second", (n.cpu-r.was.cpu).Seconds()*1e6/nodes/seconds)
	r.row("memory of a node", "%s", amount(heap()/uint64(len(all))))
}

func (r *report) since() []simnet.Traffic {
	all := r.simulation.traffic()
	for i := range all {
		all[i] = all[i].Sub(r.sentB[i])
	}
	return all
}

func spread(sorted []time.Duration) string {
	return fmt.Sprintf("p50 %s, p99 %s", quantile(sorted, 0.5).Round(time.Millisecond), quantile(sorted, 0.99).Round(time.Millisecond))
}

func mean(list []uint64) uint64 {
	sum := uint64(0)
	for _, n := range list {
		sum += n
	}
	return sum / uint64(max(1, len(list)))
}

func amount(bytes uint64) string {
	if bytes < 10_000 {
		return fmt.Sprintf("%d B", bytes)
	}
	return fmt.Sprintf("%d kB", (bytes+500)/1000)
}

// perNode is what has been counted since then, by name and on average.
func perNode(now, then map[*agent]map[string]uint64, nodes int) string {
	sum := make(map[string]uint64)
	for a, counts := range now {
		for name, n := range counts {
			sum[name] += n - then[a][name]
		}
	}
	var text []string
	for _, name := range slices.Sorted(maps.Keys(sum)) {
		if sum[name] > 0 {
			text = append(text, fmt.Sprintf("%s %.1f", name, float64(sum[name])/float64(nodes)))
		}
	}
	return strings.Join(text, ", ")
}

// realTime reads the real clock, which time.Now does not in a simulation.
func realTime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return time.Duration(ts.Nano())
}

// heap is what is alive in memory, in bytes.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// resident is the memory of the process in MiB.
func resident() int {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	var size, pages int
	_, _ = fmt.Sscan(string(b), &size, &pages)
	return pages * os.Getpagesize() >> 20
}
