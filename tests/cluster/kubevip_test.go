package cluster_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/lab"
)

// kubeVIP is nodes with agents and kube-vip, which elects its leader at the real API server.
type kubeVIP struct {
	*cluster.Cluster
	ip      netip.Addr
	agents  []*lab.Agent
	watches []*lab.Watch
	all     []*lab.Process // by node
	program string
}

// TestKubeVIP: an address that kube-vip gives the node with its lease moves in order, and nothing is found. A leader is killed and leaves the address
// behind: that is found, and ends when somebody does what is said.
func TestKubeVIP(t *testing.T) {
	t.Parallel()
	testneeds.Root(t)
	testneeds.Slow(t)
	k := &kubeVIP{Cluster: cluster.New(t), ip: netip.MustParseAddr("192.168.77.200"), all: make([]*lab.Process, 3)}
	program, err := cluster.Program()
	k.Do(err)
	k.program = filepath.Join(k.Dir(), "kube-vip") // as the process is called then
	k.Do(os.Symlink(program, k.program))
	var nodes []*lab.Node
	for range k.all {
		nodes = append(nodes, k.Node(""))
	}
	k.agents = k.Agents(nodes)
	for i, a := range k.agents {
		k.watches = append(k.watches, k.Watch(a))
		k.start(i)
	}
	began, leader := time.Now(), k.only()
	for range 5 {
		since := time.Now()
		k.Do(k.all[leader].Stop())
		k.start(leader)
		leader = k.only()
		k.Logf("the address has moved to %s within %.1f s", k.agents[leader].Node.ShortName(), time.Since(since).Seconds())
	}
	k.quiet(began, 12*time.Second) // more than --vip-overlap

	k.Do(k.all[leader].Kill())
	var next int
	k.eventually("another leader", func() (err error) {
		holders, err := k.holders()
		if next = slices.IndexFunc(holders, func(i int) bool { return i != leader }); len(holders) != 2 {
			return errors.Join(err, fmt.Errorf("%d nodes have it", len(holders)))
		}
		next = holders[next]
		return err
	})
	since := time.Now()
	for _, i := range []int{leader, next} {
		e, err := k.watches[i].WaitConfirmed(k.ip, patience)
		k.Do(err)
		k.Logf("%s: confirmed %.1f s after the second node had it", k.agents[i].Node.ShortName(), e.Received.Sub(since).Seconds())
		if e.Conflict.Scope != "node-node" || len(e.Conflict.Holders) != 2 {
			t.Errorf("the conflict is %+v", e.Conflict)
		}
	}
	c := k.Judged(k.agents[leader], k.ip, func(j *lab.Judgement) bool {
		return strings.Contains(j.Text, "Kube-vip probably gave it to them") || strings.Contains(j.Text, "kube-vip probably gave it to them")
	})
	k.follow(c)
	if after := k.only(); after != next {
		t.Errorf("%s has the address, want %s", k.agents[after].Node.ShortName(), k.agents[next].Node.ShortName())
	}
	k.eventually("the end", func() error {
		for _, a := range k.agents {
			if open, err := a.Client.Conflicts(k.Context(), false); err != nil || len(open) > 0 {
				return errors.Join(err, fmt.Errorf("%+v", open))
			}
		}
		return nil
	})
	k.quiet(time.Now(), 30*time.Second)
}

// eventually polls with the patience that a cluster needs.
func (k *kubeVIP) eventually(what string, ok func() error) {
	k.Helper()
	if err := lab.Poll(k.Context(), patience, ok); err != nil {
		k.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

// start starts kube-vip on a node.
func (k *kubeVIP) start(i int) {
	k.Helper()
	n := k.agents[i].Node
	cmd := exec.Command(k.program, "kube-vip", "--kubeconfig", filepath.Join(k.Dir(), "pki", "admin.conf"), "--id", n.ShortName(),
		"--address", k.ip.String(), "--interface", lab.UplinkName)
	p, err := n.Launch(cmd)
	k.Do(err)
	k.all[i] = p
	k.Cleanup(func() {
		if k.Failed() {
			k.Logf("kube-vip on %s:\n%s", n.ShortName(), p.Log())
		}
	})
}

// holders are the nodes that have the address.
func (k *kubeVIP) holders() (list []int, err error) {
	for i, a := range k.agents {
		all, failed := lab.Dump(func() ([]netlink.Addr, error) { return a.Node.Netlink().AddrList(nil, unix.AF_INET) })
		err = errors.Join(err, failed)
		if slices.ContainsFunc(all, func(a netlink.Addr) bool { return a.IP.Equal(k.ip.AsSlice()) }) {
			list = append(list, i)
		}
	}
	return list, err
}

// only waits until one node has the address, and returns it.
func (k *kubeVIP) only() (leader int) {
	k.Helper()
	k.eventually("a leader", func() error {
		list, err := k.holders()
		if len(list) != 1 {
			return errors.Join(err, fmt.Errorf("%d nodes have the address", len(list)))
		}
		leader = list[0]
		return err
	})
	return leader
}

// quiet fails if anything is confirmed within a time, or was since.
func (k *kubeVIP) quiet(since time.Time, window time.Duration) {
	k.Helper()
	until := time.Now().Add(window)
	for _, w := range k.watches {
		if e, err := w.Wait(max(0, time.Until(until)), func(e lab.Event) bool { return e.Type == "confirmed" && e.Received.After(since) }); err == nil {
			k.Error(lab.FormatEvents([]lab.Event{e}))
		}
	}
}

// follow carries out what is said, on the node that does not hold the lease.
func (k *kubeVIP) follow(c lab.Judged) {
	k.Helper()
	shells, leases := k.Shells(nil), ""
	for _, a := range k.agents {
		shells.Add(a.Node.ShortName(), a.Node, nil)
	}
	k.Do(lab.Undone(k.Follow(c.Judgement.Steps, lab.Follower{
		Run: func(s lab.Step) (string, error) {
			if s.Node != "" {
				return shells.Run(s)
			}
			out, err := k.Shell(s.Command)
			if strings.Contains(s.Command, "leases") {
				leases = out
			}
			return out, err
		},
		Answer: func(s lab.Step, _ []lab.Ran) bool {
			holds := slices.ContainsFunc(strings.Split(leases, "\n"), func(line string) bool {
				return strings.Contains(line, "plndr-cp-lock") && slices.Contains(strings.Fields(line), s.Node)
			})
			return s.Node != "" && strings.Contains(s.If, s.Node+" should not have it") && !holds
		},
	})))
}
