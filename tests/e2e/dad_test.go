package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// An IPv6 address whose duplicate address detection failed is shown everywhere as long as the pod lists
// it, and is no conflict.
func TestFailedDetection(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	a := l.Agent(n)
	w := l.Watch(a)
	ip := n.IPv6(5)
	l.Pod(n, "holder", lab.PodOptions{Addrs: []netip.Addr{ip}})
	loser := l.Pod(n, "loser", lab.PodOptions{DAD: true, Addrs: []netip.Addr{n.IPv4(6), ip}})
	l.Do(loser.WaitDAD(patience, ip, true))

	shown := func(want int) error {
		s, err := statusOf(l, a)
		if err != nil {
			return err
		}
		m, err := a.Scrape(t.Context())
		if err != nil {
			return err
		}
		if got := m["dupip_dad_failed_addresses"]; len(s.DADFailed) != want || s.DADFailedCount != want || got != float64(want) {
			return fmt.Errorf("status lists %+v and counts %d, the metric is %v, want %d", s.DADFailed, s.DADFailedCount, got, want)
		}
		return nil
	}
	l.Eventually("the address is shown", func() error { return shown(1) })
	s, err := statusOf(l, a)
	l.Do(err)
	if f := s.DADFailed[0]; f.IP != ip || f.Netns != loser.Name || f.Interface != loser.HostInterface || f.Network != "default" {
		t.Errorf("status has %+v", f)
	}
	for _, command := range []struct{ args, want string }{
		{"status", "DAD failed  1 address: " + ip.String() + " (" + loser.Name + ")"},
		{"explain " + ip.String(), loser.Name + ": on the pod's end of " + loser.HostInterface + ", not in use: its duplicate address detection failed"},
	} {
		out, err := a.CLI(t.Context(), strings.Fields(command.args)...)
		l.Do(err)
		// Long lines are broken.
		if !strings.Contains(strings.Join(strings.Fields(out), " "), strings.Join(strings.Fields(command.want), " ")) {
			t.Errorf("dupip %s: no %q in\n%s", command.args, command.want, out)
		}
	}
	line := ""
	for logged := range strings.Lines(a.Log()) {
		if strings.Contains(logged, "duplicate address detection failed") {
			line += logged
		}
	}
	if strings.Count(line, "\n") != 1 || !strings.Contains(line, "level=WARN") || !strings.Contains(line, "ip="+ip.String()) || !strings.Contains(line, loser.Name) {
		t.Errorf("log lines, want one:\n%s", line)
	}

	l.Do(loser.DelAddr(ip))
	l.Eventually("the address is removed", func() error { return shown(0) })
	if err := w.NeverConfirmed(time.Second); err != nil || len(w.Events()) != 0 {
		t.Error(errors.Join(err, errors.New(lab.FormatEvents(w.Events()))))
	}
}
