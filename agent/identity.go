package agent

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
)

// Node identifies one agent's life on one node. A name alone is not enough: a node
// may be replaced by its namesake while the old one is still up. Nothing here is
// read from a file that a disk image can carry from one machine to another.
type Node struct {
	Name string
	// BootID is the kernel's random id of this boot.
	BootID string
	// Epoch is the boot-time clock in nanoseconds when the agent started: a later
	// agent on the same boot has a higher one.
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
