package report

import (
	"strings"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/observe"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// behind says what is behind an interface, by the runtime's list and by what was read of its netns: empty if that is not sure. blind says
// that not all processes can be seen.
//
// A sandbox that is being made has a netns before it has a process, and before the runtime lists it. So of a netns that no pod was seen in,
// the agent believes the list only listedLate after it found the netns. It takes such a netns for a forgotten one only if a runtime
// made it, which its name shows.
func behind(i *observe.Interface, sandboxes pods.Sandboxes, ref netns.Ref, blind bool) document.Behind {
	alive, empty := ref.Pid != 0, ref.Pid == 0 && !blind
	ready, known := sandboxes.Netns[i.View.Cookie]
	wasPod := i.Pod.Pod != (detector.Pod{})
	unlisted := sandboxes.Complete && sandboxes.Settled && !known && (wasPod || sandboxes.Listed.Sub(i.Found) >= listedLate)
	switch {
	case sandboxes.None && alive:
		return document.BehindAlive
	case sandboxes.None, !sandboxes.Listed.After(i.Found): // there is none, it does not answer, or it has not since then
		return ""
	case ready:
		return document.BehindRunning
	case alive && (known || unlisted):
		return document.BehindAlive
	case empty && known:
		return document.BehindStopped
	case empty && unlisted && (wasPod || strings.HasPrefix(ref.Name, "cni-")):
		return document.BehindForgotten
	}
	return ""
}
