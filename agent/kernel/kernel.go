// Package kernel knows what newer kernels have and an agent works without, and what is lost then. Every feature is probed, and none
// follows from the kernel's version: distributions bring features to older ones.
package kernel

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/bpf"
)

// Feature is one thing that newer kernels have.
type Feature struct {
	// Name is what it is, Since the version of Linux that brought it.
	Name, Since string
	// Cost is what is lost without.
	Cost string
	// has returns an error if it cannot find out.
	has func() (bool, error)
}

// What the kernels from Linux 5.10 on do not all have.
var (
	TCX = Feature{
		"tcx", "6.6", "macvlan, ipvlan and VLAN interfaces of pods are not observed, other tc programs may drop packets before dupip sees them, " +
			"and the filters of a killed agent stay until the next one starts", bpf.HasTCX,
	}
	Fdinfo = Feature{
		"inode in fdinfo", "5.14", "a network namespace that has lost its name, and that only a descriptor of a process leads to, is not found", tellsInodes,
	}
	Memory = Feature{
		"memory of BPF in control groups", "5.11", "it counts as locked memory, of which the agent needs any amount (CAP_SYS_RESOURCE, or " +
			"LimitMEMLOCK=infinity), and not for the limit of its container", bpf.InCgroups,
	}
	Features = []Feature{TCX, Fdinfo, Memory}
)

// String says in one line what is lost.
func (f Feature) String() string {
	return fmt.Sprintf("no %s, which Linux has since %s: %s", f.Name, f.Since, f.Cost)
}

// Lacks reports whether the kernel lacks the feature. An error says that it cannot be probed, for lack of rights.
func (f Feature) Lacks() (bool, error) {
	has, err := f.has()
	return !has && err == nil, err
}

// tellsInodes: fdinfo says which inode a descriptor has (seq_show, fs/proc/fd.c).
func tellsInodes() (bool, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	return strings.Contains(string(info), "\nino:"), err
}
