// Command bench measures what dupip costs and prints one table: each figure with the goal
// that the design sets for it. It judges nothing, and it needs root.
//
// It owns the order in which things are measured: what is compared is run in turns, so that
// whatever else the machine does hits all alike, and figures are medians. It sees the agent
// from outside, as a binary with an API, and package bpf by what that exports.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// settings say how long and how often to measure.
type settings struct {
	// rounds and repeat are how often each program is run, and with how many packets at
	// a time.
	rounds, repeat int
	// runs is how often each way of watching is put to the test, tcp and udp for how
	// long each time.
	runs     int
	tcp, udp time.Duration
	// batches of records are read from the ring; bursts go through an agent whose pods
	// announce, so many of them.
	batches, bursts, announcing int
	// pods are the sizes of the nodes, idle and talk how long they are looked at.
	pods       []int
	idle, talk time.Duration
	// duplicates are made in waves, so many at a time.
	waves, wave int
	// sandboxes are made on each node that has a container runtime, once in so many turns
	// (a multiple of four) and once more.
	sandboxes, turns int
}

var (
	// full takes about twelve minutes. Idle is as long as an agent takes to ask each of its
	// silent addresses once: half of five minutes, and ten percent more for some.
	full = settings{
		rounds: 31, repeat: 200_000, runs: 5, tcp: 2 * time.Second, udp: time.Second / 2,
		batches: 31, bursts: 5, announcing: 40,
		pods: []int{10, 100, 250}, idle: 165 * time.Second, talk: 30 * time.Second,
		waves: 20, wave: 5, sandboxes: 200, turns: 8,
	}
	// quick takes two minutes. It is for those who change the benchmark: its
	// figures are rough, and idle pods are not asked for in so short a time.
	quick = settings{
		rounds: 5, repeat: 50_000, runs: 1, tcp: time.Second / 2, udp: time.Second / 5,
		batches: 3, bursts: 2, announcing: 10,
		pods: []int{10, 50}, idle: 5 * time.Second, talk: 5 * time.Second,
		waves: 2, wave: 5, sandboxes: 20, turns: 4,
	}
)

// section is a part of the table that can be asked for by name.
type section struct {
	name string
	run  func(context.Context, settings) ([]block, error)
}

var sections = []section{
	{"packets", measurePackets},
	{"traffic", measureTraffic},
	{"ring", measureRing},
	{"usage", measureUsage},
	{"delay", measureDelay},
	{"sandboxes", measureSandboxes},
}

func main() {
	if readerAsked() {
		os.Exit(packetReader(os.Args[2:], os.Stdin, os.Stdout))
	}
	only := flag.String("only", "", "measure only these sections, with commas: "+strings.Join(names(), ", "))
	short := flag.Bool("quick", false, "a rough look in two minutes")
	flag.Parse()
	s := full
	if *short {
		s = quick
	}
	chosen, err := choose(*only)
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	quiet := context.AfterFunc(ctx, func() { fmt.Fprintln(os.Stderr, "\nInterrupted; cleaning up.") })
	err = run(ctx, s, chosen)
	interrupted := ctx.Err() != nil
	quiet()
	stop()
	lab.RemoveTemp()
	switch {
	case interrupted:
		os.Exit(130)
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func names() []string {
	var all []string
	for _, s := range sections {
		all = append(all, s.name)
	}
	return all
}

// choose returns the sections of a list with commas, all for an empty one.
func choose(only string) ([]section, error) {
	if only == "" {
		return sections, nil
	}
	wanted := strings.Split(only, ",")
	for _, name := range wanted {
		if !slices.Contains(names(), name) {
			return nil, fmt.Errorf("there is no section %q: choose from %s", name, strings.Join(names(), ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(sections), func(s section) bool { return !slices.Contains(wanted, s.name) }), nil
}

// run measures and prints. A section that fails does not keep the others from the table.
func run(ctx context.Context, s settings, chosen []section) error {
	began := time.Now()
	var blocks []block
	var errs []error
	for n, section := range chosen {
		// The table goes to a file as often as not: progress must not be in it.
		fmt.Fprintf(os.Stderr, "bench: %d of %d, %s\n", n+1, len(chosen), section.name)
		found, err := section.run(ctx, s)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		blocks = append(blocks, found...)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", section.name, err))
		}
	}
	if len(blocks) > 0 {
		fmt.Print(render(header(time.Since(began)), blocks))
	}
	return errors.Join(errs...)
}

// inLab runs f in a lab of its own and takes the lab down, whatever happens.
func inLab(ctx context.Context, f func(*lab.Lab) error) (err error) {
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	// Closing twice is fine: the context may have done it.
	defer func() { err = errors.Join(err, l.Close()) }()
	return f(l)
}
