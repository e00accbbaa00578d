package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/tests/cri"
)

// holderIn waits until the holder of an address in a netns has such facts.
func (b *booked) holderIn(what string, p *cri.Pod, is func(document.Facts) bool) {
	b.Helper()
	b.Eventually(what, func() error {
		body, err := b.agent.Client.Get(b.Context(), "/v1/conflicts", "all=1")
		if err != nil {
			return err
		}
		defer body.Close()
		var doc document.Conflicts
		if err := json.NewDecoder(body).Decode(&doc); err != nil {
			return err
		}
		text := ""
		for _, c := range doc.Conflicts {
			for _, h := range c.Holders {
				if h.Facts == nil {
					continue
				}
				if h.IP == p.IPs[0] && strings.HasPrefix(h.Netns, p.NetnsName()) && is(*h.Facts) {
					return nil
				}
				text += fmt.Sprintf("%s %s %s: %+v\n", c.State, h.IP, h.Netns, *h.Facts)
			}
		}
		return fmt.Errorf("no such facts of %s in %s: %s", p.IPs[0], p.NetnsName(), text)
	})
}

func isBehind(behind document.Behind) func(document.Facts) bool {
	return func(f document.Facts) bool { return f.Behind == behind }
}

// What containerd knows of a sandbox, and what is left of it: it runs, its process is killed, containerd forgets it. The facts are there when
// the conflict is over, for the next agent, too.
func TestFactsOfRuntime(t *testing.T) {
	t.Parallel()
	b := newBooked(t, "10.95.0.0/24")
	thief, older := b.run("thief"), b.run("older")
	b.Do(addAddress(thief, older.IPs[0]))
	taken := &cri.Pod{Netns: thief.Netns, IPs: older.IPs}
	b.holderIn("the one that took it", taken, func(f document.Facts) bool {
		return f.Behind == document.BehindRunning && len(f.GivenOthers) == 1 && f.GivenOthers[0] == thief.IPs[0] && f.NetnsPath == "/run/netns/"+thief.NetnsName()
	})
	b.holderIn("the one that was given it", older, func(f document.Facts) bool { return f.Behind == document.BehindRunning && f.GivenOthers == nil })
	b.Do(b.KillPod(t.Context(), older))
	b.holderIn("the one without a process", older, isBehind(document.BehindStopped))
	b.Do(b.Forget(t.Context(), older))
	b.holderIn("the one that containerd has forgotten", older, isBehind(document.BehindForgotten))
	b.holderIn("the other one, which still has a process", taken, isBehind(document.BehindAlive))
	b.Do(runCommand(b.Runtime.Node, "ip netns del "+older.NetnsName()))
	b.says("explain "+older.IPs[0].String(), "resolved")
	b.Eventually("the end is saved", func() error {
		data, err := os.ReadFile(filepath.Join(b.agent.StateDir(), "state.json"))
		if err == nil && !strings.Contains(string(data), `"history":[{`) {
			err = errors.New(string(data))
		}
		return err
	})
	b.Do(b.agent.Kill())
	b.agent = b.Successor(b.agent)
	b.says("explain "+older.IPs[0].String(), "resolved")
	b.holderIn("a holder of what is over, which ran, after a restart", older, isBehind(document.BehindRunning))
}
