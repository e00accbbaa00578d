package document

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// NewHolder returns the document of a holder.
func NewHolder(h detector.Holder) Holder {
	if h.Interface == (detector.Interface{}) { // on another node: it is the identity, or there is none
		h.Interface = detector.Interface{Ifindex: h.ID.Ifindex, Generation: h.ID.Generation}
	}
	if h.Interface.Ifindex > math.MaxInt32 { // it stands for a device that has no end on the node
		h.Interface.Ifindex = 0
	}
	doc := Holder{
		Node: cluster.NodeName(h.ID.Node), BootID: cluster.BootID(h.ID.Node),
		Interface: h.InterfaceName, Bridge: h.Bridge, Ifindex: h.Interface.Ifindex, Generation: h.Interface.Generation,
		MAC: h.MAC, Netns: h.NetnsName, NetnsCookie: h.ID.Netns, Given: h.Given,
	}
	if doc.Pod = NewPod(h.Pod); doc.Pod != nil {
		doc.Pod.CreatedAt, doc.Pod.Sandbox, doc.Pod.Stopped = h.CreatedAt.Round(0), h.Sandbox.ID, h.Sandbox.Stopped
		doc.Pod.VM, doc.Pod.VMI = h.Sandbox.VM.Name, h.Sandbox.VM.UID
	}
	return doc
}

// ID identifies the holder.
func (h Holder) ID() detector.HolderID {
	id := detector.HolderID{Node: h.NodeID(), Netns: h.NetnsCookie}
	if id.Netns == 0 {
		id.Ifindex, id.Generation = h.Ifindex, h.Generation
	}
	return id
}

// NodeID identifies the holder's node, as [cluster.NodeID].
func (h Holder) NodeID() string { return cluster.NodeID(h.Node, h.BootID) }

// Detector is the reverse of [NewHolder].
func (h Holder) Detector() detector.Holder {
	made := detector.Holder{
		ID: h.ID(), Interface: detector.Interface{Ifindex: h.Ifindex, Generation: h.Generation}, InterfaceName: h.Interface, Bridge: h.Bridge,
		MAC: h.MAC, NetnsName: h.Netns, Given: h.Given,
	}
	if p := h.Pod; p != nil {
		made.Pod, made.CreatedAt = p.Detector(), p.CreatedAt
		made.Sandbox = detector.Sandbox{ID: p.Sandbox, Stopped: p.Stopped, VM: detector.VM{UID: p.VMI, Name: p.VM}}
	}
	return made
}

// NewBinding returns the document of a binding.
func NewBinding(b detector.Binding) Binding {
	return Binding{
		Network: b.Key.Network, IP: b.Key.IP, Holder: NewHolder(b.Holder), Evidence: b.Evidence,
		FirstSeen: b.FirstSeen.Round(0), LastSeen: b.LastSeen.Round(0), FoundAtStart: b.FoundAtStart, Unreachable: b.Unreachable, Gone: b.Gone,
	}
}

// Detector is the reverse of [NewBinding].
func (b Binding) Detector() detector.Binding {
	return detector.Binding{
		Key: detector.Key{Network: b.Network, IP: b.IP}, Holder: b.Holder.Detector(), Evidence: b.Evidence,
		FirstSeen: b.FirstSeen, LastSeen: b.LastSeen, FoundAtStart: b.FoundAtStart, Unreachable: b.Unreachable, Gone: b.Gone,
	}
}

// NewPod returns the document of a pod, nil if it is unknown.
func NewPod(pod detector.Pod) *Pod {
	if pod == (detector.Pod{}) {
		return nil
	}
	return &Pod{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Engine: pod.Engine}
}

// Detector is the reverse of [NewPod].
func (p *Pod) Detector() detector.Pod {
	if p == nil {
		return detector.Pod{}
	}
	return detector.Pod{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Engine: p.Engine}
}

// isEngine reports whether a text is the name of a container engine, as [detector.Pod] has it.
func isEngine(engine string) bool {
	return slices.Contains([]string{"docker", "podman", "nerdctl", "nomad", "lxc", "nspawn"}, strings.TrimPrefix(engine, "rootless "))
}

// IsContainer reports whether it is a container, and no pod of Kubernetes.
func (p *Pod) IsContainer() bool { return p != nil && p.Engine != "" }

// String returns what [detector.Pod] does, empty for an unknown pod.
func (p *Pod) String() string { return p.Detector().String() }

// NewConflict returns the document of a conflict.
func NewConflict(c detector.Conflict) Conflict {
	doc := Conflict{
		ID: c.ID, Network: c.Key.Network, IP: c.Key.IP, State: c.State, Scope: c.Scope,
		SecondSeen: c.SecondSeen.Round(0), SuspectedAt: c.SuspectedAt.Round(0), ConfirmedAt: c.ConfirmedAt.Round(0), ResolvedAt: c.ResolvedAt.Round(0),
		Holders: make([]Binding, 0, len(c.Holders)), Drill: c.IsDrill(), Pending: c.Pending,
	}
	for _, holder := range c.Holders {
		doc.Holders = append(doc.Holders, NewBinding(holder))
	}
	return doc
}

// Key is the address in its network.
func (c *Conflict) Key() detector.Key { return detector.Key{Network: c.Network, IP: c.IP} }

// MaxHolders is the most holders of a conflict or story that is believed.
const MaxHolders = 64

// Detector is the reverse of [NewConflict], and refuses what the detector does not make.
func (c *Conflict) Detector() (detector.Conflict, error) {
	made := detector.Conflict{
		ID: c.ID, Key: c.Key(), State: c.State, Scope: c.Scope,
		SecondSeen: c.SecondSeen, SuspectedAt: c.SuspectedAt, ConfirmedAt: c.ConfirmedAt, ResolvedAt: c.ResolvedAt, Pending: c.Pending,
	}
	if err := c.check(); err != nil {
		return made, err
	}
	for _, b := range c.Holders {
		made.Holders = append(made.Holders, b.Detector())
	}
	return made, nil
}

// check refuses a conflict that no detector makes.
func (c *Conflict) check() error {
	switch {
	case len(c.Holders) > MaxHolders:
		return fmt.Errorf("%d holders", len(c.Holders))
	case c.ID == "":
		return errors.New("no id")
	case !c.Key().Valid():
		return fmt.Errorf("%q in network %q is not an address", c.IP, c.Network)
	case c.State < detector.Suspected || c.State > detector.Resolved:
		return errors.New("no state")
	case c.Scope < detector.SameNode || c.Scope > detector.NodeNode:
		return errors.New("no scope")
	case c.SuspectedAt.IsZero(), c.State != detector.Suspected && c.ConfirmedAt.IsZero(), c.State == detector.Resolved && c.ResolvedAt.IsZero():
		return errors.New("a time is missing")
	}
	return checkHolders(c.Network, c.IP, c.Holders)
}

func checkHolders(network string, ip netip.Addr, holders []Binding) error {
	for i, b := range holders {
		err := b.Check()
		if err == nil && (b.Network != network || b.IP != ip) {
			err = errors.New("it is of another address")
		}
		if err != nil {
			return fmt.Errorf("holder %d: %w", i+1, err)
		}
	}
	return nil
}

// Check refuses a holder that no agent observes.
func (b *Binding) Check() error {
	switch {
	case !detector.Key{Network: b.Network, IP: b.IP}.Valid():
		return errors.New("no address")
	case b.Node == "":
		return errors.New("no node")
	case b.NetnsCookie == 0 && b.Ifindex == 0:
		return errors.New("no identity")
	case b.Evidence < detector.Forwarded || b.Evidence > detector.Host:
		return errors.New("no evidence")
	case b.FirstSeen.IsZero():
		return errors.New("it was never seen")
	}
	return nil
}
