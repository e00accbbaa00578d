package agent

import (
	"fmt"
	"os"
	"regexp"
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

// validNodeName admits the names of Kubernetes' nodes and of hosts. Commands that dupip prints have them.
var validNodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

const nodeNameRule = "1 to 253 letters, digits and . _ -, the first and the last a letter or a digit"

// ThisNode identifies the node by a name that [Options.Check] allows; an empty one means the host name.
func ThisNode(name string) (Node, error) {
	if name == "" {
		var err error
		if name, err = os.Hostname(); err != nil {
			return Node{}, fmt.Errorf("reading the host name (set --node-name): %w", err)
		}
		if !validNodeName.MatchString(name) { // Linux's is "(none)" until somebody sets it
			return Node{}, fmt.Errorf("the host name %.300q cannot name this node: give --node-name, %s", name, nodeNameRule)
		}
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
