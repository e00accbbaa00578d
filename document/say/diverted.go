package say

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/dupip/dupip/document"
)

// The tables that have names in every iproute2.
var tables = map[int]string{255: "local", 254: "main", 253: "default"}

// diverted says how a node diverts the packets to an address, and how to end that. What another node says is only that it has the pod.
func diverted(f document.Finding) (text string, steps []document.Step) {
	pod, device, route := cmp.Or(f.Pod.String(), "A pod"), cmp.Or(f.Device, "a device"), "a route"
	if f.Route.IsValid() {
		route = "the route " + f.Route.String()
	}
	if f.Table != 0 && tables[f.Table] != "main" {
		route += " of table " + cmp.Or(tables[f.Table], fmt.Sprint(f.Table))
	}
	if f.Protocol != "" {
		route += " (proto " + f.Protocol + ")"
	}
	packets := "packets"
	if f.Partly {
		packets = "some packets"
	}
	does := map[string]string{
		document.EndsAtSelf:     fmt.Sprintf("takes %s to %s for its own, by %s on %s", packets, f.IP, route, device),
		document.EndsAtNode:     fmt.Sprintf("sends %s to %s to node %s, by %s and %s, although it has the pod itself", packets, f.IP, strings.Join(f.Through, " "), route, device),
		document.EndsByProxy:    fmt.Sprintf("answers on %s for %s, by a proxy entry, and sends what comes elsewhere, by %s", device, f.IP, route),
		document.EndsByProxyARP: fmt.Sprintf("answers ARP on %s for %s, because of proxy_arp, and sends what comes elsewhere, by %s", device, f.IP, route),
		document.EndsAtPods:     fmt.Sprintf("sends %s to %s to other pods of its own, by %s and %s", packets, f.IP, route, device),
	}
	does[document.EndsByProxyAll] = does[document.EndsByProxyARP]
	text = "Node " + f.Node + " " + cmp.Or(does[f.End], does[document.EndsAtPods])
	if !f.Since.IsZero() {
		text += ", since " + f.Since.Format(clock)
	}
	text += fmt.Sprintf(". %s on node %s has the address, and does not get them.", pod, f.HeldBy)
	end := document.Step{If: "If " + pod + " on node " + f.HeldBy + " is right", Node: f.Node, Command: endDiverted(f), Cuts: "what is meant to go there"}
	isAddress := f.End == document.EndsAtSelf && f.Protocol == "kernel"
	switch {
	case isAddress && (f.Device == "docker0" || strings.HasPrefix(f.Device, "br-")):
		end.Text = fmt.Sprintf(`Give %s another subnet, outside of the pods' ranges: "bip" and "default-address-pools" in Docker's /etc/docker/daemon.json, and restart Docker`, f.Device)
	case isAddress && f.Device == "kube-ipvs0":
		end.Text, end.Cuts = "Take the address from the Service that has it, as its externalIP or that of its load balancer", "nothing"
		end.Command = ifPlain("kubectl get services -A -o wide | grep -F ", f.IP)
	case isAddress:
		end.Text = fmt.Sprintf("Take the address from %s, where what configures that device has it", device)
	case end.Command != "" && strings.HasPrefix(f.End, document.EndsByProxy):
		end.Text = "End the proxy, and take it out of the configuration that sets it"
	case end.Command != "":
		end.Text = "Remove the route, and find what has made it"
	case f.Protocol == "kernel":
		end.Text = fmt.Sprintf("End %s where it is made: it belongs to an address of %s, whose subnet has to be another one", route, device)
	default:
		end.Text = fmt.Sprintf("End %s where it is made: look what uses that proto, such as a routing daemon that has learned it", route)
	}
	switch {
	case end.Command == "":
		end.Cuts = ""
	case f.End == document.EndsByProxyAll:
		end.Cuts = "what reaches others through this node because it answers for them, except on devices that have proxy ARP switched on themselves"
	}
	return text, []document.Step{{Text: "Look what the node has", Node: f.Node, Command: lookDiverted(f), Cuts: "nothing"}, end}
}

// lookDiverted prints what diverts packets, as the kernel has it.
func lookDiverted(f document.Finding) string {
	look, known := ifPlain("ip route get fibmatch ", f.IP), plainDevice(f.Device)
	switch {
	case f.End == document.EndsAtSelf && f.Route.IsValid() && tables[f.Table] != "":
		return fmt.Sprintf("%s show table %s %s", ipRoute(f), tables[f.Table], f.Route)
	case f.End == document.EndsByProxy && known && look != "":
		return fmt.Sprintf("ip neigh show proxy dev %s; %s", f.Device, look)
	case strings.HasPrefix(f.End, document.EndsByProxyARP) && known && look != "":
		return fmt.Sprintf("sysctl net.ipv4.conf.all.proxy_arp %s; %s", proxyARP(f), look)
	}
	return look
}

// endDiverted ends it, if that was made by hand or by a guest agent: what a daemon has learned comes back. The kernel refuses to remove a route that
// it has not, with just that destination, device and table.
func endDiverted(f document.Finding) string {
	switch {
	case !plainAddress(f.IP) || !plainDevice(f.Device):
		return ""
	case f.End == document.EndsByProxy:
		return fmt.Sprintf("ip neigh del proxy %s dev %s", f.IP, f.Device)
	case f.End == document.EndsByProxyARP:
		return "sysctl -w " + proxyARP(f) + "=0"
	case f.End == document.EndsByProxyAll:
		return "sysctl -w net.ipv4.conf.all.proxy_arp=0"
	case !f.Route.IsValid() || !plainAddress(f.Route.Addr()) || f.Route.Bits() == 0 || f.Table <= 0:
		return ""
	case f.End == document.EndsAtSelf && f.Protocol != "kernel" && tables[f.Table] != "":
		return fmt.Sprintf("%s del local %s dev %s table %s", ipRoute(f), f.Route, f.Device, tables[f.Table])
	case f.End == document.EndsAtSelf || !slices.Contains([]string{"boot", "static", "unspec"}, f.Protocol):
		return ""
	}
	command := fmt.Sprintf("%s del %s dev %s", ipRoute(f), strings.TrimSuffix(f.Route.String(), fmt.Sprint("/", f.IP.BitLen())), f.Device)
	if tables[f.Table] != "main" {
		command += fmt.Sprintf(" table %d", f.Table)
	}
	return command
}

// proxyARP is the switch of the device, in whose name sysctl has slashes for dots.
func proxyARP(f document.Finding) string {
	return "net.ipv4.conf." + strings.ReplaceAll(f.Device, ".", "/") + ".proxy_arp"
}

// ipRoute is the command for the routes of the finding's family: without a family, ip takes a table for that of IPv4.
func ipRoute(f document.Finding) string {
	if f.Route.Addr().Is6() {
		return "ip -6 route"
	}
	return "ip route"
}

// Found are what to do about what nodes have found about the way to an address.
func Found(e document.Explanation) []Entry { return Repairs(document.Audit{Findings: e.Findings}) }

// Routes says where the nodes that were asked send packets to an address.
func Routes(e document.Explanation) (lines []string) {
	v := newVoice(&document.Conflict{IP: e.IP, Routes: e.Routes, Judgement: &document.Judgement{}}, nil)
	for _, r := range e.Routes {
		text := "from " + v.nodes[r.NodeID()] + " " + v.target(r)
		if r.To == document.ToSelf && r.Device != "" {
			text += ", by " + r.Prefix.String() + " on " + r.Device
		}
		if r.Proxy != "" {
			text += "; it answers for the address on " + r.Proxy
		}
		if !slices.Contains(lines, text) {
			lines = append(lines, text)
		}
	}
	return lines
}
