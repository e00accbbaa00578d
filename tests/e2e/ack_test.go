package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Somebody who works on a conflict says so on a third node. All show it from then on, also after all agents were killed, and hide nothing, until
// it is ended, or the conflict is over.
func TestAck(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(3)
	ip := lab.IPs("10.245.7.7")
	pods := []*lab.Pod{l.Pod(agents[0].Node, "older", lab.PodOptions{Addrs: ip}), l.Pod(agents[1].Node, "newer", lab.PodOptions{Addrs: ip})}
	for _, p := range pods {
		l.Do(p.Announce(ip[0]))
	}
	watch := l.Watch(agents[0])
	_, err := watch.WaitConfirmed(ip[0], patience)
	l.Do(err)

	shows := func(what string, want bool) {
		t.Helper()
		l.Eventually("all show "+what, func() error {
			for _, a := range agents {
				for _, command := range []string{"conflicts --cluster", "explain " + ip[0].String()} {
					out, err := a.CLI(l.Context(), strings.Fields(command)...)
					flat := strings.Join(strings.Fields(out), " ")
					if err != nil || strings.Contains(flat, what) != want || !strings.Contains(flat, "confirmed") {
						return errors.Join(fmt.Errorf("%s on %s: %s", command, a.Node.ShortName(), out), err)
					}
				}
			}
			return nil
		})
	}
	out, err := agents[2].CLI(l.Context(), "ack", ip[0].String(), "--for", "8h", "--why", "node is being replaced", "--by", "alice")
	l.Do(err)
	for _, want := range []string{
		"10.245.7.7: Acknowledged by alice until ", ": node is being replaced.",
		"amtool silence add alertname=DupipDuplicateAddress ip=10.245.7.7 network=default --duration=28800s --author=alice --comment='node is being replaced'",
	} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is missing in\n%s", want, out)
		}
	}
	shows("Acknowledged by alice until ", true)
	for _, a := range agents[:2] {
		l.Eventually("it is saved", func() error { return savedBy(a, `"acknowledged":{"by":"alice"`) })
	}
	for i, a := range agents {
		l.Do(a.Kill())
		agents[i] = l.Successor(a)
	}
	for _, a := range agents[:2] {
		_, err := l.Watch(a).WaitConfirmed(ip[0], patience)
		l.Do(err)
	}
	shows("Acknowledged by alice until ", true)

	_, err = agents[0].CLI(l.Context(), "ack", ip[0].String(), "--end", "--by", "bob")
	l.Do(err)
	shows("Acknowledged", false)
	_, err = agents[1].CLI(l.Context(), "ack", ip[0].String(), "--by", "bob")
	l.Do(err)
	shows("Acknowledged by bob until ", true)
	l.Do(pods[1].Delete())
	l.Eventually("the conflict is over, and nobody works on it", func() error {
		out, err := agents[2].CLI(l.Context(), "conflicts", "--cluster", "--all", "-o", "json")
		if err == nil && (strings.Contains(out, "acknowledged") || !strings.Contains(out, `"state": "resolved"`)) {
			err = errors.New(out)
		}
		return err
	})
	if out, err := agents[2].CLI(l.Context(), "ack", ip[0].String()); err == nil {
		t.Errorf("what is over is acknowledged: %s", out)
	}
}
