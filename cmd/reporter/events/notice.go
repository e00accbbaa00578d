package events

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"strings"
	"time"

	"github.com/dupip/dupip/cmd/reporter/kube"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/internal/schedule"
)

// nameTime is how long after a holder was first seen an Event waits for its name. A runtime lists a pod when CNI has finished: a second
// after the pod has its address, and on a node that is very busy ten.
const nameTime = 30 * time.Second

// Controller is the reportingController of all Events.
const Controller = "dupip.io/reporter"

// The reasons of Events.
const (
	ReasonDuplicate  = "DuplicateIP"         // on a pod, while its address has another live holder
	ReasonResolved   = "DuplicateIPResolved" // on the same pod, at the end
	ReasonSummary    = "DuplicateIPs"        // on a node, when there are too many for one Event each at once
	ReasonRange      = "SharedPodRange"      // on a node, which gives out the same addresses as another one
	ReasonUnreserved = "UnreservedIP"        // on a node
	ReasonDiverted   = "DivertedIP"          // on a node, whose kernel diverts packets
	ReasonMisrouted  = "MisroutedIP"         // on a node, whose routes lead to the wrong node
	ReasonElsewhere  = "IPElsewhere"         // on a node: another machine seems to have an address that is there, too
	// On a node, by the books of the API server.
	ReasonMisbooked = "MisbookedIP" // its pods' addresses are reserved on another node
	ReasonStale     = "StaleIPAM"   // its IPAM's object belongs to an earlier node of its name
	ReasonDeleted   = "DeletedNode" // it runs pods, and is no Node any more
	ReasonTwice     = "PodIPTwice"
	ReasonUnlisted  = "UnlistedPod"
)

// notice is what one Event reports about one object: a pod in one occurrence of a conflict, or a node.
type notice struct {
	name      string // of the Event
	reason    string
	key       detector.Key // of a pod's
	holder    detector.HolderID
	regarding kube.Reference
	related   *kube.Reference
	note      string // of a pod its begin: podNote adds the judgement when the Event is written

	began time.Time
	ended time.Time // zero while it goes on
	// What the API server has: the Event, renewed last at renewed, and with closed that of the end.
	written, closed bool
	renewed         time.Time
	count           int
	// crowded: it had to wait for its turn.
	crowded bool
	held    time.Time // it failed: not before this, and after those that did not
	named   time.Time // not before this while the conflict is open, because a new holder has no name yet; zero if none may get one
	heard   time.Time // when it was made
	coming  bool      // facts of holders are missing
}

func (n *notice) onPod() bool { return n.reason == ReasonDuplicate }

// namespace is that of its Events.
func (n *notice) namespace() string { return cmp.Or(n.regarding.Namespace, "default") }

// resolved is the name of the Event of the end.
func (n *notice) resolved() string { return n.name + "-resolved" }

// eventName is a hash of what the Event is about, so all replicas compute the same name. Of the sandboxes it has the pod's own
// only: with those of all holders, a third holder would give the first two pods a second Event.
func eventName(parts ...string) string {
	return fmt.Sprintf("dupip-%.10x", sha256.Sum256([]byte(strings.Join(parts, "\x00"))))
}

// podNotice is the notice of one pod in a conflict; nil if the holder has no pod with a name.
func podNotice(c document.Conflict, of int) *notice {
	h := c.Holders[of]
	if h.Pod == nil || h.Pod.IsContainer() || len(c.Holders) < 2 {
		return nil
	}
	_, occurrence, _ := strings.Cut(c.ID, "-")
	n := &notice{
		reason: ReasonDuplicate, key: c.Key(), holder: h.ID(), began: c.ConfirmedAt, regarding: podReference(h.Pod),
		name: eventName(c.Network, c.IP.String(), h.Pod.Namespace, h.Pod.Name, cmp.Or(h.Pod.Sandbox, h.Pod.UID), ReasonDuplicate, occurrence),
	}
	for _, b := range c.Holders {
		if b.Pod == nil && b.Netns != "host" {
			n.named = schedule.Later(n.named, b.FirstSeen.Add(nameTime))
		}
	}
	if !n.named.IsZero() { // a pod is not kept waiting by one holder without a name after the other
		n.named = schedule.Earlier(n.named, c.ConfirmedAt.Add(nameTime))
	}
	// The oldest other one.
	other := c.Holders[0]
	if of == 0 {
		other = c.Holders[1]
	}
	n.related = new(nodeReference(other.Node))
	if other.Pod != nil && !other.Pod.IsContainer() {
		n.related = new(podReference(other.Pod))
	}
	n.note = fmt.Sprintf("%s also has this pod's address %s%s", described(other), c.IP, inNetwork(c.Network))
	if more := len(c.Holders) - 2; more > 0 {
		n.note += fmt.Sprintf(", and %d more", more)
	}
	n.note += "; packets to it may reach the other one."
	return n
}

func inNetwork(network string) string {
	if network == "default" {
		return ""
	}
	return " in network " + network
}

func described(b document.Binding) string {
	switch {
	case b.Pod.IsContainer():
		return fmt.Sprintf("%s on node %s", b.Pod, b.Node)
	case b.Pod != nil:
		return fmt.Sprintf("pod %s on node %s", b.Pod, b.Node)
	case b.Netns == "host":
		return "node " + b.Node + " itself"
	default:
		return fmt.Sprintf("%s on node %s", cmp.Or(b.Netns, b.Interface, "another holder"), b.Node)
	}
}

func podReference(p *document.Pod) kube.Reference {
	return kube.Reference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// nodeReference has the name as UID, as kubelet's Events, so that "kubectl describe node" finds it.
func nodeReference(node string) kube.Reference {
	return kube.Reference{APIVersion: "v1", Kind: "Node", Name: cluster.NodeName(node), UID: cluster.NodeName(node)}
}

// event is the Event of a notice, or that of its end.
func (n *notice) event(instance string, end bool, now time.Time) kube.Event {
	e := kube.Event{
		Metadata: kube.Meta{Name: n.name, Namespace: n.namespace()}, EventTime: kube.MicroTime{Time: n.began},
		ReportingController: Controller, ReportingInstance: instance, Action: "Detected", Reason: n.reason, Type: "Warning",
		Regarding: n.regarding, Related: n.related,
	}
	if end {
		e.Metadata.Name, e.EventTime.Time = n.resolved(), n.ended
		e.Type, e.Reason, e.Action = "Normal", ReasonResolved, "Resolved"
		e.Note = document.Text(fmt.Sprintf("The conflict over the address %s%s has ended for this pod, after %s",
			n.key.IP, inNetwork(n.key.Network), n.ended.Sub(n.began).Round(time.Second)), maxNote)
	}
	if e.EventTime.IsZero() || e.EventTime.After(now) {
		e.EventTime.Time = now
	}
	return e
}

// maxNote is below 1024 bytes, which the API server refuses.
const maxNote = 1000
