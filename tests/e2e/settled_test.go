package e2e

import (
	"net/netip"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// In tc mode the qdisc of a pod's interface is made once CNI has its result: another pod with the address is found soon. Without a result the
// agent waits until the interface has not changed for 3 s.
func TestSettledByResult(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	k := newKube(l, map[string]any{"type": "bridge", "bridge": "cni9", "isGateway": true})
	l.Do(k.Start(t.Context()))
	a := l.Agent(k.Node, "--cri-socket", k.Socket, "--attach", "tc")
	w := l.Watch(a)
	first := k.run("first", 1)[0]
	namedBindings(l, a, first)
	began := time.Now()
	second := k.run("second", 1)[0]
	made := time.Now()
	l.Do(k.Node.AddAddr("cni9", netip.PrefixFrom(second.IPs[0], 32)))
	e, err := w.WaitConfirmed(second.IPs[0], lab.Patience(3*time.Second))
	l.Do(err)
	t.Logf("made in %.1f s, confirmed %.1f s later", made.Sub(began).Seconds(), e.Received.Sub(made).Seconds())
}
