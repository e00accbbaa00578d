// Command ci runs the parts of CI: those that measure time together with those that keep the processors busy. It prints the output of
// each part when it ends, and at the end what each took of its budget.
//
//	make test                     what CI runs
//	make test PARTS=e2e,lint      some parts
//	make quick                    what a developer runs before a commit
//
// Its other flags are for work on the tests themselves, in the folder tests: -set timed -busy -times 10 runs all that measures time
// ten times beside a busy loop; -table WARM,COLD, with the names of two files that runs have left as bin/ci.json, makes the table of
// tests/README.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "ci:", err)
		os.Exit(1)
	}
}

func run() error {
	set := flag.String("set", "ci", "which `parts`: "+strings.Join(sets(), ", "))
	only := flag.String("only", "", "`names` of parts, separated by commas, instead of a set")
	times := flag.Int("times", 1, "how often each part runs")
	busy := flag.Bool("busy", false, "keep one processor busy meanwhile")
	record := flag.String("record", "../bin/ci.json", "`file` to write the figures to, as JSON")
	tables := flag.String("table", "", "write the table of tests/README.md from two `records`, one with a warm and one with a cold cache, and run nothing")
	flag.Parse()
	if flag.NArg() > 0 {
		return fmt.Errorf("%q is no flag", flag.Arg(0))
	}
	if *tables != "" {
		return writeTable(*tables)
	}
	chosen, err := choose(*set, *only)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	defer stop()
	if err := install(chosen); err != nil {
		return err
	}
	if *times < 1 {
		return errors.New("-times must be 1 or more")
	}
	if *busy {
		go spin()
	}
	var all report
	for n := 0; n < *times && ctx.Err() == nil; n++ {
		r := newRunner(chosen, os.Stdout)
		if *set == "release" {
			r.workers = alone
		}
		all.add(r.run(ctx))
	}
	all.print(os.Stdout)
	if err := all.write(*record); err != nil {
		return err
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if bad := all.failed(); len(bad) > 0 {
		return errors.New("failed: " + strings.Join(bad, ", "))
	}
	return nil
}

// install installs what parts need. Only one may install at a time.
func install(chosen []part) error {
	var targets []string
	for _, p := range chosen {
		targets = append(targets, strings.Fields(p.install)...)
	}
	if targets == nil {
		return nil
	}
	slices.Sort(targets)
	cmd := exec.Command("./install.sh", slices.Compact(targets)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// spin keeps the first processor busy.
func spin() {
	runtime.LockOSThread()
	var one unix.CPUSet
	one.Set(0)
	_ = unix.SchedSetaffinity(0, &one)
	for turns := uint64(0); ; turns++ {
	}
}
