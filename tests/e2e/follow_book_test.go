package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// unread are nodes with one IPAM, whose book no agent reads.
type unread struct {
	*lab.T
	book       string // the folder
	runtimes   []*cri.Runtime
	agents     []*lab.Agent
	kubernetes cri.Kubernetes
}

func newUnread(t *testing.T, nodes int) *unread {
	t.Helper()
	u := &unread{T: lab.NewT(t)}
	store := t.TempDir()
	u.book = filepath.Join(store, "pods")
	ipam := cri.HostLocal("10.81.6.0/24")
	ipam["type"], ipam["dataDir"] = "other-ipam", store
	var all []*lab.Node
	for range nodes {
		all = append(all, u.Node(""))
	}
	for _, n := range all {
		r, err := cri.New(u.Lab, n, cri.Options{
			Network: "pods", Plugins: []map[string]any{{"type": "ptp", "ipam": ipam}},
			Scripts: map[string]string{"other-ipam": `exec "$(dirname "$0")/host-local"`},
		})
		u.Do(err, r.Start(t.Context()))
		a, err := n.StartAgent(slices.Concat(n.ClusterFlags(), []string{"--cri-socket", r.Socket, "--cni-conf-dir", "auto"})...)
		u.Do(err)
		u.runtimes, u.agents = append(u.runtimes, r), append(u.agents, a)
		u.kubernetes.AddNode(n.ShortName(), r)
	}
	u.WaitCluster(u.agents...)
	return u
}

// run makes a pod on a node, and waits until the node's agent knows its name.
func (u *unread) run(node int, name string) *cri.Pod {
	u.Helper()
	p, err := u.runtimes[node].RunPod(u.Context(), cri.PodOptions{Namespace: "shop", Name: name, UID: lab.NewUUID()})
	u.Do(err)
	_, err = u.agents[node].Client.WaitBinding(within(u.T, patience), p.IPs[0], func(b lab.Binding) bool { return b.Pod != nil && b.Pod.Name == name })
	u.Do(err)
	return p
}

// The IPAM gives the address of a live pod to another one: the pod's booking was lost, as with a stale node name, or the IPAM has lost
// its mind. Only its book decides: no order comes unasked, and what the book answers leads to one that works.
func TestFollowUnreadBook(t *testing.T) {
	for name, test := range map[string]struct {
		nodes  int
		booked int // 0: the older one
	}{
		"one node, the older is booked":  {1, 0},
		"one node, the newer is booked":  {1, 1},
		"two nodes, the older is booked": {2, 0},
		"two nodes, the newer is booked": {2, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			u := newUnread(t, test.nodes)
			older := u.run(0, "older")
			ip := older.IPs[0]
			file := filepath.Join(u.book, ip.String())
			booking, err := os.ReadFile(file)
			u.Do(err, os.Remove(file), os.WriteFile(filepath.Join(u.book, "last_reserved_ip.0"), []byte(ip.Prev().String()), 0o600))
			newer := u.run(test.nodes-1, "newer")
			if newer.IPs[0] != ip {
				t.Fatalf("newer has %v instead of %v", newer.IPs[0], ip)
			}
			if test.booked == 0 {
				u.Do(os.WriteFile(file, booking, 0o600))
			}
			var c lab.Judged
			for _, a := range u.agents {
				began := time.Now()
				c = u.Judged(a, ip, func(j *lab.Judgement) bool {
					if j.Orders() {
						t.Errorf("an order on %s, although nobody has read the book: %+v", a.Node.ShortName(), j)
					}
					return time.Since(began) > 5*time.Second && j.Cause != "coming"
				})
			}
			// That program reads the book, and the person its output.
			calicoctl := func(args []string, _ string) (string, error) {
				if !slices.Equal(args, []string{"ipam", "show", "--ip=" + ip.String()}) {
					return "", fmt.Errorf("calicoctl %q is refused", args)
				}
				sandbox, err := os.ReadFile(file)
				pod := older
				if strings.HasPrefix(string(sandbox), newer.ID) {
					pod = newer
				}
				return fmt.Sprintf("IP %v is in use\nAttributes:\n  namespace: %s\n  pod: %s\n", ip, pod.Namespace, pod.Name), err
			}
			stays := []*cri.Pod{older, newer}[test.booked]
			since := time.Now()
			ran := u.Follow(c.Judgement.Steps, lab.Follower{
				Run: u.kubernetes.Shells(u.T, map[string]lab.Program{"calicoctl": calicoctl}).Run,
				Answer: func(s lab.Step, before []lab.Ran) bool {
					return slices.ContainsFunc(before, func(r lab.Ran) bool {
						_, pod, ok := strings.Cut(strings.TrimSpace(r.Out), "pod: ")
						return ok && strings.HasPrefix(s.If, "If it is reserved for shop/"+pod+" ")
					})
				},
			})
			u.Do(lab.Undone(ran))
			if !slices.ContainsFunc(ran, func(r lab.Ran) bool { return r.If != "" }) {
				t.Fatalf("no step is for the answer that %s has it booked: %+v", stays.Name, c.Judgement.Steps)
			}
			var clients []lab.Reporter
			for _, a := range u.agents {
				clients = append(clients, a.Client)
			}
			u.Ended(since, func() error { return u.kubernetes.Alive(t.Context(), stays) }, []netip.Addr{ip}, clients...)
			on := test.booked * (test.nodes - 1) // the older one is on the first node, the newer one on the last
			if err := u.runtimes[on].Node.Ping(ip); err != nil {
				t.Errorf("%s lives, and its node does not reach it: %v", stays.Name, err)
			}
		})
	}
}
