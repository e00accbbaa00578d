package observe

import (
	"net/netip"
	"regexp"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// MaxOrigins bounds the origins that are remembered, also on disk. It is more than a node has interfaces.
const MaxOrigins = 8192

// HostEnd is the host's end of an interface by what only the node can change.
type HostEnd struct {
	Ifindex int    `json:"ifindex"`
	Name    string `json:"name"`
	MAC     string `json:"mac,omitzero"`
}

func hostEnd(i *links.Interface) HostEnd { return HostEnd{i.Index, i.Name, i.MAC.String()} }

// Origin is what is known of an interface from the time when its pod was set up, also on disk. No container of a pod runs before
// that, so the pod has chosen none of it; later it may rename its end, or move it into another netns.
type Origin struct {
	HostEnd
	// Peer is the first name of the pod's end, see settles, Netns the cookie of its first netns: empty before the first scan.
	Peer  string `json:"peer,omitzero"`
	Netns uint64 `json:"netnsCookie,omitzero"`
	Role  Role   `json:"role,omitzero"`
	// Pod is the first pod behind the interface, empty if it is not known.
	Pod       detector.Pod `json:"pod,omitzero"`
	CreatedAt time.Time    `json:"createdAt,omitzero"` // of the pod's sandbox

	unsettled bool // who makes the pod's end may still rename it
	restored  bool // from an earlier agent
	routed    bool // the node's route was looked up
	logged    bool // that the pod has changed it
}

// Role says whether an interface is the primary one of its pod, which is in the cluster's network, and how that is
// known. Role is part of the state on disk: numbers are not reused.
type Role uint8

// The roles. Those of results are final.
const (
	// ByName: nothing says more than the first name.
	ByName Role = iota
	// PrimaryByResult: a CNI result names its host end.
	PrimaryByResult
	// SecondaryByResult: a CNI result of its pod names other host ends.
	SecondaryByResult
	// PrimaryByRoute: the node's route to the pod's address leaves by it.
	PrimaryByRoute
)

// From names what the role is known from.
func (r Role) From() string {
	return map[Role]string{ByName: "name", PrimaryByResult: "cni-result", SecondaryByResult: "cni-result", PrimaryByRoute: "route"}[r]
}

// primary reports whether the interface is, or may be, the primary one of its pod. One whose netns was never seen most
// likely is.
func (o *Origin) primary() bool {
	return o.Role != SecondaryByResult && (o.Role != ByName || o.Peer == "" || o.Peer == books.DefaultInterface)
}

// finalName matches names that CNI plugins and container engines give devices in pods. No temporary name is one of these.
var finalName = regexp.MustCompile(`^(eth|net)\d+$`)

// settles reports whether the name that a scan has found stays the first one. Docker 28, Cilium and LXC make the pod's end with a
// temporary name, and rename it before they set it up. A final name counts at once: else a pod could choose that of a device that
// a plugin leaves down.
func settles(v *netns.View) bool { return !v.PeerDown || finalName.MatchString(v.Peer) }

var guestName = regexp.MustCompile(`^(?:(eth\d+|net\d+)|([0-9a-f]{11}))-nic$`)

// firstName returns the first name of a pod's end. When KubeVirt makes it a port of a virtual machine's bridge, it
// renames eth0 to eth0-nic, net1 to net1-nic, and pod0123456789a to 0123456789a-nic.
func firstName(peer string) string {
	switch match := guestName.FindStringSubmatch(peer); {
	case match == nil:
		return peer
	case match[1] != "":
		return match[1]
	default:
		return "pod" + match[2]
	}
}

// Origins are those of the interfaces. It must not know which addresses they have.
type Origins struct {
	opts       *Options
	interfaces interfaces
	lines      *rate.Limiter // about pods
	all        map[HostEnd]*Origin
	rolesAt    time.Time // when to log those that are not known, zero afterwards
}

// Restore sets the origins that an earlier agent of this boot knew, at most MaxOrigins. Call it before the first event.
func (os *Origins) Restore(list []Origin) {
	for _, o := range list {
		o.restored = true
		os.all[o.HostEnd] = &o
	}
}

// Saved returns those of the present interfaces, in no order; and until these are complete what an earlier agent knew.
func (os *Origins) Saved(complete bool) (list []Origin) {
	present := make(map[*Origin]bool)
	for _, i := range os.interfaces {
		present[i.Origin] = i.Kind == "" // any other has no end on the node that an agent after this one would find
	}
	for _, o := range os.all {
		if present[o] || o.restored && !complete {
			saved := *o
			if o.unsettled {
				saved.Peer, saved.Netns = "", 0
			}
			list = append(list, saved)
		}
	}
	return list
}

// set finds the origin of a new interface, or begins one, and follows changes of an interface. It returns whether the interface was
// primary before.
func (os *Origins) set(i *Interface) (wasPrimary bool) {
	end := hostEnd(i.Interface)
	switch {
	case i.Origin == nil:
		if i.Origin = os.all[end]; i.Origin == nil {
			i.Origin = new(Origin)
		}
	case i.Origin.HostEnd != end:
		delete(os.all, i.Origin.HostEnd)
	}
	if len(os.all) >= MaxOrigins {
		clear(os.all)
		for _, other := range os.interfaces {
			os.all[other.Origin.HostEnd] = other.Origin
		}
	}
	o := i.Origin
	o.HostEnd, os.all[end] = end, o
	wasPrimary = o.primary()
	if i.Seen && (o.Peer == "" || o.unsettled) {
		o.Peer, o.Netns, o.unsettled = firstName(i.View.Peer), i.View.Cookie, !settles(&i.View)
	}
	return wasPrimary
}

// Renamed reports whether the pod's end has another name than at first.
func (i *Interface) Renamed() bool { return i.Seen && firstName(i.View.Peer) != i.Origin.Peer }

// Moved reports whether the pod's end is in another netns than at first.
func (i *Interface) Moved() bool { return i.Seen && i.Origin.Netns != i.View.Cookie }

// logChange logs once that a pod has renamed or moved its end of an interface.
func (os *Origins) logChange(i *Interface) {
	if o := i.Origin; !o.logged && (i.Renamed() || i.Moved()) && os.lines.Allow() {
		o.logged = true
		os.opts.Log.Info("a pod, or its engine, has renamed its end of an interface, or moved it into another netns; the interface stays in its network",
			"interface", i.Name, "pod", i.Pod.Pod.String(), "first", o.Peer, "now", i.View.Peer, "moved", i.Moved(), "network", i.Network())
	}
}

// logUnknownRoles logs, some time after the start, how many interfaces have only the names that they were found with:
// until then the runtime has reported its pods.
func (os *Origins) logUnknownRoles(now time.Time) {
	if now.Before(os.rolesAt) || os.rolesAt.IsZero() {
		return
	}
	os.rolesAt = time.Time{}
	n := 0
	for _, i := range os.interfaces {
		if i.Kind == "" && i.Listed && !i.Origin.restored && i.Origin.Role == ByName {
			n++
		}
	}
	if n > 0 {
		os.opts.Log.Info("no CNI result names some interfaces that are older than this agent: their networks come from the present names of "+
			"their devices, which their pods may have changed", "interfaces", n)
	}
}

// named notes what the runtime and CNI report about the pod that an interface leads to now, or was set up for, and reports whether its
// role has changed.
func (os *Origins) named(i *Interface, pod pods.Change) bool {
	o, here := i.Origin, i.Seen && i.View.Cookie == pod.Cookie
	if o.Pod == (detector.Pod{}) || o.Pod.Engine != "" && pod.Pod.Engine == "" || pod.Result.Names(i.Name) && !pod.Sandbox.Stopped {
		o.Pod, o.CreatedAt = pod.Pod, pod.CreatedAt
	}
	if here || i.Pod.Cookie == 0 {
		i.Pod = pod
	}
	before := o.Role
	switch {
	case before == PrimaryByResult || before == SecondaryByResult:
	case pod.Result.Names(i.Name):
		o.Role = PrimaryByResult
	case here && pod.Result.Usable():
		o.Role = SecondaryByResult
	case here && before == ByName && i.Listed && !o.restored && !o.routed && !o.primary():
		o.routed = true
		if slices.ContainsFunc(pod.IPs, func(ip netip.Addr) bool { return os.opts.Leads(i.Interface, ip) }) {
			o.Role = PrimaryByRoute
		}
	}
	return o.Role != before
}
