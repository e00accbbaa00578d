package books

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/document"
)

// put puts objects into a source, which is watched then.
func put(t *testing.T, s *source, objects []json.RawMessage) {
	t.Helper()
	s.path, s.state = s.paths[0], watched
	for _, text := range objects {
		if err := s.change(text, false); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.broken) > 0 {
		t.Fatalf("%s: broken objects %q", s.name, slices.Collect(maps.Keys(s.broken)))
	}
}

// load reads a book from testdata, with its Nodes and Pods.
func load(t *testing.T, name string) (*Books, *ipam) {
	t.Helper()
	text, err := os.ReadFile("testdata/" + name + ".json")
	if err != nil {
		t.Fatal(err)
	}
	var objects map[string][]json.RawMessage
	if err := json.Unmarshal(text, &objects); err != nil {
		t.Fatal(err)
	}
	b := New(testOptions(nil))
	b.running, b.opts.Names = true, []string{name}
	b.reset()
	for _, s := range b.sources() {
		put(t, s, objects[s.name])
	}
	return b, b.ipams[0]
}

// run has a pod hold an address on a node.
func run(b *Books, node, pod, sandbox, ip string) {
	a := b.wire.agents[node]
	if a == nil {
		a = &agent{name: node, at: time.Now()}
		b.wire.agents[node] = a
	}
	if pod != "" {
		if b.pods.byName[pod] == nil {
			namespace, name, _ := strings.Cut(pod, "/")
			podIP := ip
			if !b.ipams[0].primary {
				podIP = "10.9.9.9"
			}
			text := fmt.Sprintf(`{"metadata":{"namespace":%q,"name":%q},"spec":{"nodeName":%q},"status":{"podIPs":[{"ip":%q}]}}`, namespace, name, node, podIP)
			if err := b.pods.change(json.RawMessage(text), false); err != nil {
				panic(err)
			}
		}
		a.held = append(a.held, held{ip: netip.MustParseAddr(ip), node: node, pod: pod, sandbox: sandbox})
	}
}

// differ returns what a book and the wire say differently, without what Pods and Nodes say.
func differ(b *Books) (list []string) {
	for _, d := range b.differences(time.Now()) {
		if d.Book == document.Kubernetes {
			continue
		}
		text := fmt.Sprintf("%s %s %s on %s, for %s on %s", d.Kind, d.What(), d.Pod, d.Node, d.ReservedPod, d.ReservedNode)
		if d.Kind == document.Stale {
			text = fmt.Sprintf("stale %s: %s", d.Node, d.OwnerUID)
		}
		for _, o := range d.objects {
			text += " " + o.path
		}
		list = append(list, text)
	}
	slices.Sort(list)
	return list
}

// What is the address of a difference.
func (d *difference) What() string {
	if d.IP.IsValid() {
		return d.IP.String()
	}
	return "-"
}

const (
	aks     = "aks-nodepool1-31879185-vmss00000"
	aws0    = "ip-10-0-0-17.eu-central-1.compute.internal"
	aws1    = "ip-10-0-1-17.eu-central-1.compute.internal"
	aws2    = "ip-10-0-2-17.eu-central-1.compute.internal"
	nncs    = "/apis/acn.azure.com/v1alpha/namespaces/kube-system/nodenetworkconfigs/"
	ciliums = "/apis/cilium.io/v2/ciliumnodes/"
	stale1  = "stale " + aks + "1: 0e1f2a3b-4c5d-4e6f-8a9b-0c1d2e3f4a5b " + nncs + aks + "1 /api/v1/nodes/" + aks + "1"
)

func TestNodeOf(t *testing.T) {
	for _, test := range []struct{ book, ip, want string }{
		{"azure", "10.241.0.200", aks + "0"},
		{"azure", "10.241.1.1", aks + "1"},
		{"azure", "10.242.0.4", ""}, // primary, of a list
		{"azure", "10.242.0.7", aks + "2"},
		{"azure", "10.242.0.9", ""}, // two nodes have it
		{"azure", "10.242.0.10", ""},
		{"azure", "10.242.1.15", aks + "3"},
		{"azure", "10.242.1.31", aks + "3"},
		{"azure", "fd12:3456:789a:1::7", aks + "3"},
		{"azure", "fd12:3456:789a:2::7", ""},
		{"cilium", "10.7.0.3", aws0},
		{"cilium", "fd00:10:7::3", aws0},
		{"cilium", "10.7.1.31", aws1},
		{"cilium", "10.7.1.32", ""},
		{"cilium", "10.8.0.65", aws1},
		{"cilium", "10.0.2.44", aws2},
		{"cilium", "10.0.2.45", ""},
	} {
		_, book := load(t, test.book)
		if got := book.nodes.nodeOf(netip.MustParseAddr(test.ip)); got != test.want {
			t.Errorf("%s: node of %s = %q, want %q", test.book, test.ip, got, test.want)
		}
	}
}

func TestIPAMs(t *testing.T) {
	type runs struct{ node, pod, sandbox, ip string }
	c13, a13 := strings.Repeat("c", 13), strings.Repeat("a", 13)
	for _, test := range []struct {
		name, book string
		runs       []runs
		want       []string
	}{
		{"a node that was replaced", "azure", []runs{{aks + "0", "shop/web-0", "", "10.241.0.5"}}, []string{stale1}},
		{
			"an address of another node", "azure",
			[]runs{{aks + "0", "shop/web-0", "", "10.242.0.7"}, {aks + "0", "shop/web-1", "", "10.241.0.8"}, {aks + "0", "shop/web-2", "", "10.241.0.9"}},
			[]string{"misbooked 10.242.0.7 shop/web-0 on " + aks + "0, for  on " + aks + "2 " + nncs + aks + "2 " + nncs + aks + "0", stale1},
		},
		{
			"addresses of nobody, of two nodes, and of a node without an object", "azure",
			[]runs{{aks + "0", "shop/web-0", "", "10.243.0.7"}, {aks + "0", "shop/web-1", "", "10.242.0.9"}, {"other", "shop/web-2", "", "10.242.0.7"}, {aks + "2", "", "", ""}},
			[]string{stale1},
		},
		{"pods with addresses of another IPAM", "cilium", []runs{{aws0, "shop/web-3", "", "10.8.0.70"}, {aws0, "shop/web-4", "", "10.8.0.71"}}, nil},
		{"no agent has the name of a Node", "azure", []runs{{"other", "shop/web-2", "", "10.242.0.7"}}, []string{stale1}},
		{
			"pods where they belong, and one that is gone", "cilium",
			[]runs{{aws2, "shop/web-1", "", "10.0.2.41"}, {aws2, "shop/web-2", "", "10.0.2.44"}, {aws0, "shop/web-3", "", "10.7.0.9"}},
			[]string{"unheld 10.0.2.42  on " + aws2 + ", for shop/gone-0 on " + aws2 + " " + ciliums + aws2 + " /api/v1/namespaces/shop/pods/gone-0"},
		},
		{
			"a pod with an address of another node's range", "cilium",
			[]runs{{aws0, "shop/web-3", "", "10.8.0.70"}, {aws0, "shop/web-4", "", "10.7.0.8"}, {aws0, "shop/web-5", "", "10.7.0.9"}},
			[]string{"misbooked 10.8.0.70 shop/web-3 on " + aws0 + ", for  on " + aws1 + " " + ciliums + aws1 + " " + ciliums + aws0},
		},
		{
			"two pods that are gone, and all nodes say so", "whereabouts",
			[]runs{{"n1", "shop/web-0", a13, "192.168.20.1"}, {"n2", "shop/web-1", "", "192.168.20.2"}},
			[]string{
				"unheld 192.168.20.7  on , for shop/gone-0 on  /apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools/192.168.20.0-24 /api/v1/namespaces/shop/pods/gone-0",
				"unheld 192.168.20.9  on , for shop/gone-1 on  /apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/overlappingrangeipreservations/192.168.20.9 /api/v1/namespaces/shop/pods/gone-1",
			},
		},
		{"one node says nothing", "whereabouts", []runs{{"n1", "shop/web-0", a13, "192.168.20.1"}}, nil},
		{
			"a pod with the address of another one, and one with an address of nobody", "whereabouts",
			[]runs{{"n1", "shop/web-0", a13, "192.168.20.1"}, {"n1", "shop/web-5", "", "192.168.20.2"}, {"n1", "shop/web-6", c13, "192.168.20.77"}},
			[]string{
				"mismatched 192.168.20.2 shop/web-5 on n1, for shop/web-1 on  /apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools/192.168.20.0-24 /api/v1/namespaces/shop/pods/web-1",
				"unreserved 192.168.20.77 shop/web-6 on n1, for  on  /apis/whereabouts.cni.cncf.io/v1alpha1/namespaces/kube-system/ippools/192.168.20.0-24",
			},
		},
		{
			"pods of two networks with one address", "whereabouts",
			[]runs{{"n1", "shop/web-0", a13, "192.168.20.1"}, {"n1", "shop/web-0", a13, "192.168.30.3"}, {"n1", "shop/web-1", "", "192.168.30.3"}, {"n1", "shop/web-7", "", "192.168.30.3"}},
			nil,
		},
	} {
		b, _ := load(t, test.book)
		for _, r := range test.runs {
			run(b, r.node, r.pod, r.sandbox, r.ip)
		}
		if diff := cmp.Diff(test.want, differ(b)); diff != "" {
			t.Errorf("%s: %s (-want +got):\n%s", test.book, test.name, diff)
		}
	}
}

// A judgement may rank holders by the reservation of a pod: books that are late have none.
func TestReservation(t *testing.T) {
	for _, test := range []struct{ book, ip, want string }{
		{"azure", "10.241.0.200", `{"sandbox":"","node":"` + aks + `0"}`},
		{"cilium", "10.0.2.41", `{"sandbox":"","node":"` + aws2 + `"}`},
		{"cilium", "10.0.3.41", ""},
		{"whereabouts", "192.168.20.1", `{"sandbox":"aaaaaaaaaaaaa","pod":{"namespace":"shop","name":"web-0"}}`},
		{"whereabouts", "192.168.20.9", `{"sandbox":"ddddddddddddd","pod":{"namespace":"shop","name":"gone-1"}}`},
		{"whereabouts", "fd00:20::1:0", `{"sandbox":"bbbbbbbbbbbbb","pod":{"namespace":"shop","name":"web-1"}}`},
		{"whereabouts", "192.168.20.3", ""},
		{"whereabouts", "192.168.30.3", ""}, // of two networks
	} {
		b, _ := load(t, test.book)
		got := ""
		for _, book := range b.Of(netip.MustParseAddr(test.ip)) {
			if book.Reservation != nil {
				text, _ := json.Marshal(book.Reservation)
				got += string(text)
			}
		}
		if got != test.want {
			t.Errorf("%s: %s is reserved for %s, want %s", test.book, test.ip, got, test.want)
		}
	}
}

// A conflict gets the objects of earlier nodes that have its address, also if another node has it, too.
func TestOfEarlierNode(t *testing.T) {
	b, book := load(t, "azure")
	other := `{"metadata":{"namespace":"kube-system","name":"` + aks + `0"},"status":{"networkContainers":[{"assignmentMode":"static","primaryIP":"10.241.0.0/23"}]}}`
	for range 2 {
		for ip, want := range map[string]string{"10.241.1.9": aks + "1", "10.241.0.9": ""} {
			b.found = nil
			for _, d := range b.differences(time.Now()) {
				b.found = append(b.found, d.Finding)
			}
			got := ""
			for _, of := range b.Of(netip.MustParseAddr(ip)) {
				if of.OwnerUID != "" && of.Covers {
					got += of.Reservation.Node
				}
			}
			if got != want {
				t.Errorf("%s is of an earlier node %q, want %q", ip, got, want)
			}
		}
		if err := book.sources[0].change([]byte(other), false); err != nil {
			t.Fatal(err)
		}
	}
}

// A reservation that ends while its pod lives is kept.
func TestWhereaboutsEnds(t *testing.T) {
	b, book := load(t, "whereabouts")
	if err := book.sources[0].change([]byte(`{"metadata":{"namespace":"kube-system","name":"192.168.20.0-24"},"spec":{"range":"192.168.20.0/24","allocations":{}}}`), false); err != nil {
		t.Fatal(err)
	}
	run(b, "n2", "shop/web-1", "", "192.168.20.2")
	b.differences(time.Now())
	if got := b.Of(netip.MustParseAddr("192.168.20.2")); len(got) != 1 || got[0].Former == nil || got[0].Former.Pod.String() != "shop/web-1" {
		t.Errorf("books of 192.168.20.2: %+v, want a former reservation of shop/web-1", got)
	}
}

func TestAddressIn(t *testing.T) {
	for name, want := range map[string]string{
		"10.0.0.5": "10.0.0.5", "net-a-10.0.0.5": "10.0.0.5", "fd00--5": "fd00::5", "red-fd00-1--5": "fd00:1::5", "fd00-1-2-3-4-5-6-7": "fd00:1:2:3:4:5:6:7",
		"net": "invalid IP", "": "invalid IP", "10.0.0.256": "invalid IP",
	} {
		if ip, _ := addressIn(name); ip.String() != want {
			t.Errorf("addressIn(%q) = %s, want %s", name, ip, want)
		}
	}
}

func TestAddressAt(t *testing.T) {
	for _, test := range []struct{ first, offset, want string }{
		{"10.0.0.0", "5", "10.0.0.5"},
		{"10.0.255.255", "1", "10.1.0.0"},
		{"255.255.255.255", "1", "::1:0:0:0"}, // in no range of IPv4
		{"fd00::", "18446744073709551615", "fd00::ffff:ffff:ffff:ffff"},
		{"fd00::1", "18446744073709551615", ""},
		{"10.0.0.0", "-1", ""},
		{"10.0.0.0", "+1", ""},
		{"10.0.0.0", "01", ""},
		{"10.0.0.0", "", ""},
		{"10.0.0.0", "1e3", ""},
		{"10.0.0.0", "99999999999999999999", ""},
		{"", "1", ""},
	} {
		ip, ok := addressAt(test.first, test.offset)
		if ok != (test.want != "") || ok && ip.String() != test.want {
			t.Errorf("addressAt(%q, %q) = %s, %v, want %q", test.first, test.offset, ip, ok, test.want)
		}
	}
}

// TestHostileObjects: no object makes a book fail, or keeps an object that it has no sense of.
func TestHostileObjects(t *testing.T) {
	long := strings.Repeat("x", 1<<12)
	values := []string{
		"null", "0", "-1", "1e99", "true", `""`, `"x"`, `"` + strings.Repeat("x", 1<<20) + `"`, "[]", "{}", "[null]", "[0]", `[""]`, `["0.0.0.0/0"]`, `["::/0"]`, `["10.0.0.0/33"]`, `["fe80::1%eth0"]`,
		`["::ffff:10.0.0.0/104"]`, `["` + long + `"]`, `"0.0.0.0/0"`, `"::/0"`, `{"":null}`, `{"10.0.0.1":null}`, `{"10.0.0.1":{"owner":"` + long + `/x"}}`, `{"10.0.0.1":{"owner":"../../x"}}`,
		`{"0.0.0.0/0":{}}`, `{"10.0.0.1":{"owner":7}}`, `{"99999999999999999999":{}}`, `{"-1":{"podref":"a/b"}}`, `{"1":{"podref":"a/../../b","id":"` + long + `"}}`, `[{}]`, `[{"cidrs":["0.0.0.0/0"]}]`,
		`[{"assignmentMode":"static","primaryIP":"0.0.0.0/0"}]`, `[{"assignmentMode":"static","primaryIP":"` + long + `"}]`, `[{"ipAssignments":[{"ip":"::/1"}]}]`, `[{"ipAssignments":{}}]`, `[[[[[[[[]]]]]]]]`,
	}
	fields := map[string][]string{
		"azure":       {`{"status":%s}`, `{"status":{"networkContainers":%s}}`, `{"metadata":{"name":"n1","ownerReferences":%s}}`},
		"cilium":      {`{"spec":%s}`, `{"spec":{"ipam":{"podCIDRs":%s}}}`, `{"spec":{"ipam":{"pool":%s}}}`, `{"spec":{"ipam":{"pools":{"allocated":%s}}}}`, `{"status":{"ipam":{"used":%s}}}`},
		"whereabouts": {`{"spec":%s}`, `{"spec":{"range":%s}}`, `{"spec":{"range":"10.0.0.0/24","allocations":%s}}`, `{"spec":{"podref":%s}}`, `{"spec":{"containerid":%s,"podref":"shop/web-0"}}`},
	}
	for _, i := range ipams[1:] {
		for _, field := range append(fields[i.name], `%s`, `{"metadata":%s}`) {
			for _, value := range values {
				text := fmt.Sprintf(field, value)
				if strings.HasPrefix(text, "{") && !strings.Contains(text, "metadata") {
					text = `{"metadata":{"namespace":"kube-system","name":"10.0.0.1"},` + text[1:]
				}
				text = strings.Replace(text, ",}", "}", 1)
				book := i.make()
				for _, s := range book.sources {
					for _, deleted := range []bool{false, false, true} {
						if err := s.change(json.RawMessage(text), deleted); err != nil {
							t.Fatalf("%s: %.200s: %v", i.name, text, err)
						}
						all := slices.Collect(book.reservations())
						for _, r := range all {
							if len(r.Pod) > 2*document.MaxName+1 || strings.Contains(r.Pod, "..") || len(r.Sandbox) > sandboxID {
								t.Errorf("%s: %.200s: reservation %.200q", i.name, text, r.Pod)
							}
						}
						for _, ip := range []string{"8.8.8.8", "2001:db8::1"} {
							if r, found := book.reservation(netip.MustParseAddr(ip)); found || book.pool(netip.MustParseAddr(ip)) != "" {
								t.Errorf("%s: %.200s: %s is reserved: %+v", i.name, text, ip, r)
							}
						}
						if deleted && len(all) > 0 {
							t.Errorf("%s: %.200s: %d reservations after it was deleted", i.name, text, len(all))
						}
					}
				}
			}
		}
	}
}

// threadTime is the CPU time of the calling thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &clock); err != nil {
		t.Fatal(err)
	}
	return time.Duration(clock.Nano())
}

// TestManyOwners: who may write objects cannot make them slow.
func TestManyOwners(t *testing.T) {
	const n = 20000
	book := newWhereabouts().format.(*whereabouts)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	began := threadTime(t)
	for i := range n {
		text := fmt.Sprintf(`{"metadata":{"namespace":"x","name":"p%d"},"spec":{"range":"10.0.0.0/24","allocations":{"1":{"podref":"a/b"},"01":{"podref":"a/c"}}}}`, i)
		if err := book.ranged.change(json.RawMessage(text), false); err != nil {
			t.Fatal(err)
		}
	}
	ip := netip.MustParseAddr("10.0.0.1")
	for range n {
		book.pool(ip)
		book.reservation(ip)
	}
	if took := threadTime(t) - began; took > 10*time.Second {
		t.Errorf("%d objects took %v of a processor", n, took)
	}
	if got := len(book.byIP[ip]); got != maxPods {
		t.Errorf("%d reservations of one address, want %d", got, maxPods)
	}
}
