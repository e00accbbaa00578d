package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
	"github.com/dupip/dupip/tests/testjson"
)

// runner runs parts, those of each lane in their order.
type runner struct {
	out     io.Writer
	workers workers
	began   time.Time
	busy    *history

	mu      sync.Mutex
	changed *sync.Cond // of what follows
	waiting []part
	ended   map[string]bool // of those that have begun
	results []*result
}

func newRunner(chosen []part, out io.Writer) *runner {
	r := &runner{out: out, workers: together, waiting: slices.Clone(chosen), ended: make(map[string]bool), busy: new(history)}
	r.changed = sync.NewCond(&r.mu)
	return r
}

// run runs all parts and returns what became of them.
func (r *runner) run(ctx context.Context) *report {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.changed.Broadcast()
	})()
	r.began = time.Now()
	before, _ := lab.BusyNow()
	go r.busy.watch(ctx)
	var all sync.WaitGroup
	for l, n := range r.workers {
		for range n {
			all.Go(func() { r.work(ctx, l) })
		}
	}
	all.Wait()
	if ctx.Err() == nil {
		for _, p := range r.waiting {
			r.results = append(r.results, &result{Name: p.name, Budget: p.budget, Why: p.why, Err: "no worker took it"})
		}
	}
	after, _ := lab.BusyNow()
	return &report{Parts: r.results, Seconds: time.Since(r.began).Seconds(), CPU: (after.CPU - before.CPU).Seconds()}
}

// work runs the parts of a lane, one after the other, and then those that are left of spare.
func (r *runner) work(ctx context.Context, l lane) {
	for {
		p, ok := r.next(ctx, l)
		if ctx.Err() != nil || !ok && l != timed {
			return
		}
		if !ok {
			l = spare
			continue
		}
		res := r.play(ctx, p)
		r.mu.Lock()
		r.ended[p.name] = true
		r.results = append(r.results, res)
		res.print(r.out)
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// next waits for the next part of a lane that can begin. It returns false if there is none any more, or ctx has ended.
func (r *runner) next(ctx context.Context, l lane) (part, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		left := false
		for i, p := range r.waiting {
			if p.lane != l && l != anyLane {
				continue
			}
			left = true
			if !slices.ContainsFunc(p.after, r.pending) {
				r.waiting = slices.Delete(r.waiting, i, i+1)
				r.ended[p.name] = false
				fmt.Fprintf(r.out, "-- %s begins\n", p.name)
				return p, true
			}
		}
		if !left || ctx.Err() != nil {
			return part{}, false
		}
		r.changed.Wait()
	}
}

// pending returns whether a part waits or runs. One that was not chosen does not.
func (r *runner) pending(name string) bool {
	ended, began := r.ended[name]
	return began && !ended || slices.ContainsFunc(r.waiting, func(p part) bool { return p.name == name })
}

// play runs a part.
func (r *runner) play(ctx context.Context, p part) *result {
	began := time.Now()
	res := &result{Name: p.name, Budget: p.budget, Why: p.why, began: began.Sub(r.began)}
	// A file: nobody waits for a process that is left behind and holds a pipe open.
	log, err := os.CreateTemp("", "dupip-ci-")
	if err != nil {
		res.Err = err.Error()
		return res
	}
	defer os.Remove(log.Name())
	defer log.Close()
	if err := res.play(ctx, p, log); err != nil {
		res.Err = err.Error()
	}
	res.Seconds = time.Since(began).Seconds()
	text, err := os.ReadFile(log.Name())
	if err != nil {
		text = []byte(err.Error())
	}
	if p.script != "" {
		res.log = string(text)
	} else {
		res.read(text, r.busy)
		if res.Err == "" && !slices.ContainsFunc(res.Tests, func(t *testjson.Test) bool { return t.Action == "pass" }) {
			res.Err = "no test has passed"
		}
	}
	return res
}

// play runs a part with its output in a file.
func (res *result) play(ctx context.Context, p part, log *os.File) error {
	ctx, cancel := context.WithTimeoutCause(ctx, p.limit()+30*time.Minute, errors.New("it did not end"))
	defer cancel()
	cmd := p.command(ctx)
	// A session is a scheduling group, whose share does not depend on how many threads it has (sched(7), autogroup).
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	// The go command waits then until its tests have cleaned up.
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGINT) }
	cmd.WaitDelay = time.Minute
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return err
	}
	// Where there is no such group, the processes' own level counts.
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/autogroup", cmd.Process.Pid), []byte(p.niceness()), 0)
	err := cmd.Wait()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	// What a part that was interrupted, or crashed, has left.
	endSession(cmd.Process.Pid)
	if u, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		res.CPU = time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
	}
	return err
}

// endSession ends what is left of a session: some programs start others in process groups of their own. It looks until nothing is left,
// because one may have started another meanwhile; for 10 s, because one that waits for a device cannot be ended.
func endSession(id int) {
	_ = lab.Poll(context.Background(), 10*time.Second, func() error {
		all, err := procfs.AllProcs()
		if err != nil {
			return lab.Final(err)
		}
		for _, p := range all {
			if stat, statErr := p.Stat(); statErr == nil && stat.Session == id && stat.State != "Z" {
				err = fmt.Errorf("process %d is left", p.PID)
				_ = unix.Kill(p.PID, unix.SIGKILL)
			}
		}
		return err
	})
}

// command is what runs a part. The working directory is that of the tests' module.
func (p part) command(ctx context.Context) *exec.Cmd {
	args := []string{"bash", "-euc", p.script}
	if p.script == "" {
		// The part lint vets.
		args = []string{"go", "test", "-json", "-vet=off", "-count=1", "-timeout=" + p.limit().String()}
		if p.ordinary {
			path, _ := filepath.Abs("as-user.sh") // fails if the working directory is gone
			args = append(args, "-exec='"+path+"'")
		}
		args = slices.Concat(args, p.packages, p.flags) // what go test does not know ends the packages
	}
	cmd := exec.CommandContext(ctx, "nice", slices.Concat([]string{"-n", p.niceness()}, args)...)
	cmd.Dir = filepath.Join("..", p.module)
	cmd.Env = append(os.Environ(), slices.Concat([]string{"CI=true", "DUPIP_TEST_SLOW=1"}, p.env)...)
	return cmd
}

// limit is how long a part's tests may take.
func (p part) limit() time.Duration { return cmp.Or(p.timeout, 30*time.Minute) }

// history is how busy the machine was, second by second.
type history struct {
	mu  sync.Mutex
	all []lab.Busy
}

func (h *history) watch(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		if b, err := lab.BusyNow(); err == nil {
			h.mu.Lock()
			h.all = append(h.all, b)
			h.mu.Unlock()
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// during says how busy the machine was from one time to another.
func (h *history) during(from, to time.Time) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var first, last lab.Busy
	for _, b := range h.all {
		if !b.At.After(from) || first.At.IsZero() {
			first = b
		}
		last = b
		if b.At.After(to) {
			break
		}
	}
	return last.Since(first)
}
