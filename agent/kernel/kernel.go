// Package kernel knows what newer kernels have and an agent works without, and what is lost then. Every feature is probed, and none
// follows from the kernel's version: distributions bring features to older ones.
package kernel

import (
	"fmt"
	"os"
	"strings"

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

// Features are what the kernels from Linux 5.10 on do not all have, the newest first.
var Features = []Feature{
	{
		"tcx", "6.6", "macvlan, ipvlan and VLAN interfaces of pods are not observed; with --attach auto or tc, other tc programs may drop packets " +
			"before dupip sees them, and the filters of a killed agent stay until the next one starts", bpf.HasTCX,
	},
	{
		"fdinfo inodes", "5.14", "a network namespace that has lost its name, and that only a descriptor of a process leads to, is not found", hasInodes,
	},
	{
		"BPF in cgroup", "5.11", "its memory counts as locked memory, of which the agent needs an unlimited amount (CAP_SYS_RESOURCE, or " +
			"LimitMEMLOCK=infinity), and not for the limit of its container", bpf.InCgroups,
	},
}

// String says in one line what is lost.
func (f Feature) String() string {
	return fmt.Sprintf("no %s, which Linux has since %s: %s", f.Name, f.Since, f.Cost)
}

// Lacks reports whether the kernel lacks the feature. An error says that it cannot be probed, for lack of rights.
func (f Feature) Lacks() (bool, error) {
	has, err := f.has()
	return !has && err == nil, err
}

// hasInodes: fdinfo says which inode a descriptor has (seq_show, fs/proc/fd.c).
func hasInodes() (bool, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return false, err
	}
	defer file.Close()
	info, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", file.Fd()))
	return strings.Contains(string(info), "\nino:"), err
}
