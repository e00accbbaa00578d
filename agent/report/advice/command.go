package advice

import (
	"fmt"
	"strings"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// command returns what removes a holder: its pod where that is the newest one, and known by a
// name that no other holder has; else its sandbox, or, where that is not known, its pod; else
// the host's end of its veth. On is the node to run it on, empty for anywhere. People paste it
// into a shell, and pods and nodes name themselves: what is not of plain characters makes no
// command.
//
// kubectl knows a pod by its name alone. That of an older holder may be a later, healthy pod's
// by now, with an address of its own: a StatefulSet's, whose former pod runs on where nobody
// could stop it. A sandbox's id is never another's, and of a pod that is to run the kubelet
// makes a new one, with a new address.
func command(b detector.Binding, ambiguous, newest bool, names func(id string) string) (text, on string) {
	pod, sandbox := b.Holder.Pod, b.Holder.Sandbox
	ambiguous = ambiguous || sandbox.Stopped // the API server has none, or a later one, of that name
	if (ambiguous || !newest) && plainID(sandbox.ID) {
		return "crictl rmp -f " + sandbox.ID, names(b.Holder.ID.Node)
	}
	if !ambiguous && plainName(pod.Namespace) && plainName(pod.Name) {
		return "kubectl -n " + pod.Namespace + " delete pod " + pod.Name, ""
	}
	if plainDevice(b.Holder.InterfaceName) {
		return "ip link set dev " + b.Holder.InterfaceName + " down", names(b.Holder.ID.Node)
	}
	return "", ""
}

// flushes are for the nodes that find a holder over a bridge, or another device that is not the
// holder's own.
func flushes(b detector.Binding, hops []NextHop, names func(id string) string) (list []api.Flush) {
	for _, l := range hops {
		own := l.Device == b.Holder.InterfaceName || b.Holder.InterfaceName == ""
		if l.Kind == cluster.NextHopHolder && l.Holder == b.Holder.ID && !own && !l.Gateway.IsValid() && plainDevice(l.Device) {
			list = append(list, api.Flush{
				Command: fmt.Sprintf("ip neigh flush to %s dev %s", b.Key.IP, l.Device), On: names(l.Node), Device: l.Device,
			})
		}
	}
	return list
}

// plainName says whether a text is like a name of Kubernetes (RFC 1123).
func plainName(s string) bool {
	return plain(s, "abcdefghijklmnopqrstuvwxyz0123456789.-")
}

// plainDevice says whether a text is like the name of a veth.
func plainDevice(s string) bool {
	return plain(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
}

// plainID says whether a text is like an id of containerd or CRI-O, and not so short that it
// might be another's, too.
func plainID(s string) bool {
	return len(s) >= 12 && plain(s, "0123456789abcdef")
}

// plain says whether a text is of these characters only, and no option.
func plain(s, characters string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, characters) == ""
}
