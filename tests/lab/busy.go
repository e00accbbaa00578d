package lab

import (
	"fmt"
	"time"

	"github.com/prometheus/procfs"
)

// Busy is how busy the machine has been since it booted.
type Busy struct {
	// At is when that was asked.
	At time.Time
	// CPU is the time that all processors worked, Idle the time that they did not, and Waited the time in which something
	// that was ready had no processor (Documentation/accounting/psi.rst); 0 if the kernel does not count it.
	CPU, Idle, Waited time.Duration
}

// BusyNow asks the kernel.
func BusyNow() (Busy, error) {
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return Busy{}, err
	}
	stat, err := fs.Stat()
	b := Busy{At: time.Now()}
	seconds := func(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
	t := stat.CPUTotal // guests are in user and nice
	b.CPU = seconds(t.User + t.Nice + t.System + t.IRQ + t.SoftIRQ + t.Steal)
	b.Idle = seconds(t.Idle + t.Iowait)
	if pressure, none := fs.PSIStatsForResource("cpu"); none == nil && pressure.Some != nil {
		b.Waited = time.Duration(pressure.Some.Total) * time.Microsecond
	}
	return b, err
}

// Since says how busy the machine was since an earlier time.
func (b Busy) Since(earlier Busy) string {
	all := b.CPU + b.Idle - earlier.CPU - earlier.Idle
	passed := b.At.Sub(earlier.At)
	if all <= 0 || passed <= 0 {
		return "how busy the machine was is not known"
	}
	return fmt.Sprintf("for %.1f s the machine was %d%% busy, and something waited for a processor %d%% of the time", passed.Seconds(),
		100*(b.CPU-earlier.CPU)/all, 100*(b.Waited-earlier.Waited)/passed)
}
