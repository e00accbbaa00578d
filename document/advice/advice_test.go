package advice

import (
	"fmt"
	"hash/crc32"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// on is a holder on a node, without a pod if that is empty, first seen and (unless negative) created at these seconds.
func on(node, pod string, seen, made float64) document.Binding {
	b := document.Binding{
		Network: "default", IP: netip.MustParseAddr("10.0.0.1"), Evidence: detector.Announced, FirstSeen: at(seen),
		Holder: document.Holder{
			Node: node, BootID: "b", Interface: "veth" + pod, NetnsCookie: uint64(crc32.ChecksumIEEE(fmt.Append(nil, node, pod, seen))),
		},
	}
	if pod != "" {
		b.Pod = &document.Pod{Namespace: "shop", Name: pod, UID: "u"}
		if made >= 0 {
			b.Pod.CreatedAt = at(made)
		}
	}
	return b
}

// with changes the pod of a holder.
func with(b document.Binding, change func(*document.Pod)) document.Binding {
	pod := *b.Pod
	change(&pod)
	b.Pod = &pod
	return b
}

func withUID(b document.Binding, uid string) document.Binding {
	return with(b, func(p *document.Pod) { p.UID = uid })
}

func withSandbox(b document.Binding, id string, stopped bool) document.Binding {
	return with(b, func(p *document.Pod) { p.Sandbox, p.Stopped = id, stopped })
}

func goneHolder(b document.Binding) document.Binding {
	b.Gone = true
	return b
}

func foundEarly(b document.Binding) document.Binding {
	b.FoundAtStart = true
	return b
}

func unreachableHolder(b document.Binding) document.Binding {
	b.Unreachable = true
	return b
}

func host(node string) document.Binding {
	b := on(node, "", 0, -1)
	b.Evidence, b.Netns, b.Interface, b.FoundAtStart = detector.Host, "host", "eth0", true
	return b
}

func between(holders ...document.Binding) document.Conflict {
	return document.Conflict{Network: holders[0].Network, IP: holders[0].IP, State: detector.Confirmed, Holders: holders}
}

// to is the route of a node to the nth holder b, by its interface.
func to(node string, b document.Binding, n int) document.Route {
	return document.Route{Node: node, BootID: "b", To: document.ToHolder, Holder: &n, Device: b.Interface}
}

func by(device string, r document.Route) document.Route {
	r.Device = device
	return r
}

var names = map[string]string{"n1/b": "n1", "n1/c": "n1", "n2/b": "n2", "n3/b": "n3"}

// outline is an advice in a few lines.
func outline(a *document.Advice) string {
	var lines []string
	if a.Newer != nil {
		lines = append(lines, fmt.Sprintf("%d is newer than %d by %s %gs", *a.Newer, *a.Than, a.By, a.AfterSeconds))
	} else {
		lines = append(lines, strings.TrimSpace("unknown: "+a.Unknown+" "+strings.Trim(fmt.Sprint(a.Held), "[]")))
	}
	for _, r := range a.Remove {
		line := fmt.Sprint(r.Holder)
		// TestCommandsAreSafeInAShell has the whole command.
		command := regexp.MustCompile(`--field-selector metadata\.name=(\S+),spec\.nodeName=\S+`).ReplaceAllString(r.Command, "$1")
		for _, word := range []string{r.Because, command, r.On} {
			if word != "" {
				line += ", " + word
			}
		}
		for _, f := range r.Then {
			line += ", then " + f.Command
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestRemove(t *testing.T) {
	a, b, c := on("n1", "web-0", 0, 0), on("n2", "web-1", 12, 12), on("n2", "", 20, -1)
	over := func(node, to string) document.Route {
		return document.Route{Node: node, BootID: "b", To: document.ToNode, ToNode: to, ToBootID: "b"}
	}
	leads := func(node, kind string) document.Route { return document.Route{Node: node, BootID: "b", To: kind} }
	first, late := foundEarly(on("n1", "", 0, -1)), foundEarly(on("n1", "late", 0, -1))
	bare := first
	bare.Interface = ""
	far := foundEarly(on("n2", "far", 0, -1))
	again := withUID(on("n2", "web-0", 30, 30), "v")
	next := on("n1", "web-0", 40, 40) // its next sandbox
	laterPod := withUID(on("n1", "web-0", 50, 50), "v")
	nameless := withUID(on("n2", "web-0", 30, 30), "")
	const id, id2 = "0123456789abc", "123456789abcd"
	for _, test := range []struct {
		name    string
		holders []document.Binding
		routes  []document.Route
		want    string
	}{
		{"pods", []document.Binding{a, b}, nil, "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"whatever the routes", []document.Binding{a, b}, []document.Route{to("n1", b, 1), to("n2", b, 1)}, "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		// The older holder's name may now belong to a later pod that is no holder.
		{"pods, sandboxes known", []document.Binding{withSandbox(a, id, false), withSandbox(b, id2, false)}, nil, "1, newer, kubectl -n shop delete pod web-1\n0, crictl rmp -f 0123456789abc, n1"},
		{"pods, which is newer is not known", []document.Binding{withSandbox(late, id, false), withSandbox(far, id2, false)}, nil, "0, crictl rmp -f 0123456789abc, n1\n1, crictl rmp -f 123456789abcd, n2"},
		{"no pod", []document.Binding{a, c}, nil, "1, newer, ip link set dev veth down, n2\n0, kubectl -n shop delete pod web-0"},
		{"three, by age", []document.Binding{a, b, c}, nil, "2, newer, ip link set dev veth down, n2\n1, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"not known, and no routes", []document.Binding{first, late}, nil, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"one is dark", []document.Binding{first, late}, []document.Route{to("n1", first, 0)}, "1, dark, kubectl -n shop delete pod late\n0, ip link set dev veth down, n1"},
		{"the route is not known", []document.Binding{first, late}, []document.Route{leads("n1", document.ToUnknown)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"each its own", []document.Binding{first, far}, []document.Route{to("n1", first, 0), to("n2", far, 1)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"one node does not report", []document.Binding{first, far}, []document.Route{to("n1", first, 0)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"one node leads to the other", []document.Binding{first, far}, []document.Route{to("n1", first, 0), over("n2", "n1")}, "1, dark, kubectl -n shop delete pod far\n0, ip link set dev veth down, n1"},
		// Pods on the bridge have neighbour entries of their own.
		{"by the node's own neighbour entry", []document.Binding{first, late}, []document.Route{by("cni0", to("n1", first, 0))}, "0, ip link set dev veth down, n1, then ip neigh flush to 10.0.0.1 dev cni0\n1, kubectl -n shop delete pod late"},
		{"another node by its neighbour entry", []document.Binding{first, far}, []document.Route{to("n1", first, 0), by("eth0", to("n2", first, 0))}, "0, ip link set dev veth down, n1, then ip neigh flush to 10.0.0.1 dev eth0\n1, kubectl -n shop delete pod far"},
		{"another node by a device of the same name", []document.Binding{first, far}, []document.Route{to("n1", first, 0), to("n2", first, 0)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"by a device that is not known to be the holder's", []document.Binding{bare, late}, []document.Route{by("veth", to("n1", bare, 0))}, "0\n1, kubectl -n shop delete pod late"},
		{"to a device that leads to no holder", []document.Binding{first, late}, []document.Route{leads("n1", document.ToDevice)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"a third node does not matter", []document.Binding{first, far}, []document.Route{leads("n3", document.ToUnknown), to("n1", first, 0), over("n2", "n1")}, "1, dark, kubectl -n shop delete pod far\n0, ip link set dev veth down, n1"},
		{"one leads to another node", []document.Binding{first, far}, []document.Route{to("n1", first, 0), over("n2", "n3")}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		// With this name kubectl would delete the later pod.
		{"one name twice", []document.Binding{a, again}, nil, "0, replaced, ip link set dev vethweb-0 down, n1\n1, newer, ip link set dev vethweb-0 down, n2"},
		{"one name twice, sandboxes known", []document.Binding{withSandbox(a, id, false), withSandbox(again, id2, false)}, nil, "0, replaced, crictl rmp -f 0123456789abc, n1\n1, newer, crictl rmp -f 123456789abcd, n2"},
		{"one name twice on one node", []document.Binding{a, laterPod}, nil, "0, replaced, ip link set dev vethweb-0 down, n1\n1, newer, ip link set dev vethweb-0 down, n1"},
		{"one pod twice on one node", []document.Binding{a, next}, nil, "0, replaced, ip link set dev vethweb-0 down, n1\n1, newer, ip link set dev vethweb-0 down, n1"},
		{"one name twice, of a UID that is not known", []document.Binding{a, nameless}, nil, "1, newer, ip link set dev vethweb-0 down, n2\n0, ip link set dev vethweb-0 down, n1"},
		{"the older has stopped", []document.Binding{withSandbox(a, id, true), withSandbox(b, id2, false)}, nil, "0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, kubectl -n shop delete pod web-1"},
		{"the newer has stopped", []document.Binding{a, withSandbox(b, id, true)}, nil, "1, stopped, crictl rmp -f 0123456789abc, n2\n0, kubectl -n shop delete pod web-0"},
		{"one of its name runs", []document.Binding{withSandbox(a, id, true), withSandbox(again, id2, false)}, nil, "0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, crictl rmp -f 123456789abcd, n2"},
		{"both have stopped", []document.Binding{withSandbox(a, id, true), withSandbox(b, id2, true)}, nil, "1, stopped, crictl rmp -f 123456789abcd, n2\n0, stopped, crictl rmp -f 0123456789abc, n1"},
		{"stopped, the id is not known", []document.Binding{withSandbox(a, "", true), b}, nil, "0, stopped, ip link set dev vethweb-0 down, n1\n1, newer, kubectl -n shop delete pod web-1"},
		{"a node, and a pod that has stopped", []document.Binding{host("n1"), withSandbox(b, id, true)}, nil, "1, stopped, crictl rmp -f 0123456789abc, n2\n0"},
		{"a node, and a pod of an age that is not known", []document.Binding{host("n1"), withSandbox(b, id, false)}, nil, "1, pod, crictl rmp -f 0123456789abc, n2\n0"},
		{"a node", []document.Binding{host("n1"), b}, nil, "1, pod, kubectl -n shop delete pod web-1\n0"},
		{"a node that receives all packets", []document.Binding{host("n1"), b}, []document.Route{to("n1", host("n1"), 0), over("n2", "n1")}, "1, pod, kubectl -n shop delete pod web-1\n0"},
		{"a node and two pods", []document.Binding{host("n1"), a, b}, nil, "2, pod, kubectl -n shop delete pod web-1\n1, kubectl -n shop delete pod web-0\n0"},
	} {
		c := between(test.holders...)
		c.Routes = test.routes
		_, got, _ := strings.Cut(outline(Of(c, names, nil)), "\n")
		if got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// Whether a plugin gave a holder the address decides before age, but only "not given" against "given"; and of two that were
// given it by two nodes, neither node knows which is right.
func TestGiven(t *testing.T) {
	given := func(b document.Binding, g detector.Given) document.Binding {
		b.Given = g
		return b
	}
	const yes, no, unknown = detector.GivenYes, detector.GivenNo, detector.GivenUnknown
	older, newer := on("n1", "web-0", 0, 0), on("n1", "web-1", 12, 12)
	far, far2 := on("n2", "web-2", 20, 20), on("n3", "web-3", 30, 30)
	const byAge = "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"
	const farByAge = "1, newer, kubectl -n shop delete pod web-2\n0, kubectl -n shop delete pod web-0"
	for _, test := range []struct {
		name    string
		holders []document.Binding
		want    string
	}{
		{"the elder was not given it", []document.Binding{given(older, no), given(newer, yes)}, "0, not-given, kubectl -n shop delete pod web-0\n1, newer, kubectl -n shop delete pod web-1"},
		{"the newer was not given it", []document.Binding{given(older, yes), given(newer, no)}, "1, not-given, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"one is unknown", []document.Binding{given(older, unknown), given(newer, yes)}, byAge},
		{"the other is unknown", []document.Binding{given(older, no), given(newer, unknown)}, byAge},
		{"both were", []document.Binding{given(older, yes), given(newer, yes)}, byAge},
		{"neither was", []document.Binding{given(older, no), given(newer, no)}, byAge},
		{"by two nodes", []document.Binding{given(older, yes), given(far, yes)}, "any: " + farByAge},
		{"what another node says does not speak against a given one", []document.Binding{given(older, unknown), given(far, yes)}, "any: " + farByAge},
		{"the newer on another node is unknown", []document.Binding{given(older, yes), given(far, unknown)}, farByAge},
		{"another node's elder was not", []document.Binding{given(older, no), given(far, yes)}, "0, not-given, kubectl -n shop delete pod web-0\n1, newer, kubectl -n shop delete pod web-2"},
		{"three, one was not", []document.Binding{given(older, no), given(far, unknown), given(far2, yes)}, "any: 0, not-given, kubectl -n shop delete pod web-0\n2, newer, kubectl -n shop delete pod web-3\n1, kubectl -n shop delete pod web-2"},
		{"a node, and one that was not", []document.Binding{host("n1"), given(far, no)}, "1, pod, kubectl -n shop delete pod web-2\n0"},
	} {
		a := Of(between(test.holders...), names, nil)
		_, got, _ := strings.Cut(outline(a), "\n")
		if a.GivenByNodes {
			got = "any: " + got
		}
		if got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// A holder that has gone is in no command: its pod's name may be a successor's by now.
func TestGone(t *testing.T) {
	older, newer, newest := on("n1", "web-0", 0, 0), on("n2", "web-1", 12, 12), on("n3", "web-2", 20, 20)
	for _, test := range []struct {
		name    string
		holders []document.Binding
		want    string
	}{
		{"the newer", []document.Binding{older, goneHolder(newer)}, "unknown: gone 1"},
		{"the elder", []document.Binding{goneHolder(older), newer}, "unknown: gone 0"},
		{"both", []document.Binding{goneHolder(older), goneHolder(newer)}, "unknown: gone 0 1"},
		{"one of three", []document.Binding{older, newer, goneHolder(newest)}, "1 is newer than 0 by created 12s\n1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"the first of three", []document.Binding{goneHolder(older), newer, newest}, "2 is newer than 1 by created 8s\n2, newer, kubectl -n shop delete pod web-2\n1, kubectl -n shop delete pod web-1"},
		{"the first of three, and a node does not answer", []document.Binding{goneHolder(older), newer, unreachableHolder(newest)}, "unknown: unreachable 2"},
	} {
		if got := outline(Of(between(test.holders...), names, nil)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// Routes and advice have the indexes of all holders, though those that have gone are left out in between.
func TestRoutesWithGone(t *testing.T) {
	first, gone, late := foundEarly(on("n1", "", 1, -1)), goneHolder(on("n1", "web-0", 0, 0)), foundEarly(on("n1", "late", 1, -1))
	for _, test := range []struct {
		name  string
		route document.Route
		want  string
	}{
		{"to a live one", to("n1", first, 0), "2, dark, kubectl -n shop delete pod late\n0, ip link set dev veth down, n1"},
		{"to the other", to("n1", late, 2), "0, dark, ip link set dev veth down, n1\n2, kubectl -n shop delete pod late"},
		{"to the one that has gone", to("n1", gone, 1), "0, ip link set dev veth down, n1\n2, kubectl -n shop delete pod late"},
		{"to a live one, over a bridge", by("cni0", to("n1", late, 2)), "0, ip link set dev veth down, n1\n2, kubectl -n shop delete pod late, then ip neigh flush to 10.0.0.1 dev cni0"},
		{"to the one that has gone, over a bridge", by("cni0", to("n1", gone, 1)), "0, ip link set dev veth down, n1\n2, kubectl -n shop delete pod late"},
	} {
		c := between(first, gone, late)
		c.Routes = []document.Route{test.route}
		if _, got, _ := strings.Cut(outline(Of(c, names, nil)), "\n"); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
		if got := c.Routes[0]; got.To != document.ToHolder || *got.Holder != *test.route.Holder {
			t.Errorf("%s: the conflict's route is %+v now", test.name, got)
		}
	}
}

// If a holder's node is unreachable, the newer holder may be the only live one.
func TestUnreachable(t *testing.T) {
	stopped := withSandbox(on("n1", "web-0", 0, 0), "", true)
	older, newer := on("n1", "web-0", 0, 0), on("n2", "web-1", 12, 12)
	newest := on("n3", "web-2", 20, 20)
	for _, test := range []struct {
		name    string
		holders []document.Binding
		want    string
	}{
		{"the older", []document.Binding{unreachableHolder(older), newer}, "unknown: unreachable 0"},
		{"the newer", []document.Binding{older, unreachableHolder(newer)}, "unknown: unreachable 1"},
		{"one of three", []document.Binding{older, newer, unreachableHolder(newest)}, "unknown: unreachable 2"},
		{"two of three", []document.Binding{unreachableHolder(older), newer, unreachableHolder(newest)}, "unknown: unreachable 0 2"},
		{"one that had stopped", []document.Binding{unreachableHolder(stopped), newer}, "unknown: unreachable 0"},
		{"a node", []document.Binding{unreachableHolder(host("n1")), newer}, "unknown: unreachable 0"},
	} {
		a := Of(between(test.holders...), names, nil)
		if got := outline(a); got != test.want || a.Remove == nil {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// Two nodes that run one pod are clones of one machine; which one should run is unknown.
func TestOnePodOnTwoNodes(t *testing.T) {
	const withheld = "unknown: two-nodes 0 1"
	a, b, c := on("n1", "web-0", 0, 0), on("n2", "web-0", 12, 12), on("n3", "web-1", 20, 20)
	again := on("n1", "web-0", 30, 30)
	again.BootID = "c"
	stopped, later := withSandbox(a, "0123456789abc", true), withUID(b, "v")
	ageless := with(b, func(p *document.Pod) { p.CreatedAt = time.Time{} })
	given := a
	given.Given = detector.GivenYes
	for _, test := range []struct {
		name    string
		holders []document.Binding
		want    string
	}{
		{"another UID, as another node says, of a pod that its own node gave the address", []document.Binding{given, later}, "1 is newer than 0 by created 12s\n1, newer, ip link set dev vethweb-0 down, n2\n0, ip link set dev vethweb-0 down, n1"},
		{"a clone", []document.Binding{a, b}, withheld},
		{"the other way round", []document.Binding{b, a}, withheld},
		{"of which the age is not known", []document.Binding{a, ageless}, withheld},
		{"two boots of one name", []document.Binding{a, again}, withheld},
		{"and another pod", []document.Binding{c, a, b}, "unknown: two-nodes 1 2"},
		{"one does not answer", []document.Binding{unreachableHolder(a), b}, "unknown: unreachable 0"},
		{"one does not run any more", []document.Binding{stopped, b}, "1 is newer than 0 by created 12s\n0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, ip link set dev vethweb-0 down, n2"},
		{"another UID", []document.Binding{a, later}, "1 is newer than 0 by created 12s\n0, replaced, ip link set dev vethweb-0 down, n1\n1, newer, ip link set dev vethweb-0 down, n2"},
	} {
		if got := outline(Of(between(test.holders...), names, nil)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// Another node may report a conflict without holders.
func TestTooFewHolders(t *testing.T) {
	if a := Of(between(on("n1", "a", 0, 0)), names, nil); a != nil {
		t.Errorf("%+v", a)
	}
	if a := Of(document.Conflict{}, names, nil); a != nil {
		t.Errorf("%+v", a)
	}
}
