package say

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// The commands below end one holder. People paste them into a shell, maybe an hour later, and pods and nodes choose their names: so each
// command tests that what it names is still the holder: by a UID, a sandbox's ID, or a path, process or interface together with its number,
// which the kernel may use again for another one, but hardly for both. Only plain names make a command. A command that cannot be made is empty.

// deletePod deletes the pod of that UID: the API server refuses the request if another pod has its name by now.
func deletePod(pod *document.Pod) string {
	if pod == nil || pod.IsContainer() || !plainName(pod.Namespace) || !plainName(pod.Name) || !plainUID(pod.UID) {
		return ""
	}
	return fmt.Sprintf(`echo '{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"%s"}}' | kubectl delete --raw /api/v1/namespaces/%s/pods/%s -f -`,
		pod.UID, pod.Namespace, pod.Name)
}

const (
	removed = ", and what it keeps outside of volumes; its engine does not make it again"
	stopped = " and all other tasks of its allocation, which Nomad starts again"
)

// removals are how engines end a container by its full ID, which no other one has, also as its name, and what that cuts.
var removals = map[string]struct{ command, cuts string }{
	"docker": {"docker rm -f ", removed}, "podman": {"podman rm -f ", removed}, "nerdctl": {"nerdctl rm -f ", removed}, "nomad": {"nomad alloc stop ", stopped},
}

// removeSandbox removes a sandbox, or a container of another engine. Its ID is never used again.
func removeSandbox(pod *document.Pod) string {
	switch {
	case pod == nil:
	case removals[pod.Engine].command != "" && plainUID(pod.UID) && len(pod.UID) >= fullID:
		return removals[pod.Engine].command + pod.UID
	case pod.Engine == "" && plainSandbox(pod.Sandbox):
		return "crictl rmp -f " + pod.Sandbox
	}
	return ""
}

// fullID is the length of the shortest full ID, a UUID: a shorter one may be another container's name.
const fullID = 36

// inspect prints the addresses that an engine has given a container.
func inspect(pod *document.Pod) string {
	if pod == nil || pod.Engine != "docker" && pod.Engine != "podman" || removeSandbox(pod) == "" {
		return ""
	}
	return pod.Engine + " inspect -f '{{.Name}}{{range $name, $n := .NetworkSettings.Networks}} {{$name}} {{$n.IPAddress}} {{$n.GlobalIPv6Address}}{{end}}' " + pod.UID
}

// guarded runs a command if the test holds. Otherwise, and if the command fails, it says so and fails.
func guarded(test, command string) string {
	return test + " && " + command + ` || ! echo "NOT DONE: see above, or it is another one by now"`
}

// isNetns tests whether a path still belongs to a netns, isInterface whether a name does to an interface.
func isNetns(f *document.Facts) string {
	return fmt.Sprintf(`[ "$(stat -Lc %%i %s)" = %d ]`, f.NetnsPath, f.NetnsInode)
}

func isInterface(h document.Holder) string {
	return fmt.Sprintf(`[ "$(cat /sys/class/net/%s/ifindex)" = %d ]`, h.Interface, h.Ifindex)
}

// removeNetns removes a netns that "ip netns" knows, if its name still belongs to it.
func removeNetns(f *document.Facts) string {
	if f == nil || f.NetnsInode == 0 {
		return ""
	}
	name, ok := strings.CutPrefix(strings.TrimPrefix(f.NetnsPath, "/var"), "/run/netns/")
	if !ok || !plainDevice(name) {
		return ""
	}
	return guarded(isNetns(f), "ip netns del "+name)
}

// takeAddress removes the address from a netns, if the path or the process still belongs to that.
func takeAddress(f *document.Facts, ip netip.Addr) string {
	switch {
	case f == nil || f.NetnsInode == 0 || !plainAddress(ip):
		return ""
	case plainPath(f.NetnsPath):
		return guarded(isNetns(f), fmt.Sprintf("nsenter --net=%s ip addr flush to %s", f.NetnsPath, ip))
	case f.Process != nil && f.Process.PID > 0:
		return guarded(fmt.Sprintf(`[ "$(readlink /proc/%d/ns/net)" = "net:[%d]" ]`, f.Process.PID, f.NetnsInode),
			fmt.Sprintf("nsenter --net=/proc/%d/ns/net ip addr flush to %s", f.Process.PID, ip))
	}
	return ""
}

// cutOff takes the network from a holder that is no node: it sets the node's end of its interface down, if the name still belongs to it.
func cutOff(b document.Binding) string {
	if b.Evidence == detector.Host || b.Ifindex == 0 || !plainDevice(b.Interface) {
		return ""
	}
	return guarded(isInterface(b.Holder), "ip link set dev "+b.Interface+" down")
}

// takeFromNode removes an address from a node; with lifetime, if it has one.
func takeFromNode(m document.Machine, lifetime bool) string {
	if !plainDevice(m.Device) || !m.Prefix.IsValid() || !plainAddress(m.Prefix.Addr()) {
		return ""
	}
	only := ""
	if lifetime {
		only = " dynamic"
	}
	return guarded(fmt.Sprintf("ip -o addr show dev %s to %s%s | grep -q .", m.Device, m.Prefix.Addr(), only), fmt.Sprintf("ip addr del %s dev %s", m.Prefix, m.Device))
}

// drain moves the pods of a node elsewhere, if the machine of that name is still the same. Without the flags kubectl refuses, because
// agents and caches are on every node.
func drain(name, boot string) string {
	if !plainName(name) || !plainUID(boot) {
		return ""
	}
	return guarded(fmt.Sprintf(`[ "$(kubectl get node %s -o 'jsonpath={.status.nodeInfo.bootID}')" = %s ]`, name, boot),
		"kubectl drain "+name+" --ignore-daemonsets --delete-emptydir-data")
}

// cordon keeps new pods away from a node.
func cordon(name string) string {
	if !plainName(name) {
		return ""
	}
	return "kubectl cordon " + name
}

// forget removes a node's neighbour entry for the address.
func forget(ip netip.Addr, device string) string {
	if !plainAddress(ip) || !plainDevice(device) {
		return ""
	}
	return fmt.Sprintf("ip neigh flush to %s dev %s", ip, device)
}

// routeTo has a node send to a holder, if the name of its interface still belongs to it.
func routeTo(ip netip.Addr, h document.Holder) string {
	if !plainAddress(ip) || h.Ifindex == 0 || !plainDevice(h.Interface) {
		return ""
	}
	return guarded(isInterface(h), fmt.Sprintf("ip route replace %s dev %s", ip, h.Interface))
}

// The commands below only read.
const (
	readBoots  = "kubectl get nodes -o custom-columns=NAME:.metadata.name,BOOT:.status.nodeInfo.bootID"
	readRanges = "kubectl get nodes -o custom-columns=NAME:.metadata.name,RANGE:.spec.podCIDRs"
	readCNS    = `curl localhost:10090/debug/ipaddresses -d '{"IPConfigStateFilter":["Assigned"]}'`
)

// readPods lists the pods that the API server has with the address.
func readPods(ip netip.Addr) string {
	if !plainAddress(ip) {
		return ""
	}
	columns := "wide" // its column has only the first address of a pod
	if ip.Is6() {
		columns = "'custom-columns=NAMESPACE:.metadata.namespace,NAME:.metadata.name,NODE:.spec.nodeName,IPS:.status.podIPs[*].ip'"
	}
	return fmt.Sprintf(`kubectl get pods -A -o %s | grep -E '(^|[^0-9a-f:.])%s([^0-9a-f:.-]|$)'`, columns, strings.ReplaceAll(ip.String(), ".", `\.`))
}

// readCalico and readHostLocal ask books for whom they have the address reserved, readNode a node how it has the address.
func readCalico(ip netip.Addr) string { return ifPlain("calicoctl ipam show --ip=", ip) }

func readHostLocal(ip netip.Addr) string { return ifPlain("grep -H . /var/lib/cni/networks/*/", ip) }
func readNode(ip netip.Addr) string      { return ifPlain("ip -o addr show to ", ip) }

func ifPlain(command string, ip netip.Addr) string {
	if !plainAddress(ip) {
		return ""
	}
	return command + ip.String()
}

const (
	digits  = "0123456789"
	letters = "abcdefghijklmnopqrstuvwxyz"
	devices = digits + letters + "ABCDEFGHIJKLMNOPQRSTUVWXYZ._-"
)

// plainName reports whether a text looks like a Kubernetes name (RFC 1123).
func plainName(s string) bool { return plain(s, digits+letters+".-") && s[0] != '.' }

// plainDevice reports whether a text looks like the name of a veth.
func plainDevice(s string) bool { return plain(s, devices) && s[0] != '.' }

// plainUID reports whether a text looks like a UID or a boot id.
func plainUID(s string) bool { return len(s) >= 12 && plain(s, digits+"abcdef-") }

// plainSandbox reports whether a text looks like an ID of containerd or CRI-O that is long enough to be unique.
func plainSandbox(s string) bool { return len(s) >= 12 && plain(s, digits+"abcdef") }

// plainPath reports whether a text looks like an absolute path.
func plainPath(s string) bool {
	return strings.HasPrefix(s, "/") && !strings.Contains(s, "..") && plain(s, devices+"/")
}

// plainAddress reports whether it is an address as IPAM names its files. A zone may be any text.
func plainAddress(ip netip.Addr) bool { return ip.IsValid() && !ip.Is4In6() && ip.Zone() == "" }

// plain reports whether a text consists of these characters only and is not an option.
func plain(s, characters string) bool {
	return s != "" && s[0] != '-' && strings.Trim(s, characters) == ""
}
