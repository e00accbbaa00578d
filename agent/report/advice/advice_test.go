package advice

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// on is a holder on a node, first seen and (unless negative) created at these seconds.
func on(node, pod string, seen, made float64) detector.Binding {
	b := detector.Binding{
		Key: detector.Key{Network: "default", IP: netip.MustParseAddr("10.0.0.1")},
		Holder: detector.Holder{
			ID:            detector.HolderID{Node: node + "/b", Netns: uint64(len(pod)*1000 + int(seen)*10 + int(node[len(node)-1]))},
			InterfaceName: "veth" + strings.ReplaceAll(pod, "/", ""),
		},
		Evidence: detector.Announced, FirstSeen: at(seen),
	}
	if namespace, name, ok := strings.Cut(pod, "/"); ok {
		b.Holder.Pod = detector.Pod{Namespace: namespace, Name: name, UID: "u"}
	}
	if made >= 0 {
		b.Holder.CreatedAt = at(made)
	}
	return b
}

func foundEarly(b detector.Binding) detector.Binding {
	b.FoundAtStart = true
	return b
}

func unreachableHolder(b detector.Binding) detector.Binding {
	b.Unreachable = true
	return b
}

func host(node string) detector.Binding {
	b := on(node, "", 0, -1)
	b.Evidence, b.Holder.NetnsName, b.Holder.InterfaceName, b.FoundAtStart = detector.Host, "host", "eth0", true
	return b
}

func between(holders ...detector.Binding) detector.Conflict {
	return detector.Conflict{Key: holders[0].Key, State: detector.Confirmed, Holders: holders}
}

var names = map[string]string{"n1/b": "n1", "n1/c": "n1", "n2/b": "n2", "n3/b": "n3"}

// outline is an advice in a few lines.
func outline(a *api.Advice) string {
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
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestNewer(t *testing.T) {
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		want    string
	}{
		{"created", []detector.Binding{on("n1", "a", 0, 0), on("n2", "b", 12, 12)}, "1 is newer than 0 by created 12s"},
		{"created, in the reverse order", []detector.Binding{on("n1", "a", 0, 20), on("n1", "b", 0, 3)}, "0 is newer than 1 by created 17s"},
		{"created, all found at the start", []detector.Binding{foundEarly(on("n1", "a", 50, 0)), foundEarly(on("n1", "b", 50, 12))}, "1 is newer than 0 by created 12s"},
		{"created at one time on one node", []detector.Binding{on("n1", "a", 0, 0), on("n1", "b", 0.2, 0.1)}, "1 is newer than 0 by created 0.1s"},
		{"created at the same time on one node", []detector.Binding{on("n1", "a", 0, 0), on("n1", "b", 9, 0)}, "unknown: together"},
		{"created at one time on two nodes", []detector.Binding{on("n1", "a", 0, 0), on("n2", "b", 9, 1)}, "unknown: together"},
		{"created on two nodes", []detector.Binding{on("n1", "a", 0, 0), on("n2", "b", 1, 1.1)}, "1 is newer than 0 by created 1.1s"},
		{"created later and seen earlier", []detector.Binding{on("n1", "a", 0, 9), on("n2", "b", 20, 2)}, "unknown: another-order"},
		{"created later, seen at about one time", []detector.Binding{on("n1", "a", 19.5, 9), on("n2", "b", 20, 2)}, "0 is newer than 1 by created 7s"},
		{"created later, the other seen at a start", []detector.Binding{on("n1", "a", 0, 9), foundEarly(on("n2", "b", 20, 2))}, "0 is newer than 1 by created 7s"},
		{"one was created, the other at an unknown time", []detector.Binding{on("n1", "a", 0, -1), on("n2", "b", 12, 12)}, "1 is newer than 0 by firstSeen 12s"},
		{"seen", []detector.Binding{on("n1", "a", 0, -1), on("n1", "b", 1.5, -1)}, "1 is newer than 0 by firstSeen 1.5s"},
		{"seen together", []detector.Binding{on("n1", "a", 0, -1), on("n1", "b", 1, -1)}, "unknown: together"},
		{"both found at a start", []detector.Binding{foundEarly(on("n1", "a", 0, -1)), foundEarly(on("n1", "b", 20, -1))}, "unknown: found-at-start"},
		{"the older found at a start", []detector.Binding{foundEarly(on("n1", "a", 0, -1)), on("n2", "b", 20, -1)}, "1 is newer than 0 by firstSeen 20s"},
		{"the older found at a start a moment ago", []detector.Binding{foundEarly(on("n1", "a", 0, -1)), on("n1", "b", 0.25, -1)}, "1 is newer than 0 by firstSeen 0.25s"},
		{"the same on two nodes", []detector.Binding{foundEarly(on("n1", "a", 0, -1)), on("n2", "b", 0.25, -1)}, "unknown: together"},
		{"an agent starts late", []detector.Binding{on("n1", "a", 0, -1), foundEarly(on("n2", "b", 20, -1))}, "unknown: found-at-start"},
		{"three", []detector.Binding{on("n1", "a", 0, 0), on("n2", "b", 5, 5), on("n3", "c", 9, 9)}, "2 is newer than 1 by created 4s"},
		{"three, the last two together", []detector.Binding{on("n1", "a", 0, -1), on("n2", "b", 9, -1), on("n3", "c", 9.5, -1)}, "unknown: together"},
		{"three, two found at starts", []detector.Binding{foundEarly(on("n1", "a", 0, -1)), foundEarly(on("n2", "b", 3, -1)), on("n3", "c", 9, -1)}, "2 is newer than 1 by firstSeen 6s"},
		{"a node", []detector.Binding{host("n1"), on("n2", "b", 9, 9)}, "unknown: host"},
	} {
		got, _, _ := strings.Cut(outline(Of(between(test.holders...), nil, names, nil)), "\n")
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

func TestRemove(t *testing.T) {
	a, b, c := on("n1", "shop/web-0", 0, 0), on("n2", "shop/web-1", 12, 12), on("n2", "", 20, -1)
	to := func(node string, b detector.Binding) NextHop {
		return NextHop{node + "/b", cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: b.Holder.InterfaceName}}
	}
	by := func(device string, l NextHop) NextHop {
		l.Device = device
		return l
	}
	over := func(node, to string) NextHop {
		return NextHop{node + "/b", cluster.NextHop{Kind: cluster.NextHopNode, Node: to + "/b"}}
	}
	unknown := func(node string) NextHop { return NextHop{node + "/b", cluster.NextHop{Kind: cluster.NextHopUnknown}} }
	first, late := foundEarly(on("n1", "", 0, -1)), foundEarly(on("n1", "shop/late", 0, -1))
	bare := first
	bare.Holder.InterfaceName = ""
	far := foundEarly(on("n2", "shop/far", 0, -1))
	again := on("n2", "shop/web-0", 30, 30)
	again.Holder.Pod.UID = "v"
	next := on("n1", "shop/web-0", 40, 40) // its next sandbox
	laterPod := on("n1", "shop/web-0", 50, 50)
	laterPod.Holder.Pod.UID = "v"
	nameless := on("n2", "shop/web-0", 30, 30)
	nameless.Holder.Pod.UID = ""
	sandbox := func(b detector.Binding, id string, stopped bool) detector.Binding {
		b.Holder.Sandbox = detector.Sandbox{ID: id, Stopped: stopped}
		return b
	}
	const id, id2 = "0123456789abc", "123456789abcd"
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		hops    []NextHop
		want    string
	}{
		{"pods", []detector.Binding{a, b}, nil, "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"whatever the routes", []detector.Binding{a, b}, []NextHop{to("n1", b), to("n2", b)}, "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		// The older holder's name may now belong to a later pod that is no holder.
		{"pods, sandboxes known", []detector.Binding{sandbox(a, id, false), sandbox(b, id2, false)}, nil, "1, newer, kubectl -n shop delete pod web-1\n0, crictl rmp -f 0123456789abc, n1"},
		{"pods, which is newer is not known", []detector.Binding{sandbox(late, id, false), sandbox(far, id2, false)}, nil, "0, crictl rmp -f 0123456789abc, n1\n1, crictl rmp -f 123456789abcd, n2"},
		{"no pod", []detector.Binding{a, c}, nil, "1, newer, ip link set dev veth down, n2\n0, kubectl -n shop delete pod web-0"},
		{"three, by age", []detector.Binding{a, b, c}, nil, "2, newer, ip link set dev veth down, n2\n1, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"not known, and no routes", []detector.Binding{first, late}, nil, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"one is dark", []detector.Binding{first, late}, []NextHop{to("n1", first)}, "1, dark, kubectl -n shop delete pod late\n0, ip link set dev veth down, n1"},
		{"the route is not known", []detector.Binding{first, late}, []NextHop{unknown("n1")}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"each its own", []detector.Binding{first, far}, []NextHop{to("n1", first), to("n2", far)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"one node does not report", []detector.Binding{first, far}, []NextHop{to("n1", first)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"one node leads to the other", []detector.Binding{first, far}, []NextHop{to("n1", first), over("n2", "n1")}, "1, dark, kubectl -n shop delete pod far\n0, ip link set dev veth down, n1"},
		// Pods on the bridge have neighbour entries of their own.
		{"by the node's own neighbour entry", []detector.Binding{first, late}, []NextHop{by("cni0", to("n1", first))}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"another node by its neighbour entry", []detector.Binding{first, far}, []NextHop{to("n1", first), by("eth0", to("n2", first))}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"another node by a device of the same name", []detector.Binding{first, far}, []NextHop{to("n1", first), to("n2", first)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		{"by a device that is not known to be the holder's", []detector.Binding{bare, late}, []NextHop{by("veth", to("n1", bare))}, "0\n1, kubectl -n shop delete pod late"},
		{"to one that is no holder", []detector.Binding{first, late}, []NextHop{to("n1", again)}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod late"},
		{"a third node does not matter", []detector.Binding{first, far}, []NextHop{unknown("n3"), to("n1", first), over("n2", "n1")}, "1, dark, kubectl -n shop delete pod far\n0, ip link set dev veth down, n1"},
		{"one leads to another node", []detector.Binding{first, far}, []NextHop{to("n1", first), over("n2", "n3")}, "0, ip link set dev veth down, n1\n1, kubectl -n shop delete pod far"},
		// With this name kubectl would delete the later pod.
		{"one name twice", []detector.Binding{a, again}, nil, "0, replaced, ip link set dev vethshopweb-0 down, n1\n1, newer, ip link set dev vethshopweb-0 down, n2"},
		{"one name twice, sandboxes known", []detector.Binding{sandbox(a, id, false), sandbox(again, id2, false)}, nil, "0, replaced, crictl rmp -f 0123456789abc, n1\n1, newer, crictl rmp -f 123456789abcd, n2"},
		{"one name twice on one node", []detector.Binding{a, laterPod}, nil, "0, replaced, ip link set dev vethshopweb-0 down, n1\n1, newer, ip link set dev vethshopweb-0 down, n1"},
		{"one pod twice on one node", []detector.Binding{a, next}, nil, "0, replaced, ip link set dev vethshopweb-0 down, n1\n1, newer, ip link set dev vethshopweb-0 down, n1"},
		{"one name twice, of a UID that is not known", []detector.Binding{a, nameless}, nil, "1, newer, ip link set dev vethshopweb-0 down, n2\n0, ip link set dev vethshopweb-0 down, n1"},
		{"the older has stopped", []detector.Binding{sandbox(a, id, true), sandbox(b, id2, false)}, nil, "0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, kubectl -n shop delete pod web-1"},
		{"the newer has stopped", []detector.Binding{a, sandbox(b, id, true)}, nil, "1, stopped, crictl rmp -f 0123456789abc, n2\n0, kubectl -n shop delete pod web-0"},
		{"one of its name runs", []detector.Binding{sandbox(a, id, true), sandbox(again, id2, false)}, nil, "0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, crictl rmp -f 123456789abcd, n2"},
		{"both have stopped", []detector.Binding{sandbox(a, id, true), sandbox(b, id2, true)}, nil, "1, stopped, crictl rmp -f 123456789abcd, n2\n0, stopped, crictl rmp -f 0123456789abc, n1"},
		{"stopped, the id is not known", []detector.Binding{sandbox(a, "", true), b}, nil, "0, stopped, ip link set dev vethshopweb-0 down, n1\n1, newer, kubectl -n shop delete pod web-1"},
		{"a node, and a pod that has stopped", []detector.Binding{host("n1"), sandbox(b, id, true)}, nil, "1, stopped, crictl rmp -f 0123456789abc, n2\n0"},
		{"a node, and a pod of an age that is not known", []detector.Binding{host("n1"), sandbox(b, id, false)}, nil, "1, pod, crictl rmp -f 0123456789abc, n2\n0"},
		{"a node", []detector.Binding{host("n1"), b}, nil, "1, pod, kubectl -n shop delete pod web-1\n0"},
		{"a node that receives all packets", []detector.Binding{host("n1"), b}, []NextHop{to("n1", host("n1")), over("n2", "n1")}, "1, pod, kubectl -n shop delete pod web-1\n0"},
		{"a node and two pods", []detector.Binding{host("n1"), a, b}, nil, "2, pod, kubectl -n shop delete pod web-1\n1, kubectl -n shop delete pod web-0\n0"},
	} {
		_, got, _ := strings.Cut(outline(Of(between(test.holders...), test.hops, names, nil)), "\n")
		if got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// Whether a plugin gave a holder the address decides before age, but only "not given" against "given"; and of two that were
// given it by two nodes, neither node knows which is right.
func TestGiven(t *testing.T) {
	given := func(b detector.Binding, g detector.Given) detector.Binding {
		b.Holder.Given = g
		return b
	}
	const yes, no, unknown = detector.GivenYes, detector.GivenNo, detector.GivenUnknown
	older, newer := on("n1", "shop/web-0", 0, 0), on("n1", "shop/web-1", 12, 12)
	far, far2 := on("n2", "shop/web-2", 20, 20), on("n3", "shop/web-3", 30, 30)
	const byAge = "1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"
	const farByAge = "1, newer, kubectl -n shop delete pod web-2\n0, kubectl -n shop delete pod web-0"
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		want    string
	}{
		{"the elder was not given it", []detector.Binding{given(older, no), given(newer, yes)}, "0, not-given, kubectl -n shop delete pod web-0\n1, newer, kubectl -n shop delete pod web-1"},
		{"the newer was not given it", []detector.Binding{given(older, yes), given(newer, no)}, "1, not-given, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"one is unknown", []detector.Binding{given(older, unknown), given(newer, yes)}, byAge},
		{"the other is unknown", []detector.Binding{given(older, no), given(newer, unknown)}, byAge},
		{"both were", []detector.Binding{given(older, yes), given(newer, yes)}, byAge},
		{"neither was", []detector.Binding{given(older, no), given(newer, no)}, byAge},
		{"by two nodes", []detector.Binding{given(older, yes), given(far, yes)}, "any: " + farByAge},
		{"what another node says does not speak against a given one", []detector.Binding{given(older, unknown), given(far, yes)}, "any: " + farByAge},
		{"the newer on another node is unknown", []detector.Binding{given(older, yes), given(far, unknown)}, farByAge},
		{"another node's elder was not", []detector.Binding{given(older, no), given(far, yes)}, "0, not-given, kubectl -n shop delete pod web-0\n1, newer, kubectl -n shop delete pod web-2"},
		{"three, one was not", []detector.Binding{given(older, no), given(far, unknown), given(far2, yes)}, "any: 0, not-given, kubectl -n shop delete pod web-0\n2, newer, kubectl -n shop delete pod web-3\n1, kubectl -n shop delete pod web-2"},
		{"a node, and one that was not", []detector.Binding{host("n1"), given(far, no)}, "1, pod, kubectl -n shop delete pod web-2\n0"},
	} {
		a := Of(between(test.holders...), nil, names, nil)
		_, got, _ := strings.Cut(outline(a), "\n")
		if a.GivenByNodes {
			got = "any: " + got
		}
		if got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// If the nodes had lost each other when the newer one came, the elder may be an orphan.
func TestAway(t *testing.T) {
	older, newer := on("n1", "shop/web-0", 0, 0), on("n2", "shop/web-0", 600, 600)
	newer.Holder.Pod.UID, newer.Holder.Pod.Name = "v", "web-1"
	for _, test := range []struct {
		name string
		away map[string][]Away
		want string
	}{
		{"the elder's node", map[string][]Away{"n1/b": {{at(300), at(900)}}}, "unknown: away"},
		{"as the elder's node has it", map[string][]Away{"n2/b": {{at(300), at(900)}}}, "unknown: away"},
		{"before it was noticed", map[string][]Away{"n1/b": {{at(630), at(900)}}}, "unknown: away"},
		{"before", map[string][]Away{"n1/b": {{at(100), at(500)}}}, "1 is newer than 0 by created 600s"},
		{"afterwards", map[string][]Away{"n1/b": {{at(700), at(900)}}}, "1 is newer than 0 by created 600s"},
		{"one time of two", map[string][]Away{"n1/b": {{at(300), at(900)}, {at(5000), at(6000)}}}, "unknown: away"},
		{"another node", map[string][]Away{"n3/b": {{at(300), at(900)}}}, "1 is newer than 0 by created 600s"},
	} {
		a := Of(between(older, newer), nil, names, test.away)
		got, _, _ := strings.Cut(outline(a), "\n")
		if got != test.want || (a.Away != nil) != (a.Unknown == "away") || len(a.Remove) != 2 {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
		if a.Away != nil && (a.Away.Elder != 0 || a.Away.Newer != 1 || strings.Join(a.Away.Nodes, " ") != "n1 n2") {
			t.Errorf("%s: %+v", test.name, a.Away)
		}
	}
	gone := on("n3", "shop/web-9", -5, -5)
	gone.Gone = true
	if a := Of(between(gone, older, newer), nil, names, map[string][]Away{"n1/b": {{at(300), at(900)}}}); a.Away.Elder != 1 || a.Away.Newer != 2 {
		t.Errorf("after one that has gone: %+v", a.Away)
	}
	if a := Of(between(older, on("n1", "shop/web-2", 600, 600)), nil, names, map[string][]Away{"n1/b": {{at(300), at(900)}}}); a.Newer == nil {
		t.Error("on one node they have always seen each other")
	}
}

// A holder that has gone is in no command: its pod's name may be a successor's by now.
func TestGone(t *testing.T) {
	gone := func(b detector.Binding) detector.Binding {
		b.Gone = true
		return b
	}
	older, newer, newest := on("n1", "shop/web-0", 0, 0), on("n2", "shop/web-1", 12, 12), on("n3", "shop/web-2", 20, 20)
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		want    string
	}{
		{"the newer", []detector.Binding{older, gone(newer)}, "unknown: gone 1"},
		{"the elder", []detector.Binding{gone(older), newer}, "unknown: gone 0"},
		{"both", []detector.Binding{gone(older), gone(newer)}, "unknown: gone 0 1"},
		{"one of three", []detector.Binding{older, newer, gone(newest)}, "1 is newer than 0 by created 12s\n1, newer, kubectl -n shop delete pod web-1\n0, kubectl -n shop delete pod web-0"},
		{"the first of three", []detector.Binding{gone(older), newer, newest}, "2 is newer than 1 by created 8s\n2, newer, kubectl -n shop delete pod web-2\n1, kubectl -n shop delete pod web-1"},
		{"the first of three, and a node does not answer", []detector.Binding{gone(older), newer, unreachableHolder(newest)}, "unknown: unreachable 2"},
	} {
		if got := outline(Of(between(test.holders...), nil, names, nil)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// If a holder's node is unreachable, the newer holder may be the only live one.
func TestUnreachable(t *testing.T) {
	stopped := on("n1", "shop/web-0", 0, 0)
	stopped.Holder.Sandbox.Stopped = true
	older, newer := on("n1", "shop/web-0", 0, 0), on("n2", "shop/web-1", 12, 12)
	newest := on("n3", "shop/web-2", 20, 20)
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		want    string
	}{
		{"the older", []detector.Binding{unreachableHolder(older), newer}, "unknown: unreachable 0"},
		{"the newer", []detector.Binding{older, unreachableHolder(newer)}, "unknown: unreachable 1"},
		{"one of three", []detector.Binding{older, newer, unreachableHolder(newest)}, "unknown: unreachable 2"},
		{"two of three", []detector.Binding{unreachableHolder(older), newer, unreachableHolder(newest)}, "unknown: unreachable 0 2"},
		{"one that had stopped", []detector.Binding{unreachableHolder(stopped), newer}, "unknown: unreachable 0"},
		{"a node", []detector.Binding{unreachableHolder(host("n1")), newer}, "unknown: unreachable 0"},
	} {
		a := Of(between(test.holders...), nil, names, nil)
		if got := outline(a); got != test.want || a.Remove == nil {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
}

// Two nodes that run one pod are clones of one machine; which one should run is unknown.
func TestOnePodOnTwoNodes(t *testing.T) {
	const withheld = "unknown: two-nodes 0 1"
	a, b, c := on("n1", "shop/web-0", 0, 0), on("n2", "shop/web-0", 12, 12), on("n3", "shop/web-1", 20, 20)
	again := on("n1", "shop/web-0", 30, 30)
	again.Holder.ID.Node = "n1/c"
	stopped, later := a, b
	stopped.Holder.Sandbox = detector.Sandbox{ID: "0123456789abc", Stopped: true}
	later.Holder.Pod.UID = "v"
	ageless := b
	ageless.Holder.CreatedAt = time.Time{}
	given := a
	given.Holder.Given = detector.GivenYes
	for _, test := range []struct {
		name    string
		holders []detector.Binding
		want    string
	}{
		{"another UID, as another node says, of a pod that its own node gave the address", []detector.Binding{given, later}, "1 is newer than 0 by created 12s\n1, newer, ip link set dev vethshopweb-0 down, n2\n0, ip link set dev vethshopweb-0 down, n1"},
		{"a clone", []detector.Binding{a, b}, withheld},
		{"the other way round", []detector.Binding{b, a}, withheld},
		{"of which the age is not known", []detector.Binding{a, ageless}, withheld},
		{"two boots of one name", []detector.Binding{a, again}, withheld},
		{"and another pod", []detector.Binding{c, a, b}, "unknown: two-nodes 1 2"},
		{"one does not answer", []detector.Binding{unreachableHolder(a), b}, "unknown: unreachable 0"},
		{"one does not run any more", []detector.Binding{stopped, b}, "1 is newer than 0 by created 12s\n0, stopped, crictl rmp -f 0123456789abc, n1\n1, newer, ip link set dev vethshopweb-0 down, n2"},
		{"another UID", []detector.Binding{a, later}, "1 is newer than 0 by created 12s\n0, replaced, ip link set dev vethshopweb-0 down, n1\n1, newer, ip link set dev vethshopweb-0 down, n2"},
	} {
		if got := outline(Of(between(test.holders...), nil, names, nil)); got != test.want {
			t.Errorf("%s:\n%s\nwant\n%s", test.name, got, test.want)
		}
	}
}

// A node whose neighbour entry leads to a removed holder has to flush it. Names of devices are hostile
// input.
func TestFlush(t *testing.T) {
	a, b := on("n1", "shop/web-0", 0, 0), on("n1", "shop/web-1", 12, 12)
	for _, test := range []struct {
		hop  cluster.NextHop
		want string
	}{
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: "cni0"}, "1: ip neigh flush to 10.0.0.1 dev cni0, on n1"},
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: a.Holder.ID, Device: "cni0"}, "0: ip neigh flush to 10.0.0.1 dev cni0, on n1"},
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: b.Holder.InterfaceName}, ""},
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: "cni0", Gateway: netip.MustParseAddr("10.0.0.9")}, ""},
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: "cni0;reboot"}, ""},
		{cluster.NextHop{Kind: cluster.NextHopHolder, Holder: b.Holder.ID, Device: "-all"}, ""},
		{cluster.NextHop{Kind: cluster.NextHopUnknown, Device: "cni0"}, ""},
		{cluster.NextHop{Kind: cluster.NextHopDevice, Device: "cni0"}, ""},
	} {
		var got []string
		for _, r := range Of(between(a, b), []NextHop{{"n1/b", test.hop}}, names, nil).Remove {
			for _, f := range r.Then {
				got = append(got, fmt.Sprintf("%d: %s, on %s", r.Holder, f.Command, f.On))
			}
		}
		if strings.Join(got, "\n") != test.want {
			t.Errorf("%+v: %q, want %q", test.hop, got, test.want)
		}
	}
}

// Another node may report a conflict without holders.
func TestTooFewHolders(t *testing.T) {
	if a := Of(between(on("n1", "a", 0, 0)), nil, names, nil); a != nil {
		t.Errorf("%+v", a)
	}
	if a := Of(detector.Conflict{}, nil, names, nil); a != nil {
		t.Errorf("%+v", a)
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
		b.Holder.Pod, b.Holder.InterfaceName = detector.Pod{Namespace: test.namespace, Name: test.name}, test.device
		got, on := command(b, false, true, names)
		for _, id := range []string{"", "0123456789a", "0123456789ab;", "-0123456789ab", "0123456789abG"} {
			b.Holder.Sandbox.ID = id
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
		b := on(node, "shop/web-0", 0, -1)
		if got, _ := command(b, false, true, names); strings.HasPrefix(got, "kubectl") {
			t.Errorf("on node %q: %q", node, got)
		}
	}
}
