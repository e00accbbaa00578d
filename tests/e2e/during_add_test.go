package e2e

import (
	"os"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// A duplicate that begins while CNI ADD is still running is suspected before ADD has finished: the network does not wait
// for its result.
func TestDuplicateDuringADD(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	done := t.TempDir() + "/go-on"
	r, err := cri.New(l.Lab, l.Node(""), cri.Options{
		Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}, {"type": "slow"}},
		// It passes on the previous plugin's result when the test says so, after a minute at the latest.
		Scripts: map[string]string{"slow": `
[ "$CNI_COMMAND" = ADD ] || exit 0
for n in $(seq 600); do [ -e ` + done + ` ] && break; sleep 0.1; done
sed 's/.*"prevResult"://; s/,"type":"slow".*//'
`},
	})
	l.Do(err)
	l.Do(r.Start(t.Context()))
	a := l.Agent(r.Node, "--cri-socket", r.Socket)
	w := l.Watch(a)
	ip := lab.IPs("10.99.0.2")[0]
	older := l.Pod(r.Node, "older", lab.PodOptions{Style: lab.Routed, Addrs: lab.IPs(ip.String())})
	_, err = a.Client.WaitBinding(within(l, patience), ip, func(b lab.Binding) bool { return b.Netns == older.Name })
	l.Do(err)
	ran := make(chan error, 1)
	go func() {
		_, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "shop", Name: "newcomer", UID: "uid-newcomer"})
		ran <- err
	}()
	e, err := w.Wait(patience, func(e lab.Event) bool { return e.Type == "suspected" && e.Conflict.IP == ip })
	l.Do(err)
	select {
	case err := <-ran:
		t.Fatal("ADD has ended before, or failed: ", err)
	default:
	}
	t.Logf("suspected %v after the second holder was seen", e.Received.Sub(e.Conflict.SecondSeen).Round(time.Millisecond))
	l.Do(os.WriteFile(done, nil, 0o600))
	l.Do(<-ran)
	_, err = w.WaitConfirmed(ip, patience)
	l.Do(err)
}
