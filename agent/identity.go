package agent

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
)

// validNodeName admits the names of Kubernetes' nodes and of hosts. Commands that dupip prints have them.
var validNodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

const nodeNameRule = "1 to 253 letters, digits and . _ -, the first and the last a letter or a digit"

// ThisNode identifies this run of an agent by the node's name, one that [Options.Check] allows; an empty one means the host name. The name
// alone is not enough: a node may be replaced by one of the same name while the old one is still up. Nothing here comes from a
// file that a disk image can copy to another machine.
func ThisNode(name, version string) (cluster.Member, error) {
	self := cluster.Member{Name: name, Version: version, Self: true, State: cluster.Alive, Since: time.Now()}
	if name == "" {
		var err error
		if self.Name, err = os.Hostname(); err != nil {
			return self, fmt.Errorf("reading the host name (set --node-name): %w", err)
		}
		if !validNodeName.MatchString(self.Name) { // Linux's is "(none)" until somebody sets it
			return self, fmt.Errorf("the host name %.300q cannot name this node: give --node-name, %s", self.Name, nodeNameRule)
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return self, fmt.Errorf("reading the boot id (is /proc mounted?): %w", err)
	}
	self.Boot = strings.TrimSpace(string(boot))
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock); err != nil {
		return self, fmt.Errorf("reading the boot-time clock: %w", err)
	}
	self.Epoch = clock.Nano()
	return self, nil
}
