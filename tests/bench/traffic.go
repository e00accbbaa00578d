package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// runs are what the runs of one kind of traffic gave under one way to watch.
type runs struct {
	// rate is in gigabytes or in millions of packets per second.
	rate []float64
	// cpu is the CPU time of the watching process and sender that of the sending thread, in
	// seconds per gigabyte or per million packets.
	cpu, sender []float64
	// missed is the share of frames that the watcher lost.
	missed []float64
}

func measureTraffic(ctx context.Context, s settings) (blocks []block, err error) {
	err = inLab(ctx, func(l *lab.Lab) error {
		blocks, err = compareTraffic(ctx, l, s, watchings)
		return err
	})
	return blocks, err
}

// compareTraffic sends the same traffic under each way of watching, in turns.
func compareTraffic(ctx context.Context, l *lab.Lab, s settings, ways []watching) ([]block, error) {
	st, err := newStage(l)
	if err != nil {
		return nil, err
	}
	tcp, udp := make(map[string]*runs), make(map[string]*runs)
	for _, way := range ways {
		tcp[way.what], udp[way.what] = new(runs), new(runs)
	}
	for round := range s.runs {
		for i := range ways {
			// Each round begins with another, so that none has always the same before it.
			way := ways[(i+round)%len(ways)]
			if err := st.play(ctx, way, s, tcp[way.what], udp[way.what]); err != nil {
				return nil, fmt.Errorf("%s: %w", way.what, err)
			}
		}
	}
	streams := block{
		title: fmt.Sprintf("ONE TCP STREAM, pod to pod over a bridge (%d runs of %s, in turns)", s.runs, s.tcp),
		rows:  trafficRows(ways, tcp, tcpFigures),
	}
	unobserved := tcp[watchings[0].what].rate
	goal := gigabits(unobserved) + " Gb/s"
	for i, r := range streams.rows {
		if strings.HasPrefix(r.what, "dupip") {
			streams.rows[i].goal = goal
		}
	}
	small := block{
		title: fmt.Sprintf("SMALL PACKETS, the same way (frames of 60 bytes, %d runs of %s)", s.runs, s.udp),
		rows:  trafficRows(ways, udp, udpFigures),
		notes: []string{
			"CPU is that of the watching process. For small packets: of the sending thread, which",
			"carries them all the way, + of the watching process.",
			"arpwatch listens on the bridge, to ARP only: no IPv6, and nobody who does not ask.",
			"The packet reader reads every frame that comes in at the two pods' interfaces.",
		},
	}
	return []block{streams, small}, nil
}

func newStage(l *lab.Lab) (*stage, error) {
	n, err := l.AddNode("")
	if err != nil {
		return nil, err
	}
	s := &stage{lab: l, node: n}
	if s.from, err = n.AddPod("sender", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(10)}}); err != nil {
		return nil, err
	}
	if s.to, err = n.AddPod("receiver", lab.PodOptions{Addrs: []netip.Addr{n.IPv4(11)}}); err != nil {
		return nil, err
	}
	return s, s.from.Ping(s.to.Addrs()[0])
}

// play sends both kinds of traffic under one way of watching.
func (s *stage) play(ctx context.Context, way watching, set settings, tcp, udp *runs) (err error) {
	w := &watcher{}
	if way.begin != nil {
		if w, err = way.begin(ctx, s); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, w.stop()) }()
	}
	if err := w.take(tcp, 1e9, func() (sending, error) { return sendTCP(ctx, s.from, s.to, set.tcp) }); err != nil {
		return fmt.Errorf("tcp: %w", err)
	}
	if err := w.take(udp, 1e6, func() (sending, error) { return sendUDP(ctx, s.from, s.to, set.udp) }); err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	return nil
}

// take adds a run: how much of a unit went through in which time, and what it cost.
func (w *watcher) take(r *runs, unit float64, send func() (sending, error)) error {
	cpuBefore, countsBefore, err := w.sample()
	if err != nil {
		return err
	}
	sent, err := send()
	if err != nil {
		return err
	}
	amount := float64(sent.arrived) / unit
	if amount == 0 {
		return errors.New("nothing arrived")
	}
	cpuAfter, countsAfter, err := w.sample()
	if err != nil {
		return err
	}
	r.rate = append(r.rate, amount/sent.took.Seconds())
	r.sender = append(r.sender, sent.cpu.Seconds()/amount)
	if w.pid != 0 {
		r.cpu = append(r.cpu, (cpuAfter-cpuBefore).Seconds()/amount)
	}
	seen, lost := countsAfter.Seen-countsBefore.Seen, countsAfter.Lost-countsBefore.Lost
	if w.counts != nil && seen+lost > 0 {
		r.missed = append(r.missed, float64(lost)/float64(seen+lost))
	}
	return nil
}

// sample reads what the watcher has used and counted, once it has dealt with what waits in its
// sockets.
func (w *watcher) sample() (cpu time.Duration, counts readerCounts, err error) {
	if w.counts != nil {
		for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
			before := counts
			if counts, err = w.counts(); err != nil {
				return 0, counts, err
			}
			if counts == before || time.Now().After(deadline) {
				break
			}
		}
	}
	if w.pid != 0 {
		cpu, err = cpuTime(w.pid)
	}
	return cpu, counts, err
}

// tcpFigures and udpFigures tell what came of one way to watch.
func tcpFigures(r *runs, watched bool) string {
	if !watched {
		return fmt.Sprintf("%6s Gb/s (%s in %d runs)", digits(8*median(r.rate)), gigabits(r.rate), len(r.rate))
	}
	return fmt.Sprintf("%6s Gb/s, CPU %s ms/GB", digits(8*median(r.rate)), digits(1e3*median(r.cpu)))
}

// digits has three of them, or as many as there are before the point.
func digits(v float64) string {
	if v >= 1000 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// gigabits is the range of rates in GB/s, in Gb/s.
func gigabits(rates []float64) string {
	return digits(8*slices.Min(rates)) + "–" + digits(8*slices.Max(rates))
}

func udpFigures(r *runs, watched bool) string {
	text := fmt.Sprintf("%6.2f M/s, %5.0f", median(r.rate), 1e3*median(r.sender))
	if watched {
		text += fmt.Sprintf(" + %.0f", 1e3*median(r.cpu))
	}
	return text + " ns"
}

// trafficRows makes the rows of one kind of traffic.
func trafficRows(ways []watching, all map[string]*runs, figures func(r *runs, watched bool) string) []row {
	var rows []row
	for _, way := range ways {
		if slices.ContainsFunc(rows, func(r row) bool { return r.what == way.what }) {
			continue // a way that is taken twice has one row
		}
		r := all[way.what]
		line := row{what: way.what, figure: figures(r, way.begin != nil)}
		if len(r.missed) > 0 {
			line.figure += fmt.Sprintf(", missed %.0f%%", 100*median(r.missed))
		}
		rows = append(rows, line)
	}
	return rows
}
