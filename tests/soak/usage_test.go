package soak

import (
	"fmt"
	"os"
	"strings"
	"time"
)

// usage is what an agent's process takes.
type usage struct {
	rss int // MiB
	cpu time.Duration
}

func (u usage) String() string { return fmt.Sprintf("%d MiB, %.1f s of CPU", u.rss, u.cpu.Seconds()) }

// usage is that of the agents that run now.
func (s *soak) usage() []usage {
	var all []usage
	for _, a := range s.agents {
		all = append(all, usageOf(a.PID()))
	}
	return all
}

// usageOf reads what the kernel knows of a process (proc(5)); zero if it is gone.
func usageOf(pid int) (u usage) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return u
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(rest, &u.rss)
			u.rss >>= 10
		}
	}
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return u
	}
	// After the name, which may contain anything: utime and stime are the 12th and the
	// 13th field, in hundredths of a second.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	if len(fields) > 12 {
		var user, system int
		_, _ = fmt.Sscan(fields[11], &user)
		_, _ = fmt.Sscan(fields[12], &system)
		u.cpu = time.Duration(user+system) * 10 * time.Millisecond
	}
	return u
}
