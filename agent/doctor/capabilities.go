package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/solicit"
)

// needed are the capabilities of an agent, with what fails without them. CAP_BPF and
// CAP_PERFMON are not among them: CAP_SYS_ADMIN includes both, and nothing smaller lets
// enter a netns.
var needed = []struct {
	number  int
	name    string
	without string
}{
	{unix.CAP_SYS_ADMIN, "CAP_SYS_ADMIN", "no program is loaded without CAP_BPF and CAP_PERFMON, no pod's network namespace entered"},
	{unix.CAP_NET_ADMIN, "CAP_NET_ADMIN", "nothing is attached to interfaces"},
	{unix.CAP_NET_RAW, "CAP_NET_RAW", "no pod is asked for its addresses"},
	{unix.CAP_NET_BROADCAST, "CAP_NET_BROADCAST", "new addresses in running pods go unnoticed"},
}

func checkCapabilities(_ context.Context, known *facts) finding {
	if known.capsErr != nil {
		return fail("run as root", "the capabilities of this process cannot be read: %v", known.capsErr)
	}
	if known.uid != 0 {
		return fail("run as root: with sudo, or in a pod with runAsUser: 0", "this is user %d; the agent needs root", known.uid)
	}
	var missing, without []string
	for _, c := range needed {
		if !known.has(c.number) {
			missing = append(missing, c.name)
			without = append(without, fmt.Sprintf("without %s %s", c.name, c.without))
		}
	}
	if len(missing) > 0 {
		return fail(fmt.Sprintf("add %s to the container's securityContext.capabilities, or run it privileged: %s",
			// Manifests name them without the prefix.
			strings.ReplaceAll(listed(missing), "CAP_", ""), strings.Join(without, "; ")), "%s missing", listed(missing))
	}
	if known.userns {
		return fail("capabilities count for nothing there: set hostUsers: true in the pod, or leave the rootless container",
			"this is a user namespace of its own")
	}
	// Seccomp and security modules take rights away that the list above shows.
	if err := tryRights(); err != nil {
		return fail("the capabilities are there, so something else forbids it: see \"security\", and allow it in the seccomp, AppArmor or SELinux profile",
			"%v", err)
	}
	if !known.has(unix.CAP_SYS_PTRACE) {
		return warn("add SYS_PTRACE to the container's capabilities: without it a network namespace is only found when it has a name under /run/netns",
			"CAP_SYS_PTRACE missing")
	}
	return ok("all there")
}

// tryRights does what an agent does at its start and what does no harm.
func tryRights() error {
	if err := netns.CanEnter(); err != nil {
		return err
	}
	if err := links.CanWatch(); err != nil {
		return err
	}
	sender, err := solicit.Open(net.HardwareAddr(make([]byte, 6)))
	if err != nil {
		return err
	}
	return sender.Close()
}

func listed(names []string) string {
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " and " + names[last]
}
