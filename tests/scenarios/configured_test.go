package scenarios

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// newConfigured is a node with an agent, whose pods cannot answer: what their kernels have configured takes the place of answers.
func newConfigured(t *testing.T, flags ...string) (*lab.T, *lab.Agent) {
	if !lab.IsL3() {
		t.Skip("this test is about netkit in L3 mode: make test-vm runs it")
	}
	t.Parallel()
	l := lab.NewT(t)
	return l, l.Agent(l.Node(""), flags...)
}

// sees waits for a binding. Unless it is of what is configured, the pod sends: the agent may not have attached yet.
func sees(l *lab.T, a *lab.Agent, p *lab.Pod, ip netip.Addr, evidence string) {
	l.Helper()
	l.Eventually(fmt.Sprintf("%s has %s by %s", p.Name, ip, evidence), func() error {
		if evidence != "configured" {
			l.Do(p.Spoof(ip))
		}
		all, err := a.Client.Bindings(l.Context(), ip)
		if err == nil && !slices.ContainsFunc(all, func(b lab.Binding) bool { return b.Netns == p.Name && b.Evidence == evidence }) {
			err = fmt.Errorf("bindings %+v", all)
		}
		return err
	})
}

// An address that was left in a pod which does not use it is found beside the pod that does, and shown as weaker. Nobody is
// said to have answered. When the address goes, the conflict ends.
func TestConfiguredOnly(t *testing.T) {
	l, a := newConfigured(t)
	w := l.Watch(a)
	for _, ip := range []netip.Addr{a.Node.RoutedIPv4(5), a.Node.RoutedIPv6(5)} {
		left := l.Pod(a.Node, "left-"+kind(ip), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true})
		sees(l, a, left, ip, "configured")
		used := l.Pod(a.Node, "used-"+kind(ip), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true}) // but for what follows
		sees(l, a, used, ip, "data")
		e, err := w.WaitConfirmed(ip, patience)
		l.Do(err)
		if !strings.Contains(e.Reason, "2 live holders had it in both rounds") || !strings.Contains(e.Reason, "by the lists of their kernels") {
			l.Errorf("the reason is %q", e.Reason)
		}
		shown, err := a.CLI(l.Context(), "conflicts")
		l.Do(err)
		explained, err := a.CLI(l.Context(), "explain", ip.String())
		l.Do(err)
		shown, explained = strings.Join(strings.Fields(shown), " "), strings.Join(strings.Fields(explained), " ")
		for _, want := range []string{left.Name + " ~", "~ configured: its kernel has the address"} {
			if !strings.Contains(shown, want) {
				l.Errorf("conflicts have no %q:\n%s", want, shown)
			}
		}
		if strings.Contains(shown, used.Name+" ~") || strings.Contains(shown+explained, "answered") {
			l.Errorf("of what uses it, or an answer:\n%s\n%s", shown, explained)
		}
		for _, want := range []string{
			"evidence configured: its kernel has the address; it was not seen using it lately", "its kernel has the address configured in round 1",
			left.Name + " was not seen using the address lately",
		} {
			if !strings.Contains(explained, want) {
				l.Errorf("the explanation has no %q:\n%s", want, explained)
			}
		}
		t.Logf("confirmed %.2f s after the second holder: %s\n%s", e.Conflict.ConfirmedAt.Sub(e.Conflict.SecondSeen).Seconds(), e.Reason, explained)
		l.Do(left.DelAddr(ip))
		_, err = w.WaitType("resolved", ip, patience)
		l.Do(err)
	}
}

func kind(ip netip.Addr) string {
	if ip.Is4() {
		return "4"
	}
	return "6"
}

// An address on a device that is down is nobody's.
func TestConfiguredDown(t *testing.T) {
	l, a := newConfigured(t)
	w, ip := l.Watch(a), a.Node.RoutedIPv4(5)
	older := l.Pod(a.Node, "older", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true})
	l.Pod(a.Node, "newcomer", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true})
	_, err := w.WaitConfirmed(ip, patience)
	l.Do(err, older.SetDown())
	_, err = w.WaitType("resolved", ip, patience)
	l.Do(err)
}

// With --configured-evidence=off no binding comes from what is configured, and a duplicate stays suspected, with the reason.
func TestConfiguredOff(t *testing.T) {
	l, a := newConfigured(t, "--configured-evidence=off")
	w, ip := l.Watch(a), a.Node.RoutedIPv4(5)
	older := l.Pod(a.Node, "older", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true})
	silent := l.Pod(a.Node, "silent", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{a.Node.RoutedIPv4(6)}, Silent: true})
	newcomer := l.Pod(a.Node, "newcomer", lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}, Silent: true})
	sees(l, a, older, ip, "data")
	sees(l, a, newcomer, ip, "data")
	_, err := w.WaitType("suspected", ip, patience)
	l.Do(err)
	const why = "nothing answers on netkit devices in L3 mode, and --configured-evidence is off"
	l.Eventually("the reason", func() error {
		shown, err := a.CLI(l.Context(), "explain", ip.String())
		if shown = strings.Join(strings.Fields(shown), " "); err == nil && !strings.Contains(shown, why) {
			err = errors.New(shown)
		}
		return err
	})
	// Two rounds and more.
	if err := w.Never(3*time.Second, func(e lab.Event) bool { return e.Type != "suspected" }); err != nil {
		t.Error(err)
	}
	if all, err := a.Client.Bindings(l.Context(), silent.Addrs()[0]); err != nil || len(all) > 0 {
		t.Errorf("what is only configured has the bindings %+v: %v", all, err)
	}
}

// A pod that sends from an address that its kernel does not have forwards it, whether its kernel has others or none.
func TestConfiguredForwards(t *testing.T) {
	l, a := newConfigured(t)
	w := l.Watch(a)
	for n, own := range [][]netip.Addr{nil, {a.Node.RoutedIPv4(9)}} {
		ip := a.Node.RoutedIPv4(byte(5 + n))
		holder := l.Pod(a.Node, fmt.Sprint("holder", n), lab.PodOptions{Style: lab.Routed, Addrs: []netip.Addr{ip}})
		sees(l, a, holder, ip, "data")
		router := l.Pod(a.Node, fmt.Sprint("router", n), lab.PodOptions{Style: lab.Routed, Addrs: own})
		sees(l, a, router, ip, "forwarded")
	}
	for _, e := range w.Events() {
		if e.Type == "confirmed" {
			t.Errorf("confirmed: %s", lab.FormatEvents([]lab.Event{e}))
		}
	}
}
