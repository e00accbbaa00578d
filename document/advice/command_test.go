package advice

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
)

// A node whose neighbour entry leads to a removed holder has to flush it. Names of devices are hostile
// input.
func TestFlush(t *testing.T) {
	a, b := on("n1", "web-0", 0, 0), on("n1", "web-1", 12, 12)
	gateway := by("cni0", to("n1", b, 1))
	gateway.Gateway = netip.MustParseAddr("10.0.0.9")
	for _, test := range []struct {
		route document.Route
		want  string
	}{
		{by("cni0", to("n1", b, 1)), "1: ip neigh flush to 10.0.0.1 dev cni0, on n1"},
		{by("cni0", to("n1", a, 0)), "0: ip neigh flush to 10.0.0.1 dev cni0, on n1"},
		{to("n1", b, 1), ""},
		{gateway, ""},
		{by("cni0;reboot", to("n1", b, 1)), ""},
		{by("-all", to("n1", b, 1)), ""},
		{document.Route{Node: "n1", BootID: "b", To: document.ToUnknown, Device: "cni0"}, ""},
		{document.Route{Node: "n1", BootID: "b", To: document.ToDevice, Device: "cni0"}, ""},
	} {
		c := between(a, b)
		c.Routes = []document.Route{test.route}
		var got []string
		for _, r := range Of(c, names, nil).Remove {
			for _, f := range r.Then {
				got = append(got, fmt.Sprintf("%d: %s, on %s", r.Holder, f.Command, f.On))
			}
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%+v: %q, want %q", test.route, got, test.want)
		}
	}
}

// Names of pods, interfaces and nodes are hostile input, and people paste commands.
func TestCommandsAreSafeInAShell(t *testing.T) {
	const fallback = "ip link set dev veth0 down"
	for _, test := range []struct{ namespace, name, device, want string }{
		{"shop", "web-0.a", "veth0", "kubectl -n shop delete pod --field-selector metadata.name=web-0.a,spec.nodeName=n1"},
		{"shop", "web;reboot", "veth0", fallback},
		{"shop", "web$(reboot)", "veth0", fallback},
		{"shop", "web 0", "veth0", fallback},
		{"shop", "web\n0", "veth0", fallback},
		{"shop", "Web", "veth0", fallback},
		{"shop", "--all", "veth0", fallback},
		{"--all", "web", "veth0", fallback},
		{"", "web", "veth0", fallback},
		{"shop", "", "veth0", fallback},
		{"shop", "wéb", "veth0", fallback},
		{"", "", "Veth_0.1-a", "ip link set dev Veth_0.1-a down"},
		{"", "", "", ""},
		{"", "", "-veth0", ""},
		{"", "", "veth0;reboot", ""},
		{"", "", "`reboot`", ""},
		{"", "", "veth>a", ""},
	} {
		b := on("n1", "", 0, -1)
		b.Pod, b.Interface = &document.Pod{Namespace: test.namespace, Name: test.name}, test.device
		got, on := command(b, false, true, names)
		for _, id := range []string{"", "0123456789a", "0123456789ab;", "-0123456789ab", "0123456789abG"} {
			b.Pod.Sandbox = id
			for _, ambiguous := range []bool{false, true} {
				if text, _ := command(b, ambiguous, false, names); strings.HasPrefix(text, "crictl") {
					t.Errorf("sandbox %q: %q", id, text)
				}
			}
		}
		if got != test.want || (on == "n1") != strings.HasPrefix(got, "ip") {
			t.Errorf("%+v: %q on %q", test, got, on)
		}
	}
	for _, node := range []string{"n1;reboot", "-n1", "n 1", "N1"} {
		b := on(node, "web-0", 0, -1)
		if got, _ := command(b, false, true, names); strings.HasPrefix(got, "kubectl") {
			t.Errorf("on node %q: %q", node, got)
		}
	}
}
