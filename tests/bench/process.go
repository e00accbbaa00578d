package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

// cpuTime is the CPU time that all threads of a process have had, to the nanosecond: the
// ticks of /proc/PID/stat are as long as an idle agent works in four seconds.
func cpuTime(pid int) (time.Duration, error) {
	// MAKE_PROCESS_CPUCLOCK with CPUCLOCK_SCHED, linux/posix-timers_types.h.
	clock := int32(^pid<<3 | 2)
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// threadTime is the CPU time of the calling thread: what other processes do meanwhile is not
// in it.
func threadTime() time.Duration {
	var t unix.Timespec
	// It fails for no clock that exists.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return time.Duration(t.Nano())
}

// residentBytes is the memory that a process has in RAM (VmRSS).
func residentBytes(pid int) (int, error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, fmt.Errorf("read the memory of a process: %w", err)
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "VmRSS:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
			}
			return kilobytes << 10, nil
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: no VmRSS", pid)
}

// child is a process in the netns of a node that ends with us.
type child struct {
	cmd    *exec.Cmd
	exited chan struct{}
	err    error
}

// startChild starts a command in the netns of a node. The lab stops it.
func startChild(l *lab.Lab, n *lab.Node, cmd *exec.Cmd) (*child, error) {
	c := &child{cmd: cmd, exited: make(chan struct{})}
	if err := n.Launch(cmd, func(err error) {
		c.err = err
		close(c.exited)
	}); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	l.OnClose(c.stop)
	return c, nil
}

func (c *child) pid() int { return c.cmd.Process.Pid }

// stop ends the process and waits. How it ended does not matter: it was told to. It may be
// called more than once.
func (c *child) stop() error {
	for _, s := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if err := c.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("stop %s: %w", c.cmd.Path, err)
		}
		select {
		case <-c.exited:
			return nil
		case <-time.After(5 * time.Second):
		}
	}
	return fmt.Errorf("stop %s: it does not end", c.cmd.Path)
}

// lastWords are the last lines of an agent's log, for errors.
func lastWords(a *lab.Agent) string {
	lines := slices.Collect(strings.Lines(a.Log()))
	return strings.Join(lines[max(0, len(lines)-10):], "")
}
