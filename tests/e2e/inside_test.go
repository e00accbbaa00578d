package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// wantInside waits until the agent has an interface of a pod without an end on the node in a state, or with state "" does not
// know it.
func wantInside(l *lab.T, a *lab.Agent, p *lab.Pod, state, network string) {
	l.Helper()
	l.Eventually(p.HostInterface+" of "+p.ShortName()+" is "+state, func() error {
		s, err := statusOf(l, a)
		at := slices.IndexFunc(s.Interfaces, func(i interfaceStatus) bool { return i.Netns == p.Name && i.Kind == "macvlan" })
		switch {
		case at < 0 && state == "":
			return err
		case at < 0:
			return errors.Join(err, fmt.Errorf("it is not among %+v", s.Interfaces))
		}
		if i := s.Interfaces[at]; i.State != state || i.Name != p.HostInterface || i.Network != network {
			return fmt.Errorf("it is %+v", i)
		}
		return err
	})
}

// wantEgress waits until a macvlan device inside of a pod has that many programs, and nothing else is attached there.
func wantEgress(l *lab.T, p *lab.Pod, count int) {
	l.Helper()
	l.Eventually(fmt.Sprintf("%d programs in %s", count, p.ShortName()), func() error {
		found, err := programsOf(l, p.AsNode())
		if got, want := found["eth0"], (programs{Kind: "macvlan", TCX: count}); got != want {
			return errors.Join(err, fmt.Errorf("there are %+v", got))
		}
		return err
	})
}

// A macvlan pod on a segment that only its node has: what it sends is seen, it has a conflict with another one and with the node,
// and nothing is left when it goes, and when the agent is killed.
func TestMacvlan(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	own := netip.MustParsePrefix("10.7.0.1/24")
	l.Do(n.AddSegment("eth1", own))
	options := lab.PodOptions{Style: lab.Inside, Parent: "eth1", Addrs: lab.IPs("10.7.0.7")}
	older := l.Pod(n, "older", options)
	a := l.Agent(n)
	w := l.Watch(a)
	wantInside(l, a, older, "attached", "segment@eth1")
	wantEgress(l, older, 1)
	ip := options.Addrs[0]
	l.Do(older.SendUDP(ip, netip.MustParseAddr("10.7.0.99"), 1))
	seen := func(p *lab.Pod, evidence string) {
		t.Helper()
		_, err := a.Client.WaitBinding(l.Context(), ip, func(b lab.Binding) bool { return b.Netns == p.Name && b.Evidence == evidence && b.MAC != "" })
		l.Do(err)
	}
	seen(older, "announced") // it asks who has the other address

	newcomer := l.Pod(n, "newcomer", options)
	e, err := w.WaitConfirmed(ip, patience)
	l.Do(err)
	if len(e.Conflict.Holders) != 2 || e.Conflict.Network != "segment@eth1" || e.Conflict.Scope != "same-node" {
		t.Errorf("%+v", e.Conflict)
	}
	l.Do(newcomer.DeleteNetns()) // the attachment does not keep it
	_, err = w.WaitType("resolved", ip, patience)
	l.Do(err)
	wantInside(l, a, newcomer, "", "")

	l.Do(older.AddAddrOn("eth0", netip.PrefixFrom(own.Addr(), 32)))
	e, err = w.WaitConfirmed(own.Addr(), patience)
	l.Do(err)
	if e.Conflict.Scope != "pod-host" {
		t.Errorf("%+v", e.Conflict)
	}

	l.Do(a.Kill())
	wantEgress(l, older, 0)
	next := l.Agent(n)
	wantInside(l, next, older, "attached", "segment@eth1")
	l.Do(next.Stop())
	wantEgress(l, older, 0)
	if _, err := os.Stat(older.Path()); err != nil {
		t.Error(err)
	}
}

// With --configured-evidence=off nothing is confirmed among devices where nothing answers.
func TestMacvlanSuspectedOnly(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n, "--configured-evidence=off")
	w := l.Watch(a)
	ips := lab.IPs("10.7.0.7")
	for _, name := range []string{"older", "newcomer"} {
		p := l.Pod(n, name, lab.PodOptions{Style: lab.Inside, Addrs: ips})
		wantInside(l, a, p, "attached", "segment@eth0")
		l.Do(p.SendUDP(ips[0], netip.MustParseAddr("10.7.0.99"), 1))
	}
	_, err := w.WaitType("suspected", ips[0], patience)
	l.Do(err)
	l.Do(w.NeverConfirmed(3 * time.Second))
	out, err := a.CLI(l.Context(), "explain", ips[0].String())
	l.Do(err)
	if !strings.Contains(out, "suspected, not confirmed") || !strings.Contains(out, "--configured-evidence is off") {
		t.Errorf("%s", out)
	}
}

// Without tcx such a device is listed and counted, and nothing is attached: a qdisc would stay behind.
func TestMacvlanWithoutTCX(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n, "--attach", "tc")
	p := l.Pod(n, "pod", lab.PodOptions{Style: lab.Inside, Addrs: lab.IPs("10.7.0.7")})
	l.Eventually("it is listed", func() error {
		s, err := statusOf(l, a)
		for _, i := range s.Interfaces {
			if i.Netns == p.Name && i.State == "unsupported" && strings.Contains(i.Reason, "Linux 6.6") && s.ByState["unsupported"] == 1 {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("interfaces %+v", s.Interfaces))
	})
	wantEgress(l, p, 0)
}
