package audit

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/detector"
)

// newAudit is one that compares the readings it is given.
func newAudit() *Audit {
	return New(Options{Books: books.NewIPAM(func() string { return "/etc/cni/net.d" }), Grace: grace})
}

// compare compares a reading, and returns what was not checked.
func (a *Audit) compare(r *reading, err error) ([]Unchecked, bool) {
	if len(r.books) > 0 {
		a.comparison.add(r)
	}
	return a.unchecked(r, err)
}

func TestUnchecked(t *testing.T) {
	const pod = "10.1.2.5"
	const noBooks = "everything: no network in /etc/cni/net.d (--cni-conf-dir) has its addresses from host-local or Azure CNS, the only books that an agent reads"
	refused := errors.New("00-a.conf: it is a link")
	for name, test := range map[string]struct {
		changes []change
		err     error
		blind   bool
		want    []string // what each text begins with
	}{
		"all is known":               {[]change{live(pod, web)}, nil, false, nil},
		"no pods":                    {nil, nil, false, nil},
		"no books":                   {[]change{live(pod, web), noBook}, nil, true, []string{noBooks}},
		"a folder that is refused":   {[]change{noBook}, refused, true, []string{"everything: 00-a.conf: it is a link"}},
		"a file that is refused":     {[]change{live(pod, web)}, refused, false, []string{"some networks: 00-a.conf: it is a link"}},
		"no range":                   {[]change{live(pod, web), noRange}, nil, false, []string{"network pods: its range is not known"}},
		"a book that cannot be read": {[]change{live(pod, web), noRange, unreadable}, nil, true, []string{"network pods: it is a pipe"}},
		"one of two books": {
			[]change{live(pod, web), unreadable, also(newBook("other", "10.2.0.1", "10.2.0.254"))}, nil, false, []string{"network pods: it is a pipe"},
		},
		"no runtime":                        {[]change{live(pod, web), noRuntime, hidden}, nil, true, []string{"everything: the container runtime has not answered"}},
		"libcni's cache":                    {[]change{live(pod, web), incomplete, hidden}, nil, false, []string{"reservations that nobody holds: the container runtime's list"}},
		"another plugin":                    {[]change{live(pod, web), plugin("macvlan")}, nil, false, []string{"network pods: reservations that nobody holds, because the interfaces"}},
		"an interface":                      {[]change{live(pod, web), hidden}, nil, false, []string{"reservations that nobody holds: interface veth9 is not observed"}},
		"another network":                   {[]change{live(pod, web), in("k8s")}, nil, false, []string{"network k8s: it has no book that dupip reads"}},
		"another network, but reserved":     {[]change{live(pod, web), in("k8s"), reserved("pods", pod, web)}, nil, false, nil},
		"another network, but it has ended": {[]change{live(pod, web), in("k8s"), notReady}, nil, false, nil},
		"networks are not known":            {[]change{live(pod, web), live("10.1.2.6", db), in("")}, nil, false, []string{"addresses that were never reserved: of 2 addresses of pods"}},
		"one pod's network is known":        {[]change{live(pod, web), in(""), live("10.1.2.6", db)}, nil, false, []string{"addresses that were never reserved: of 1 "}},
		"not known, but reserved":           {[]change{live(pod, web), in(""), reserved("pods", pod, web)}, nil, false, nil},
		"not known, but it has ended":       {[]change{live(pod, web), in(""), notReady}, nil, false, nil},
		"not known, but a drill":            {[]change{live(pod, web), in(""), drill}, nil, false, nil},
		"a second interface":                {[]change{live(pod, web), in(""), secondary}, nil, false, nil},
		"a leak, perhaps":                   {[]change{reserved("pods", "10.1.2.9", old)}, nil, false, []string{"reservations that nobody holds: 1, because the agent has not"}},
		"several things, one a range": {
			[]change{live(pod, web), in(""), noRange, incomplete}, nil, false, []string{"network pods", "reservations that nobody holds", "addresses that"},
		},
	} {
		a := newAudit()
		a.compare(newReading(start, test.changes...), test.err)
		list, blind := a.compare(newReading(start.Add(every), test.changes...), test.err)
		got := texts(list)
		if !slices.EqualFunc(got, test.want, strings.HasPrefix) || blind != test.blind {
			t.Errorf("%s: %q, blind %t, want %q", name, got, blind, test.want)
		}
	}
}

func texts(list []Unchecked) (texts []string) {
	for _, u := range list {
		texts = append(texts, u.Text)
	}
	return texts
}

// Networks without a book are bounded, however many a hostile cache has.
func TestManyNetworks(t *testing.T) {
	r := newReading(start, live("10.1.2.5", web))
	for n := range 100 {
		l := r.Live[0]
		l.Network = fmt.Sprintf("net%02d", n)
		r.Live = append(r.Live, l)
	}
	got := texts(r.elsewhere())
	if n := len(got); n != maxElsewhere+1 || got[n-1] != "84 more networks without a book that dupip reads" || !strings.HasPrefix(got[15], "network net15:") {
		t.Errorf("%q", got)
	}
}

// The audit reports everything as not checked until two readings agree: at the start, and after there was nothing to compare.
func TestSettles(t *testing.T) {
	a := newAudit()
	at := start
	step := func(when string, blind bool, r *reading) {
		t.Helper()
		if list, is := a.compare(r, nil); is != blind {
			t.Errorf("%s: blind %t, %q", when, is, texts(list))
		}
		at = at.Add(every)
	}
	unreserved := func(changes ...change) *reading {
		return newReading(at, append([]change{live("10.1.2.5", web)}, changes...)...)
	}
	step("at the start", true, newReading(at))
	step("the second reading", false, newReading(at))
	step("a new pod", false, unreserved())
	step("its finding", false, unreserved())
	step("the runtime is lost", true, unreserved(noRuntime))
	step("it is back", true, unreserved())
	step("the runtime's list is too old to decide", true, unreserved(listed(-3*every)))
	step("it is new", false, unreserved())
	step("the book cannot be read", true, unreserved(unreadable))
	step("it can", true, unreserved())
	step("the next reading", false, unreserved())
	// A pod that comes and goes all the time does not hold up the verdict.
	a = newAudit()
	step("another start", true, newReading(at))
	step("a pod whose finding is not decided", false, unreserved(listed(-3*every)))
}

// Reservations that nobody has held since the agent began are in doubt until they are findings.
func TestEarlyLeak(t *testing.T) {
	a := newAudit()
	leak := reserved("pods", "10.1.2.9", old)
	for _, after := range []time.Duration{0, every, grace - every} {
		a.compare(newReading(start.Add(after), leak), nil)
		if a.comparison.early != 1 {
			t.Errorf("after %v: %d", after, a.comparison.early)
		}
	}
	// One that comes later is ordinary.
	a.compare(newReading(start.Add(grace), leak, reserved("pods", "10.1.2.10", old)), nil)
	if list, _ := a.compare(newReading(start.Add(grace+every), leak, reserved("pods", "10.1.2.10", old)), nil); len(list) != 0 {
		t.Errorf("%q", texts(list))
	}
}

func TestChecked(t *testing.T) {
	ip := netip.MustParseAddr
	r := newReading(start, live("10.1.2.5", web), live("10.9.0.5", db), also(newBook("cbr0", "", "")), also(newBook("broken", "10.3.0.1", "10.3.0.254")),
		reserved("cbr0", "10.9.0.5", db), book("broken", func(b *books.Reserved) { b.Reservations, b.Err = nil, errors.New("it is a pipe") }))
	r.Live[1].Network = "cbr0"
	result := Result{Books: r.books, live: r.Live}
	pod := func(sandbox string) func(Live) bool { return func(l Live) bool { return l.Sandbox == short(sandbox) } }
	for name, test := range map[string]struct {
		network string
		prefix  netip.Prefix
		is      func(Live) bool
		want    string
	}{
		"everything":                  {want: "[pods cbr0]"},
		"a network":                   {network: "pods", want: "[pods]"},
		"no such network":             {network: "default", want: "[]"},
		"a network that is broken":    {network: "broken", want: "[]"},
		"an address":                  {prefix: netip.PrefixFrom(ip("10.1.2.77"), 32), want: "[pods]"},
		"the gateway":                 {prefix: netip.PrefixFrom(ip("10.1.2.1"), 32), want: "[]"},
		"an address of no book":       {prefix: netip.PrefixFrom(ip("192.168.0.1"), 32), want: "[]"},
		"an address of a broken book": {prefix: netip.PrefixFrom(ip("10.3.0.5"), 32), want: "[]"},
		"a reservation without range": {prefix: netip.PrefixFrom(ip("10.9.0.5"), 32), want: "[cbr0]"},
		"a prefix around all":         {prefix: netip.MustParsePrefix("10.0.0.0/8"), want: "[pods cbr0]"},
		"a prefix within a range":     {prefix: netip.MustParsePrefix("10.1.2.64/28"), want: "[pods]"},
		"a prefix that is not masked": {prefix: netip.MustParsePrefix("10.1.2.200/24"), want: "[pods]"},
		"a prefix of another family":  {prefix: netip.MustParsePrefix("fd00::/64"), want: "[]"},
		"a pod by the range":          {is: pod(web), want: "[pods]"},
		"a pod by its reservation":    {is: pod(db), want: "[cbr0]"},
		"a pod and another network":   {is: pod(web), network: "cbr0", want: "[]"},
		"a pod and another address":   {is: pod(web), prefix: netip.PrefixFrom(ip("10.1.2.77"), 32), want: "[]"},
		"no such pod":                 {is: pod(old), want: "[]"},
	} {
		if got := fmt.Sprint(result.Checked(test.network, test.prefix, test.is)); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
	result.Blind = true
	if got := result.Checked("", netip.Prefix{}, nil); got != nil {
		t.Errorf("blind: %q", got)
	}
}

// What an audit says of itself as it runs: first nothing was compared, then all was.
func TestRunUnchecked(t *testing.T) {
	if last := New(Options{}).Last(); !last.Blind || texts(last.Unchecked)[0] != "everything: the agent reads no books (--cni-conf-dir off)" {
		t.Errorf("off: %+v", last)
	}
	if last := newAudit().Last(); !last.Blind || texts(last.Unchecked)[0] != "everything: the agent has not read the books yet" {
		t.Errorf("before the first reading: %+v", last)
	}
	synctest.Test(t, func(t *testing.T) {
		l := begin(t)
		if last := l.Last(); !last.Blind || last.Checked("", netip.Prefix{}, nil) != nil {
			t.Errorf("after the first reading: %+v", last)
		}
		l.wait(1)
		pod := func(l Live) bool { return l.Pod == detector.Pod{Namespace: "shop", Name: "pod-" + short(web)} }
		if last := l.Last(); last.Blind || len(last.Unchecked) > 0 || last.NoUnheld || len(last.Checked("pods", netip.Prefix{}, pod)) != 1 {
			t.Errorf("after the second: %+v", last)
		}
	})
}
