package agent

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
)

// Node identifies one run of an agent on one node. The name alone is not enough: a node may be replaced
// by one of the same name while the old one is still up. Nothing here comes from a file that a disk
// image can copy to another machine.
type Node struct {
	Name string
	// BootID is the kernel's random id of this boot.
	BootID string
	// Epoch is the boot-time clock in nanoseconds at the start of the agent. A later agent in the same
	// boot has a higher one.
	Epoch int64
}

// ThisNode identifies the node; an empty name means the host name.
func ThisNode(name string) (Node, error) {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return Node{}, fmt.Errorf("reading the host name (set --node-name): %w", err)
		}
	}
	if len(name) > 253 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r > '~' || r == '/' }) {
		return Node{}, fmt.Errorf("node name %q: at most 253 printable ASCII characters without spaces and slashes", name)
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return Node{}, fmt.Errorf("reading the boot id (is /proc mounted?): %w", err)
	}
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock); err != nil {
		return Node{}, fmt.Errorf("reading the boot-time clock: %w", err)
	}
	return Node{Name: name, BootID: strings.TrimSpace(string(boot)), Epoch: clock.Nano()}, nil
}

// ID is the node as part of a holder's identity.
func (n Node) ID() string { return cluster.NodeID(n.Name, n.BootID) }
