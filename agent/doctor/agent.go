package doctor

import (
	"bytes"
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
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

// checkAgent checks whether an agent runs, is ready, and has our version.
func checkAgent(_ context.Context, known *facts) Check {
	s := known.status
	if s == nil {
		return noAgent(known)
	}
	up := time.Since(s.Started).Round(time.Second)
	text := fmt.Sprintf("%s on node %s, up %v", s.Version, s.Node, up)
	switch {
	case !s.Ready && up > 30*time.Second:
		return fail("read its log (kubectl logs, journalctl): the last lines say what it waits for", "%s, and still not ready", text)
	case !s.Ready:
		return warn("run dupip doctor again", "%s, still starting", text)
	case known.opts.Version != "" && s.Version != known.opts.Version:
		return warn("use the dupip of the agent, or restart the agent: different versions may not understand each other", "%s; this program is %s", text, known.opts.Version)
	}
	return ok("%s, ready", text)
}

func noAgent(known *facts) Check {
	path := known.opts.APISocket
	info, err := os.Lstat(path)
	// An agent's lock is an abstract socket. The doctor does not take it: an agent may be starting.
	sockets, _ := os.ReadFile("/proc/thread-self/net/unix")
	switch {
	case errors.Is(known.statusErr, context.DeadlineExceeded):
		return fail("restart it; its log may say what it waits for", "a process accepts connections at %s and does not answer", path)
	case bytes.Contains(sockets, []byte(" @dupip-agent\n")):
		return fail("name its socket with --api-socket, or stop it: a second agent is refused", "an agent runs on this node, but does not answer at %s", path)
	case errors.Is(err, fs.ErrPermission), err == nil && known.uid != 0:
		return skip("only root can see whether one runs")
	case err == nil && info.Mode().Type() == fs.ModeSocket && !errors.Is(known.statusErr, api.ErrNoAgent):
		return fail("see what listens there (ss -xlp), or choose another --api-socket", "%v", known.statusErr)
	}
	return warn("start one (dupip agent); one that ended says why in the last line of its log", "none runs here")
}

// checkInterfaces finds what the agent does not observe, and why.
func checkInterfaces(_ context.Context, known *facts) Check {
	s := known.status
	text := say.Plural(s.ByState[string(links.Attached)], "interface", "interfaces") + " observed"
	for _, worst := range []struct {
		state  links.State
		status Status
		advice string
	}{
		{links.Failed, Fail, "the reason is in brackets; where a tc filter has priority 1 (the bandwidth plugin), nothing but --attach tcx helps"},
		{links.Shadowed, Warn, "another program (Cilium, an XDP firewall) runs first and may drop packets: bpftool net names it; a restarted agent runs before other tcx programs"},
		{"unseen netns", Warn, "their network namespaces are not found: see \"processes\" and \"netns names\", of the agent's own container; what leads out of the node belongs into ignore: interfaces of the configuration"},
		{links.Waiting, OK, ""},
		{links.Pending, OK, ""},
	} {
		n := s.ByState[string(worst.state)]
		if n == 0 {
			continue
		}
		var names []string
		for _, i := range s.Interfaces {
			if i.State == string(worst.state) {
				names = append(names, fmt.Sprintf("%s (%s)", i.Name, i.Reason))
			}
		}
		// The agent counts "unseen netns", but it is no state.
		return outcome(worst.status, worst.advice, "%s; %s: %s", text, worst.state, cmp.Or(detector.List(names), fmt.Sprint(n)))
	}
	return ok("%s", text)
}

// dropAdvice is what to do about drops that are not normal, by the reason in the agent's status.
var dropAdvice = map[string]string{
	"packets over the limits":         "a pod sends from very many addresses, or answers for them: look into the pods named",
	"packets while the ring was full": "the agent does not keep up: give it more CPU (resources.limits.cpu)",
	"early":                           "the agent does not keep up with new pods: give it more CPU (resources.limits.cpu)",
	"waiting for a scan":              "a pod changes its addresses faster than they can be read: dupip status -o wide names it",
	"too many VLANs":                  "a pod sends with very many VLAN tags: dupip status -o wide names it",
	"interfaces of one holder":        "one pod has an address on more than four interfaces",
	"too many addresses":              "a pod has very many addresses: not all of them are probed",
	"solicitation rate":               "more addresses wait for verification than are probed in a second: it takes longer",
	"probe requests of other nodes":   "other nodes request more verifications than run at a time: it takes longer",
	"interface full":                  "one interface has more addresses than are kept: the pods named may spoof",
	"table full":                      "the node has more addresses than the table holds",
	"key full":                        "one address has more holders than are kept",
	"live migrations":                 "more than 256 virtual machines migrated in ten minutes, or pods pretend it: the migrations of others are conflicts",

	"too many addresses, devices or routes of a pod": "a pod has very many addresses or devices: not all of them are known",
	"memory of a pod's own probes full":              "a pod probes very many addresses: it may scan",
}

// checkDrops finds what the agent dropped.
func checkDrops(_ context.Context, known *facts) Check {
	s := known.status
	var parts, advice []string
	for _, reason := range slices.Sorted(maps.Keys(s.Dropped)) {
		kind := strings.TrimPrefix(reason, "evicted: ")
		if s.Dropped[reason] == 0 || document.NormalDrops[kind] != "" {
			continue
		}
		parts = append(parts, fmt.Sprintf("%d %s", s.Dropped[reason], reason))
		advice = append(advice, cmp.Or(dropAdvice[kind], "dupip status -o wide has details"))
	}
	if s.HostAddressesOmitted > 0 {
		parts = append(parts, fmt.Sprintf("%d of the node's own addresses are not compared", s.HostAddressesOmitted))
		advice = append(advice, "the node has more addresses than an agent compares (4,096, or a quarter of limits.bindings, each counted once in each "+
			"network): a duplicate of the others is not found")
	}
	if s.Runtime.SandboxesOmitted > 0 {
		parts = append(parts, fmt.Sprintf("%d sandboxes have no names", s.Runtime.SandboxesOmitted))
		advice = append(advice, "the container runtime lists more sandboxes than an agent reads: remove those that have ended")
	}
	if len(parts) == 0 {
		return ok("none")
	}
	text := strings.Join(parts, ", ") + " since the agent's start"
	if names := refusing(s.Interfaces); len(names) > 0 {
		text += "; most at " + detector.List(names)
	}
	slices.Sort(advice)
	return warn(strings.Join(slices.Compact(advice), "; "), "%s", text)
}

// refusing returns the interfaces with refused packets, those with most first.
func refusing(interfaces []document.InterfaceStatus) (names []string) {
	refused := func(i document.InterfaceStatus) uint64 {
		r := cmp.Or(i.Refused, &document.Refused{})
		return r.Data + r.Announced + r.Answers + r.RingFull
	}
	for _, i := range slices.SortedStableFunc(slices.Values(interfaces), func(a, b document.InterfaceStatus) int {
		return cmp.Compare(refused(b), refused(a))
	}) {
		if refused(i) > 0 {
			names = append(names, strings.TrimSuffix(fmt.Sprintf("%s (%s)", i.Name, i.Netns), " ()"))
		}
	}
	return names
}
