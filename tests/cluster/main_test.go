package cluster_test

import (
	"encoding/json"
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

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/image"
	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything that has to happen may take on a busy machine.
var patience = lab.Patience(time.Minute)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// testCluster is a cluster with dupip in a namespace.
type testCluster struct {
	*cluster.Cluster
	namespace string
	// known are the addresses that had two pods.
	known []netip.Addr
	// tidy undoes what a story that has failed has left half done. Without it the next ones go on from that, so there are none.
	tidy func(*testCluster)
}

// newTestCluster starts a cluster, whose administrator has Helm. Other tests have theirs at the same time: they wait most of it.
func newTestCluster(t *testing.T, machines ...string) *testCluster {
	t.Helper()
	return startTestCluster(t, nil, machines...)
}

// startTestCluster is newTestCluster with more flags for the API server.
func startTestCluster(t *testing.T, flags []string, machines ...string) *testCluster {
	t.Helper()
	t.Parallel()
	testneeds.Root(t)
	testneeds.Slow(t)
	h, err := helm.V4.Path()
	if err != nil {
		t.Fatal(err)
	}
	c := &testCluster{Cluster: cluster.Start(t, flags, machines...), namespace: "dupip"}
	c.AddCommand("helm", h)
	return c
}

// run runs a script of the administrator, and prints what it printed.
func (c *testCluster) run(script string) string {
	c.Helper()
	out, err := c.Shell("{\n" + script + "\n} 2>&1")
	c.Logf("$ %s\n%s", strings.TrimSpace(script), out)
	c.Do(err)
	return out
}

// replace deletes pods whose successors may have their names: kubectl's own wait for the end of one did not end then, once.
func (c *testCluster) replace(pods string) {
	c.Helper()
	uids := "kubectl -n dupip get pods -o jsonpath='{.metadata.uid}{.items[*].metadata.uid}' " + pods
	before, err := c.Shell(uids)
	c.Do(err)
	c.run("kubectl -n dupip delete pods --wait=false " + pods)
	c.eventually("other pods", func() error {
		now, err := c.Shell(uids)
		if err == nil && slices.ContainsFunc(strings.Fields(now), func(uid string) bool { return strings.Contains(before, uid) }) {
			err = fmt.Errorf("there are %s, and were %s", now, before)
		}
		return err
	})
}

// eventually polls with the patience that a cluster needs.
func (c *testCluster) eventually(what string, ok func() error) {
	c.Helper()
	if err := lab.Poll(c.Context(), patience, ok); err != nil {
		c.Fatal(fmt.Errorf("%s: %w", what, err))
	}
}

// importImage builds the image and imports it on all machines. It returns the archive.
func (c *testCluster) importImage() (archive string) {
	c.Helper()
	archive, err := image.Build(c.Context(), c.TempDir())
	c.Do(err)
	c.importArchive(archive)
	return archive
}

func (c *testCluster) importArchive(archive string) {
	c.Helper()
	for _, m := range c.Machines {
		_, err := m.Run(c.Context(), "ctr", "-n", "k8s.io", "images", "import", archive)
		c.Do(err)
	}
}

// install installs the chart with the image of importImage, and waits until all agents see each other.
func (c *testCluster) install(flags ...string) {
	c.Helper()
	c.run("kubectl create namespace dupip; kubectl label namespace dupip pod-security.kubernetes.io/enforce=privileged\n" +
		"helm -n dupip install dupip deploy/chart --wait " + strings.Join(flags, " "))
	c.members()
}

// members waits until the agent of each machine sees the others alive.
func (c *testCluster) members() {
	c.Helper()
	for name := range c.Machines {
		c.eventually("members on "+name, func() error {
			var doc struct {
				Nodes []struct{ Name, State, Role string }
			}
			if err := c.query(name, &doc, "nodes"); err != nil {
				return err
			}
			alive := 0
			for _, n := range doc.Nodes {
				if n.State == "alive" && n.Role == "" {
					alive++
				}
			}
			if alive != len(c.Machines) {
				return fmt.Errorf("the nodes are %v", doc.Nodes)
			}
			return nil
		})
	}
}

// agent is the name of the agent's pod on a machine.
func (c *testCluster) agent(machine string) (string, error) {
	var pods corev1.PodList
	if err := c.Get(&pods, "api/v1/namespaces/"+c.namespace+"/pods?labelSelector=app.kubernetes.io/name=dupip&fieldSelector=spec.nodeName="+machine); err != nil {
		return "", err
	}
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning })
	if i < 0 {
		return "", fmt.Errorf("no agent runs on %s", machine)
	}
	return pods.Items[i].Name, nil
}

// dupip runs a command on a machine and returns what it prints.
func (c *testCluster) dupip(machine, command string) (string, error) {
	agent, err := c.agent(machine)
	if err != nil {
		return "", err
	}
	return c.Shell("kubectl -n " + c.namespace + " exec " + agent + " -- dupip " + command)
}

// query runs a command on a machine and reads its document. It enters the agent's container itself: kubectl exec, as people type it,
// takes ten times as much of the processor, and tests ask often.
func (c *testCluster) query(machine string, doc any, command ...string) error {
	cmd := c.Machines[machine].Command(c.Context(), "sh", "-euc", `pid=$(pgrep -n -f '^/usr/bin/dupip agent')
nsenter --target "$pid" --mount --net -- /usr/bin/dupip `+strings.Join(command, " ")+" -o json")
	out, err := cmd.Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, failed.Stderr)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(out, doc)
}

// conflicts are the conflicts of the cluster, the resolved ones, too.
func (c *testCluster) conflicts(machine string, flags ...string) ([]lab.Conflict, error) {
	var doc struct{ Conflicts []lab.Conflict }
	err := c.query(machine, &doc, append([]string{"conflicts", "--all"}, flags...)...)
	return doc.Conflicts, err
}

// inState waits until an address has a conflict in this state in the cluster, and returns it.
func (c *testCluster) inState(machine string, ip netip.Addr, state string) lab.Conflict {
	c.Helper()
	return c.waitState(machine, ip, state, "--cluster")
}

// ownInState is inState for a conflict of the machine itself: its times do not come from another node, as ages.
func (c *testCluster) ownInState(machine string, ip netip.Addr, state string) lab.Conflict {
	c.Helper()
	return c.waitState(machine, ip, state)
}

func (c *testCluster) waitState(machine string, ip netip.Addr, state string, flags ...string) (found lab.Conflict) {
	c.Helper()
	c.eventually(fmt.Sprintf("a %s conflict of %v", state, ip), func() error {
		all, err := c.conflicts(machine, flags...)
		if err != nil {
			return err
		}
		// The newest one of an address is first.
		i := slices.IndexFunc(all, func(o lab.Conflict) bool { return o.IP == ip })
		if i < 0 || all[i].State != state {
			return fmt.Errorf("there are %+v", all)
		}
		found = all[i]
		return nil
	})
	return found
}

// shop makes the namespace of the pods.
func (c *testCluster) shop() {
	c.Helper()
	c.Kubectl("create", "namespace", "shop")
	c.eventually("the account of its pods", func() error {
		return c.Get(new(corev1.ServiceAccount), "api/v1/namespaces/shop/serviceaccounts/default")
	})
}

// pod is the manifest of a pod that waits, on a machine.
func pod(name, machine string) string {
	return fmt.Sprintf(`---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: shop, labels: {app: %[1]s}}
spec:
%s
`, name, podSpec(machine, "  "))
}

// podSpec is the specification of such a pod.
func podSpec(machine, indent string) string {
	lines := []string{
		"terminationGracePeriodSeconds: 1",
		"containers: [{name: main, image: " + cri.SandboxImage + "}]",
	}
	if machine != "" {
		lines = append(lines, "nodeSelector: {kubernetes.io/hostname: "+machine+"}")
	}
	return indent + strings.Join(lines, "\n"+indent)
}

// running waits until pods run, and returns their addresses.
func (c *testCluster) running(names ...string) (ips []netip.Addr) {
	c.Helper()
	for _, name := range names {
		var p corev1.Pod
		c.eventually("pod "+name, func() error {
			if err := c.Get(&p, "api/v1/namespaces/shop/pods/"+name); err != nil {
				return err
			}
			if p.Status.Phase != corev1.PodRunning || p.Status.PodIP == "" || p.DeletionTimestamp != nil {
				return fmt.Errorf("it is %v with address %q", p.Status.Phase, p.Status.PodIP)
			}
			return nil
		})
		ips = append(ips, netip.MustParseAddr(p.Status.PodIP))
	}
	return ips
}

// free removes the reservation of an address on a machine, as faults of IPAM do. The next pod there gets it.
func (c *testCluster) free(machine string, ip netip.Addr) {
	c.Helper()
	c.Do(os.Remove(filepath.Join(c.Machines[machine].Reserved(), ip.String())))
	c.next(machine, ip)
}

// next makes host-local give out this address next, if it is free: it walks through its range.
func (c *testCluster) next(machine string, ip netip.Addr) {
	c.Helper()
	dir := c.Machines[machine].Reserved()
	c.Do(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "last_reserved_ip.0"), []byte(ip.Prev().String()), 0o600))
}

// place makes a pod on a machine, with this address.
func (c *testCluster) place(name, machine string, ip netip.Addr) {
	c.Helper()
	c.next(machine, ip)
	c.Apply(pod(name, machine))
	c.has(name, ip)
}

// has waits until a pod runs, and fails if it has another address.
func (c *testCluster) has(name string, ip netip.Addr) {
	c.Helper()
	if got := c.running(name)[0]; got != ip {
		c.Fatal(fmt.Errorf("%s has %v instead of %v", name, got, ip))
	}
}

// bystanders are all pods but some, with what nothing may change: who they are, their address, their containers' ids.
func (c *testCluster) bystanders(but ...string) map[string]string {
	c.Helper()
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/pods"))
	all := make(map[string]string)
	for _, p := range pods.Items {
		name := p.Namespace + "/" + p.Name
		if slices.Contains(but, p.Name) || p.Status.Phase != corev1.PodRunning {
			continue
		}
		all[name] = fmt.Sprint(p.UID, p.Status.PodIP)
		for _, s := range p.Status.ContainerStatuses {
			all[name] += " " + s.ContainerID
		}
	}
	return all
}
