package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"github.com/prometheus/procfs"
)

// Usage is what a process holds and has used, as the kernel counts it.
type Usage struct {
	// At is the time of the measurement.
	At time.Time
	// Files are open descriptors, Netns those of them that are network namespaces.
	Files, Netns, Threads int
	// RSS is the resident memory now and Peak the most it ever was, in bytes.
	RSS, Peak int
	// CPU is the time since the start, in ticks of 10 ms.
	CPU time.Duration
}

func (u Usage) String() string {
	return fmt.Sprintf("%d MiB (at most %d), %.2f s of CPU, %d files (%d netns), %d threads",
		u.RSS>>20, u.Peak>>20, u.CPU.Seconds(), u.Files, u.Netns, u.Threads)
}

// Cores is how many cores the process kept busy since an earlier usage.
func (u Usage) Cores(since Usage) float64 {
	return (u.CPU - since.CPU).Seconds() / u.At.Sub(since.At).Seconds()
}

// Usage is that of the process.
func (p *Process) Usage() (Usage, error) { return UsageOf(p.PID()) }

// UsageOf is the usage of a process.
func UsageOf(pid int) (u Usage, err error) {
	p, err := procfs.NewProc(pid)
	if err != nil {
		return u, err
	}
	stat, err := p.Stat()
	if err != nil {
		return u, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return u, err
	}
	u = Usage{
		At: time.Now(), Threads: stat.NumThreads, CPU: time.Duration(stat.CPUTime() * float64(time.Second)),
		RSS: int(status.VmRSS), Peak: int(status.VmHWM),
	}
	targets, err := p.FileDescriptorTargets()
	for _, t := range targets {
		if t == "" {
			continue // closed meanwhile
		}
		u.Files++
		if strings.HasPrefix(t, "net:[") || strings.HasPrefix(t, netnsDir+"/") {
			u.Netns++
		}
	}
	return u, err
}

// MapEntries counts the entries of the BPF hash maps that a process has open.
func MapEntries(pid int) (count int, err error) {
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	seen := make(map[string]bool)
	for _, path := range infos {
		info, _ := os.ReadFile(path) // it may be closed meanwhile
		_, id, isMap := strings.Cut(string(info), "map_id:")
		id, _, _ = strings.Cut(strings.TrimSpace(id), "\n")
		if !isMap || seen[id] {
			continue
		}
		seen[id] = true
		number, err := strconv.ParseUint(id, 10, 32)
		if err != nil {
			return 0, fmt.Errorf("read %s: %w", path, err)
		}
		n, err := entries(ebpf.MapID(number))
		if err != nil {
			return 0, fmt.Errorf("count the entries of BPF map %s: %w", id, err)
		}
		count += n
	}
	return count, err
}

// entries counts the entries of a hash map; it returns 0 for any other kind of map.
func entries(id ebpf.MapID) (count int, err error) {
	m, err := ebpf.NewMapFromID(id)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	if m.Type() != ebpf.Hash && m.Type() != ebpf.LRUHash {
		return 0, nil
	}
	var key, value []byte
	all := m.Iterate()
	for all.Next(&key, &value) {
		count++
	}
	return count, all.Err()
}
