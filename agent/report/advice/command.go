package advice

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
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
func command(b detector.Binding, ambiguous, newest bool, names map[string]string) (text, on string) {
	pod, sandbox := b.Holder.Pod, b.Holder.Sandbox
	ambiguous = ambiguous || sandbox.Stopped // the API server has no pod of that name, or a later one
	if (ambiguous || !newest) && plainID(sandbox.ID) {
		return "crictl rmp -f " + sandbox.ID, names[b.Holder.ID.Node]
	}
	node := cluster.NodeName(b.Holder.ID.Node)
	if !ambiguous && plainName(pod.Namespace) && plainName(pod.Name) && plainName(node) {
		return fmt.Sprintf("kubectl -n %s delete pod --field-selector metadata.name=%s,spec.nodeName=%s", pod.Namespace, pod.Name, node), ""
	}
	if plainDevice(b.Holder.InterfaceName) {
		return "ip link set dev " + b.Holder.InterfaceName + " down", names[b.Holder.ID.Node]
	}
	return "", ""
}

// flushes are for the nodes whose next hop to the holder is a bridge, or another device than the
// holder's own.
func flushes(b detector.Binding, hops []NextHop, names map[string]string) (list []api.Flush) {
	for _, h := range hops {
		own := h.Device == b.Holder.InterfaceName || b.Holder.InterfaceName == ""
		if h.Kind == cluster.NextHopHolder && h.Holder == b.Holder.ID && !own && !h.Gateway.IsValid() && plainDevice(h.Device) {
			list = append(list, api.Flush{
				Command: fmt.Sprintf("ip neigh flush to %s dev %s", b.Key.IP, h.Device), On: names[h.Node], Device: h.Device,
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
