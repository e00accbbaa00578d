package audit

import (
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// The ids of sandboxes: the runtime has the first two.
var web, db, old = strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)

const (
	store = "/var/lib/cni/networks/"
	grace = 5 * time.Minute
)

// change changes a reading.
type change func(r *reading)

// newReading has book "pods" of the range 10.1.2.1 to 10.1.2.254, and two sandboxes that the runtime has just listed.
func newReading(at time.Time, changes ...change) *reading {
	r := &reading{
		at: at, books: []*books.Reserved{newBook("pods", "10.1.2.1", "10.1.2.254")},
		sandboxes: pods.Sandboxes{Ready: map[string]bool{web: true, db: true}, Listed: at, Complete: true},
		Node:      Node{Foreign: make(map[netip.Addr]bool)},
	}
	for _, c := range changes {
		c(r)
	}
	return r
}

func newBook(name, first, last string) *books.Reserved {
	b := &books.Reserved{
		Book: "host-local", Network: name, Store: store + name, Plugin: "ptp", Reservations: make(map[netip.Addr]books.Reservation),
	}
	if first != "" {
		start := netip.MustParseAddr(first)
		b.Ranges = []books.Range{{First: start, Last: netip.MustParseAddr(last), Gateway: start}}
	}
	return b
}

// live is the address of a pod whose result names network "pods".
func live(ip, sandbox string) change {
	return func(r *reading) {
		r.Live = append(r.Live, Live{
			IP: netip.MustParseAddr(ip), Interface: "veth" + short(sandbox), Sandbox: short(sandbox), Network: "pods",
			Pod: detector.Pod{Namespace: "shop", Name: "pod-" + short(sandbox)},
		})
	}
}

// in changes the network of all pods.
func in(network string) change {
	return func(r *reading) {
		for i := range r.Live {
			r.Live[i].Network = network
		}
	}
}

// drill makes all addresses those of drills.
func drill(r *reading) {
	for i := range r.Live {
		r.Live[i].Drill = true
	}
}

// secondary makes all addresses those of second interfaces.
func secondary(r *reading) {
	for i := range r.Live {
		r.Live[i].Secondary = true
	}
}

func also(b *books.Reserved) change { return func(r *reading) { r.books = append(r.books, b) } }

// book changes a book.
func book(name string, f func(b *books.Reserved)) change {
	return func(r *reading) {
		f(r.books[slices.IndexFunc(r.books, func(b *books.Reserved) bool { return b.Network == name })])
	}
}

func reserved(network, ip, sandbox string) change {
	return book(network, func(b *books.Reserved) { b.Reservations[netip.MustParseAddr(ip)] = books.Reservation{Sandbox: sandbox} })
}

func plugin(name string) change {
	return book("pods", func(b *books.Reserved) { b.Plugin = name })
}

func noRange(r *reading) { r.books[0].Ranges = nil }
func unreadable(r *reading) {
	r.books[0].Reservations, r.books[0].Err = nil, fmt.Errorf("it is a pipe")
}
func noBook(r *reading)     { r.books = nil }
func noRuntime(r *reading)  { r.sandboxes = pods.Sandboxes{} }
func notReady(r *reading)   { r.sandboxes.Ready = map[string]bool{web: false, db: true} }
func notListed(r *reading)  { r.sandboxes.Ready = map[string]bool{db: true} }
func incomplete(r *reading) { r.sandboxes.Complete = false }
func hidden(r *reading)     { r.Hidden = "veth9" }
func foreign(ip string) change {
	return func(r *reading) { r.Foreign[netip.MustParseAddr(ip)] = true }
}

// listed is when the runtime's list was requested.
func listed(after time.Duration) change {
	return func(r *reading) { r.sandboxes.Listed = start.Add(after) }
}

var start = time.Now()

// step is a reading some time after the start, and what it must find.
type step struct {
	after   time.Duration
	changes []change
	want    string
}

func at(after time.Duration, want string, changes ...change) step { return step{after, changes, want} }

// never finds anything, however often it is read.
func never(changes ...change) (all []step) {
	for _, after := range []time.Duration{0, time.Second, 2 * time.Second, time.Minute, time.Hour} {
		all = append(all, at(after, "", changes...))
	}
	return all
}

// soon finds something at the second reading.
func soon(want string, changes ...change) []step {
	return []step{at(0, "", changes...), at(time.Second, want, changes...), at(2*time.Second, want, changes...), at(time.Hour, want, changes...)}
}

// late finds something after the grace time.
func late(want string, changes ...change) []step {
	return []step{at(0, "", changes...), at(grace-1, "", changes...), at(grace, want, changes...), at(2*grace, want, changes...)}
}

func text(findings []document.Finding) string {
	var list []string
	for _, f := range findings {
		t := f.Kind + " " + f.IP.String() + " " + f.CNINetwork
		for _, id := range []string{f.Sandbox, f.ReservedFor} {
			if id != "" {
				t += " " + id[:1] + fmt.Sprint(len(id))
			}
		}
		list = append(list, t)
	}
	return strings.Join(list, ", ")
}

func TestCompare(t *testing.T) {
	const ip, gateway, outside = "10.1.2.5", "10.1.2.1", "10.9.9.5"
	const unreserved, mismatched, unheld = "unreserved 10.1.2.5 pods a64", "mismatched 10.1.2.5 pods a64 b64", "unheld 10.1.2.5 pods c64"
	had := at(0, "", noRange, live(ip, web), reserved("pods", ip, web))
	for name, steps := range map[string][]step{
		"its own reservation":                          never(live(ip, web), reserved("pods", ip, web)),
		"no reservation":                               soon(unreserved, live(ip, web)),
		"the gateway's address":                        never(live(gateway, web)),
		"outside the range":                            never(live(outside, web)),
		"for a drill":                                  never(live(ip, web), drill),
		"in another network":                           never(live(ip, web), in("other")),
		"in no known network":                          never(live(ip, web), in("")),
		"another network's book covers the same range": never(live(ip, web), in("other"), also(newBook("other", "", ""))),
		"it is reserved in the other book": never(
			live(ip, web), also(newBook("other", "10.1.2.1", "10.1.2.254")), reserved("other", ip, web)),
		"it is reserved in the first book, and others cover it, too": never(
			live(ip, web), reserved("pods", ip, web), also(newBook("other", "10.1.2.1", "10.1.2.254")), in("other")),
		"two books of its network": soon(unreserved+", "+unreserved, live(ip, web), also(newBook("pods", "10.1.2.1", "10.1.2.254"))),
		"no book":                  never(live(ip, web), noBook),

		"read once":                             {at(0, "", live(ip, web))},
		"read twice within a second":            {at(0, "", live(ip, web)), at(time.Second-1, "", live(ip, web))},
		"reserved meanwhile":                    {at(0, "", live(ip, web)), at(1e9, "", live(ip, web), reserved("pods", ip, web)), at(2e9, "", live(ip, web))},
		"the holder was away":                   {at(0, "", live(ip, web)), at(1e9, ""), at(2e9, "", live(ip, web)), at(3e9, unreserved, live(ip, web))},
		"another holder":                        {at(0, "", live(ip, web)), at(1e9, "", live(ip, db))},
		"the sandbox is not ready":              never(live(ip, web), notReady),
		"the runtime does not list the sandbox": never(live(ip, web), notListed),
		"the sandbox is not known":              never(live(ip, "")),
		"no runtime":                            never(live(ip, web), noRuntime),
		"a DEL, which the runtime tells later":  {at(0, "", live(ip, web)), at(1e9, "", live(ip, web), listed(-1)), at(2e9, "", live(ip, web), notReady)},
		"the list is older than the first reading": {
			at(0, "", live(ip, web), listed(-1)), at(1e9, "", live(ip, web), listed(-1)), at(time.Hour, "", live(ip, web), listed(-1)),
			at(2*time.Hour, unreserved, live(ip, web), listed(time.Nanosecond)),
		},
		"the runtime is lost, and back": {
			at(0, "", live(ip, web)), at(1e9, unreserved, live(ip, web)), at(2e9, "", live(ip, web), noRuntime), at(3e9, "", live(ip, web)),
			at(4e9, unreserved, live(ip, web)),
		},
		"the book cannot be read":     never(live(ip, web), unreadable),
		"the book could not be read":  {at(0, "", live(ip, web)), at(1e9, "", live(ip, web), unreadable), at(2e9, "", live(ip, web)), at(3e9, unreserved, live(ip, web))},
		"the configuration was away":  {at(0, "", live(ip, web)), at(1e9, "", live(ip, web), noBook), at(2e9, "", live(ip, web)), at(3e9, unreserved, live(ip, web))},
		"an incomplete list has it":   soon(unreserved, live(ip, web), incomplete),
		"an interface is not visible": soon(unreserved, live(ip, web), hidden),

		"no range, never reserved":     never(live(ip, web), noRange),
		"no range, the reservation of": {had, at(1e9, "", noRange, live(ip, web)), at(2e9, unreserved, noRange, live(ip, web)), at(3e9, unreserved, noRange, live(ip, web))},
		"the same, network unknown":    {had, at(1e9, "", noRange, live(ip, web), in("")), at(2e9, unreserved, noRange, live(ip, web), in(""))},
		"the holder went, too":         {had, at(1e9, "", noRange), at(2e9, "", noRange, live(ip, web)), at(time.Hour, "", noRange, live(ip, web))},
		"its successor has the address": {
			had, at(1e9, "", noRange, live(ip, db), reserved("pods", ip, db)), at(2e9, "", noRange, live(ip, web)), at(3e9, "", noRange, live(ip, web)),
		},
		"it had a reservation, and the book could not be read for a while": {
			had, at(1e9, "", noRange, live(ip, web), unreadable), at(2e9, "", noRange, live(ip, web)), at(3e9, unreserved, noRange, live(ip, web)),
		},
		"outside the range, and the reservation is lost": {
			at(0, "", live(outside, web), reserved("pods", outside, web)), at(1e9, "", live(outside, web)), at(2e9, "unreserved 10.9.9.5 pods a64", live(outside, web)),
		},
		"no range, and reserved for another pod": {
			had, at(1e9, "", noRange, live(ip, web), reserved("pods", ip, db)), at(2e9, mismatched, noRange, live(ip, web), reserved("pods", ip, db)),
		},

		"reserved for another pod":                   soon(mismatched, live(ip, web), reserved("pods", ip, db)),
		"reserved for a pod that has it, too":        soon(mismatched, live(ip, web), live(ip, db), reserved("pods", ip, db)),
		"reserved for a sandbox that is gone":        {at(0, "", live(ip, web), reserved("pods", ip, old)), at(time.Minute, "", live(ip, web), reserved("pods", ip, old))},
		"reserved for one that is stopped":           never(live(ip, db), reserved("pods", ip, web), notReady),
		"a file that is just being written":          never(live(ip, web), reserved("pods", ip, "")),
		"no reservation, then one for another":       {at(0, "", live(ip, web)), at(1e9, "", live(ip, web), reserved("pods", ip, db)), at(2e9, mismatched, live(ip, web), reserved("pods", ip, db))},
		"reserved for another, in another network":   never(live(ip, web), in("other"), reserved("pods", ip, db)),
		"reserved for another, outside of the range": never(live(outside, web), reserved("pods", outside, db)),

		"reserved for nobody":                    late(unheld, reserved("pods", ip, old)),
		"and outside of the range":               late("unheld 10.9.9.5 pods c64", reserved("pods", outside, old)),
		"and no range is known":                  late(unheld, noRange, reserved("pods", ip, old)),
		"by flannel":                             late(unheld, plugin("flannel"), reserved("pods", ip, old)),
		"by a bridge":                            late(unheld, plugin("bridge"), reserved("pods", ip, old)),
		"by macvlan, which dupip does not see":   never(plugin("macvlan"), reserved("pods", ip, old)),
		"by no plugin":                           never(plugin(""), reserved("pods", ip, old)),
		"reserved for a sandbox that is stopped": never(reserved("pods", ip, web), notReady),
		"reserved for one that runs":             never(reserved("pods", ip, web)),
		"reserved, and being written":            never(reserved("pods", ip, "")),
		"reserved by another runtime":            never(reserved("pods", ip, old), foreign(ip)),
		"another runtime has another address":    late(unheld, reserved("pods", ip, old), foreign("10.1.2.6")),
		"not all interfaces are seen":            never(reserved("pods", ip, old), hidden),
		"not all sandboxes are listed":           never(reserved("pods", ip, old), incomplete),
		"reserved for nobody, no runtime":        never(reserved("pods", ip, old), noRuntime),
		"an old list": {
			at(0, "", reserved("pods", ip, old), listed(-1)), at(grace, "", reserved("pods", ip, old), listed(-1)), at(grace+1e9, unheld, reserved("pods", ip, old)),
		},
		"an interface is made after it was found": {
			at(0, "", reserved("pods", ip, old)), at(grace, unheld, reserved("pods", ip, old)), at(grace+1e9, unheld, reserved("pods", ip, old), hidden),
			at(grace+2e9, unheld, reserved("pods", ip, old)),
		},
		"an interface is made while it is found": {
			at(0, "", reserved("pods", ip, old)), at(grace, "", reserved("pods", ip, old), hidden), at(grace+1e9, unheld, reserved("pods", ip, old)),
		},
		"given out again": {
			at(0, "", reserved("pods", ip, old)), at(grace, "", reserved("pods", ip, strings.Repeat("d", 64))), at(grace+1e9, "", reserved("pods", ip, old)),
		},
	} {
		var c comparison
		c.grace = grace
		for n, s := range steps {
			findings, _, _ := c.add(newReading(start.Add(s.after), s.changes...))
			if got := text(findings); got != s.want {
				t.Errorf("%s, reading %d after %s: %q, want %q", name, n+1, s.after, got, s.want)
			}
		}
	}
}

// A finding says who holds the address, and since when it was found.
func TestFinding(t *testing.T) {
	var c comparison
	given := func(r *reading) { r.Live[0].Given, r.Live[0].Netns = detector.GivenNo, "cni-1" }
	var got []document.Finding
	for n := range 3 {
		got, _, _ = c.add(newReading(start.Add(time.Duration(n)*time.Second), live("10.1.2.5", web), given, live("10.1.2.6", db), reserved("pods", "10.1.2.5", db)))
	}
	want := document.Finding{
		Kind: document.Mismatched, IP: netip.MustParseAddr("10.1.2.5"), Book: "host-local", CNINetwork: "pods", Store: store + "pods", Since: start,
		Holder: document.Holder{Interface: "veth" + short(web), Netns: "cni-1", Pod: &document.Pod{Namespace: "shop", Name: "pod-" + short(web)}, Given: detector.GivenNo}, Sandbox: web,
		ReservedFor: db, ReservedPod: &document.Pod{Namespace: "shop", Name: "pod-" + short(db)},
	}
	if len(got) != 2 || !reflect.DeepEqual(got[0], want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}
}

// A new list of sandboxes is requested only as long as one can make a candidate a finding.
// A reservation of a sandbox that is gone names the pod that has the address, also if that looks like a drill.
func TestUnheldAddressIsLive(t *testing.T) {
	c := comparison{}
	findings, _, _ := c.add(newReading(start, live("10.1.2.5", web), drill, reserved("pods", "10.1.2.5", old)))
	if len(findings) != 1 || findings[0].Kind != document.Unheld || findings[0].Pod.Name != "pod-"+short(web) {
		t.Errorf("%+v", findings)
	}
}

func TestWaiting(t *testing.T) {
	ip := "10.1.2.5"
	for name, test := range map[string]struct {
		after time.Duration
		want  []bool // at the start, and after the time
		steps []change
	}{
		"nothing":                       {time.Second, []bool{false, false}, nil},
		"unreserved":                    {time.Second, []bool{true, false}, []change{live(ip, web), listed(-1)}},
		"and the list does not come":    {time.Second, []bool{true, true}, []change{live(ip, web), listed(-1)}},
		"within the grace time":         {time.Minute, []bool{false, false}, []change{reserved("pods", ip, old), listed(-1)}},
		"after it":                      {grace, []bool{false, true}, []change{reserved("pods", ip, old), listed(-1)}},
		"but an interface is not seen":  {grace, []bool{false, false}, []change{reserved("pods", ip, old), hidden}},
		"but not all sandboxes are":     {grace, []bool{false, false}, []change{reserved("pods", ip, old), incomplete}},
		"but there is no runtime":       {grace, []bool{false, false}, []change{reserved("pods", ip, old), noRuntime}},
		"and the list is new enough":    {grace, []bool{false, false}, []change{reserved("pods", ip, old)}},
		"the sandbox is listed already": {time.Second, []bool{false, false}, []change{live(ip, web)}},
	} {
		c := comparison{grace: grace}
		for n, after := range []time.Duration{0, test.after} {
			r := newReading(start.Add(after), test.steps...)
			if name == "unreserved" && n == 1 {
				r.sandboxes.Listed = start
			}
			if _, _, waiting := c.add(r); waiting != test.want[n] {
				t.Errorf("%s, reading %d: waiting is %t", name, n+1, waiting)
			}
		}
	}
}

// The most urgent come first, and there are not too many.
func TestOrderAndBounds(t *testing.T) {
	var c comparison
	changes := []change{
		live("10.1.2.9", web), live("10.1.2.5", web), live("10.1.2.7", web), reserved("pods", "10.1.2.7", db), reserved("pods", "10.1.2.3", old),
		also(newBook("other", "", "")), reserved("other", "10.1.2.3", old),
	}
	var findings []document.Finding
	var omitted int
	for n := range 2 {
		findings, omitted, _ = c.add(newReading(start.Add(time.Duration(n)*time.Second), changes...))
	}
	want := "mismatched 10.1.2.7 pods a64 b64, unreserved 10.1.2.5 pods a64, unreserved 10.1.2.9 pods a64, unheld 10.1.2.3 other c64, unheld 10.1.2.3 pods c64"
	if got := text(findings); got != want || omitted != 0 {
		t.Errorf("%q, %d omitted, want %q", got, omitted, want)
	}
	wiped := func(r *reading) {
		for n := range 2 * maxFindings {
			r.books[0].Reservations[netip.AddrFrom4([4]byte{10, 1, byte(8 + n>>8), byte(n)})] = books.Reservation{Sandbox: old}
		}
	}
	changes = append(changes, wiped)
	for n := range 10 {
		findings, omitted, _ = c.add(newReading(start.Add(time.Duration(2+n)*time.Second), changes...))
		if n == 0 {
			continue
		}
		if len(findings) != maxFindings || omitted != 2*maxFindings+5-maxFindings {
			t.Fatalf("%d findings, %d omitted", len(findings), omitted)
		}
		// Always the same ones, or they would be logged again and again.
		if first, last := findings[0].Kind, findings[maxFindings-1].IP; first != document.Mismatched || last.String() != "10.1.11.251" {
			t.Fatalf("reading %d: the first is %s, the last %s", n, first, last)
		}
	}
}

func TestCount(t *testing.T) {
	r := Result{Findings: []document.Finding{{Kind: document.Unheld, Store: "/a"}, {Kind: document.Unreserved, Store: "/a"}, {Kind: document.Unreserved, Store: "/b"}, {Kind: document.Mismatched, Store: "/a"}}}
	if got := fmt.Sprint(r.Count()); got != "map[mismatched:1 unheld:1 unreserved:2]" {
		t.Error(got)
	}
	if got := fmt.Sprint(new(Result).Count()); got != "map[mismatched:0 unheld:0 unreserved:0]" {
		t.Error(got)
	}
	for n := range r.Findings {
		r.Findings[n].Given = detector.GivenYes
	}
	for n := range r.Findings {
		r.Findings[n].Interface = fmt.Sprint("veth", n)
	}
	second := r.Findings[1]
	second.IP = netip.MustParseAddr("fd00::5")                                                                                                          // of the same pod
	r.Findings = append(r.Findings, second, document.Finding{Kind: document.Unreserved, Store: "/a", Holder: document.Holder{Given: detector.GivenNo}}) // taken by hand
	if got := fmt.Sprint(countLost(r.Findings)); got != "map[/a:2 /b:1]" {
		t.Error(got)
	}
}
