package e2e

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/dupip/dupip/tests/lab"
)

var kills = flag.Int("kills", 4, "how often TestKilledAtAnyMoment kills an agent")

// Wherever an agent is in its start or stop when it is killed, nothing of it is left in the kernel: no program at a device, no packet
// socket, no qdisc.
func TestKilledAtAnyMoment(t *testing.T) {
	if !hasTCX(t) {
		t.Skip("in tc mode a killed agent leaves its filters, which the next one removes")
	}
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	pods := manyPods(l, n, 40)
	var indexes []int
	for _, p := range pods {
		index, err := n.Ifindex(p.HostInterface)
		l.Do(err)
		indexes = append(indexes, index)
	}
	left := func() error {
		return n.Exec(func() error {
			for _, index := range indexes {
				chain, err := link.QueryPrograms(link.QueryOptions{Target: index, Attach: ebpf.AttachTCXIngress})
				if err != nil || len(chain.Programs) > 0 {
					return errors.Join(err, fmt.Errorf("device %d has %v", index, chain))
				}
			}
			sockets, err := os.ReadFile("/proc/thread-self/net/packet")
			if lines := bytes.Count(sockets, []byte("\n")); err == nil && lines > 1 { // one is the header
				err = fmt.Errorf("packet sockets:\n%s", sockets)
			}
			return err
		})
	}
	before := tcOf(l, n)
	l.Do(left())
	for i := range *kills {
		a, err := n.StartAgent("--attach", "tcx", "--log-level", "info")
		l.Do(err)
		moment := rand.N(3 * time.Second)
		time.Sleep(moment)
		if i%2 == 1 {
			l.Do(syscall.Kill(a.PID(), syscall.SIGTERM))
			time.Sleep(rand.N(time.Second))
		}
		l.Do(a.Kill())
		l.Eventually(fmt.Sprintf("nothing is left of an agent that was killed %v after its start", moment), left)
	}
	if after := tcOf(l, n); fmt.Sprint(after) != fmt.Sprint(before) {
		t.Errorf("qdiscs and filters: %v, before: %v", after, before)
	}
}
