package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/links"
)

// startTime is how long an agent may be busy with its start.
const startTime = 30 * time.Second

// checkAgent: does one run, is it ready, is it of our version, and is it alone?
func checkAgent(_ context.Context, known *facts) finding {
	s := known.status
	if s == nil {
		return noAgent(known)
	}
	up := time.Since(s.Started).Round(time.Second)
	text := fmt.Sprintf("%s on node %s, up %v", s.Version, s.Node, up)
	switch {
	case !s.Ready && up > startTime:
		return fail("read its log (kubectl logs, journalctl): the last lines say what it waits for", "%s, and still not ready", text)
	case !s.Ready:
		return warn("ask again in a moment", "%s, still starting", text)
	case known.opts.Version != "" && s.Version != known.opts.Version:
		return warn("use the dupip of the agent, or restart the agent: they may differ in what they know",
			"%s; this program is %s", text, known.opts.Version)
	}
	return ok("%s, ready", text)
}

func noAgent(known *facts) finding {
	path := known.opts.APISocket
	info, err := os.Lstat(path)
	switch {
	case errors.Is(known.statusErr, context.DeadlineExceeded):
		return fail("restart it; its log may say what it waits for", "something accepts at %s and does not answer", path)
	case locked():
		return fail("name its socket with --api-socket, or stop it: a second agent is refused",
			"an agent runs on this node, but does not answer at %s", path)
	case errors.Is(err, fs.ErrPermission), err == nil && known.uid != 0:
		return skip("whether one runs needs root to be seen")
	case err == nil && info.Mode().Type() == fs.ModeSocket && !refused(known.statusErr):
		return fail("see what listens there (ss -xlp), or choose another --api-socket", "%v", known.statusErr)
	}
	return warn("start one (dupip agent); one that ended says why in the last line of its log", "none runs here")
}

// refused says whether the client found nobody, rather than somebody strange.
func refused(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "no agent is running")
}

// agentLock is the abstract socket that keeps agents from being two in one netns.
const agentLock = "@dupip-agent"

// locked says whether an agent runs in our netns. It reads the kernel's list: taking the
// lock to see would keep an agent out that starts at this moment.
func locked() bool {
	file, err := os.Open("/proc/thread-self/net/unix")
	if err != nil {
		return false
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 8 && fields[7] == agentLock {
			return true
		}
	}
	return false
}

// checkInterfaces translates what the agent says of its interfaces.
func checkInterfaces(_ context.Context, known *facts) finding {
	s := known.status
	if s == nil {
		return skip("told by a running agent")
	}
	unseen := s.ByState["unseen netns"]
	attached := plural(s.ByState[string(links.Attached)], "interface") + " observed"
	reasons := func(state links.State) string {
		var list []string
		for _, i := range s.Interfaces {
			if i.State == string(state) {
				list = append(list, fmt.Sprintf("%s (%s)", i.Name, i.Reason))
			}
		}
		return some(list)
	}
	switch {
	case s.ByState[string(links.Failed)] > 0:
		return fail("the reason is in brackets; where a tc filter has priority 1 (the bandwidth plugin), nothing but --attach tcx helps",
			"%s; failed: %s", attached, reasons(links.Failed))
	case s.ByState[string(links.Shadowed)] > 0:
		return warn("another program (Cilium, an XDP firewall) sees packets first and may swallow them: bpftool net names it; restarting the agent puts it in front again, of tcx programs",
			"%s; shadowed: %s", attached, reasons(links.Shadowed))
	case unseen > 0:
		return warn("see \"processes\" and \"netns names\", of the agent's own container",
			"%s; behind %d of them no network namespace was found", attached, unseen)
	case s.ByState[string(links.Waiting)] > 0:
		return ok("%s; waiting: %s", attached, reasons(links.Waiting))
	}
	return ok("%s", attached)
}

// harmless are drops that are part of ordinary life: last words of a pod that has ended,
// what was seen too long ago to matter, and claims of other nodes that meet nobody here or
// did not stand up to questions.
var harmless = []string{"interface gone", "older than the TTL", "no holder here", "unanswered"}

// dropAdvice says what to do about drops, by the reason in the agent's status.
var dropAdvice = map[string]string{
	"packets over the limits":         "a pod sends from very many addresses, or answers for them: look into the pods named",
	"packets while the ring was full": "the agent does not keep up: give it more CPU (resources.limits.cpu)",
	"early":                           "the agent does not keep up with new pods: give it more CPU (resources.limits.cpu)",
	"waiting for a look":              "a pod changes its addresses faster than they can be read: dupip status -o wide names it",
	"too many VLANs":                  "a pod sends with very many VLAN tags: dupip status -o wide names it",
	"too many addresses":              "a pod has very many addresses: not all of them are asked for",
	"solicitation rate":               "more addresses wait for verification than are asked for in a second: it takes longer",
	"questions of other nodes":        "other nodes ask for more addresses than are verified at a time: it takes longer",
	"interface full":                  "one interface has more addresses than are kept: the pods named may spoof",
	"table full":                      "the node has more addresses than the table holds",
	"key full":                        "one address has more holders than are kept",
}

// checkDrops translates what the agent did not look at.
func checkDrops(_ context.Context, known *facts) finding {
	s := known.status
	if s == nil {
		return skip("told by a running agent")
	}
	var parts, advice []string
	for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
		n := s.Dropped[reason]
		if n == 0 || slices.Contains(harmless, reason) {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d %s", n, reason))
		text := dropAdvice[strings.TrimPrefix(reason, "evicted: ")]
		if text != "" && !slices.Contains(advice, text) {
			advice = append(advice, text)
		}
	}
	if len(parts) == 0 {
		return ok("none")
	}
	text := strings.Join(parts, ", ") + " since the agent's start"
	if names := refusing(s.Interfaces); len(names) > 0 {
		text += "; most at " + some(names)
	}
	if len(advice) == 0 {
		advice = []string{"dupip status -o wide tells more"}
	}
	return warn(strings.Join(advice, "; "), "%s", text)
}

// refusing names the interfaces with refused packets, the worst first.
func refusing(interfaces []api.InterfaceStatus) []string {
	count := func(i api.InterfaceStatus) uint64 {
		if r := i.Refused; r != nil {
			return r.Data + r.Announced + r.Answers + r.RingFull
		}
		return 0
	}
	worst := slices.DeleteFunc(slices.Clone(interfaces), func(i api.InterfaceStatus) bool { return count(i) == 0 })
	slices.SortStableFunc(worst, func(a, b api.InterfaceStatus) int {
		return cmp.Compare(count(b), count(a))
	})
	var names []string
	for _, i := range worst {
		name := i.Name
		if i.Netns != "" {
			name += " (" + i.Netns + ")"
		}
		names = append(names, name)
	}
	return names
}
