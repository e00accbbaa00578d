package advice

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/document"
)

// command returns what removes a holder, and the node to run it on, empty for anywhere. The newest
// holder is removed as a pod if no other holder has the pod's name; all others by their sandbox, if
// it is known. The last resort is to set the host's end of the veth down. People paste the command
// into a shell, and pods and nodes choose their names: names with other than plain characters make
// no command.
//
// kubectl identifies a pod only by its name. That of a holder may by now belong to a later, healthy
// pod with an address of its own, for example in a StatefulSet whose previous pod was not stopped. So
// kubectl gets the node, too: on another node that pod is not touched. On the same one the older
// holder may have it. A sandbox ID is never reused, and the kubelet makes a new sandbox, with a new
// address, for a pod that should run.
func command(b document.Binding, ambiguous, newest bool, names map[string]string) (text, on string) {
	pod := pod(b)
	ambiguous = ambiguous || pod.Stopped // the API server has no pod of that name, or a later one
	if (ambiguous || !newest) && plainID(pod.Sandbox) {
		return "crictl rmp -f " + pod.Sandbox, names[b.NodeID()]
	}
	if !ambiguous && plainName(pod.Namespace) && plainName(pod.Name) && plainName(b.Node) {
		return fmt.Sprintf("kubectl -n %s delete pod --field-selector metadata.name=%s,spec.nodeName=%s", pod.Namespace, pod.Name, b.Node), ""
	}
	if plainDevice(b.Interface) {
		return "ip link set dev " + b.Interface + " down", names[b.NodeID()]
	}
	return "", ""
}

// flushes are for the nodes whose next hop to the holder is a bridge, or another device than the
// holder's own.
func flushes(b document.Binding, holder int, routes []document.Route, names map[string]string) (list []document.Flush) {
	for _, r := range routes {
		own := r.Device == b.Interface || b.Interface == ""
		if r.Holder != nil && *r.Holder == holder && !own && !r.Gateway.IsValid() && plainDevice(r.Device) {
			list = append(list, document.Flush{
				Command: fmt.Sprintf("ip neigh flush to %s dev %s", b.IP, r.Device), On: names[r.NodeID()], Device: r.Device,
			})
		}
	}
	return list
}

// plainName reports whether a text looks like a Kubernetes name (RFC 1123).
func plainName(s string) bool {
	return plain(s, "abcdefghijklmnopqrstuvwxyz0123456789.-")
}

// plainDevice reports whether a text looks like the name of a veth.
func plainDevice(s string) bool {
	return plain(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
}

// plainID reports whether a text looks like an ID of containerd or CRI-O that is long enough to be
// unique.
func plainID(s string) bool {
	return len(s) >= 12 && plain(s, "0123456789abcdef")
}

// plain reports whether a text consists of these characters only and is not an option.
func plain(s, characters string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, characters) == ""
}
