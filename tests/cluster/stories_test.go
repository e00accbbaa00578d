package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/lab"
)

// TestStories: duplicates in a cluster, and what people do about them.
func TestStories(t *testing.T) {
	c := newTestCluster(t, "node1", "node2", "node3")
	c.tidy = (*testCluster).tidyUp
	c.importImage()
	c.install()
	c.shop()
	c.Apply(pod("by1", "node1") + pod("by2", "node2") + pod("by3", "node3"))
	c.running("by1", "by2", "by3")

	c.story("lawful", (*testCluster).lawful)
	c.story("each command", (*testCluster).eachCommand)
	c.story("StatefulSet", (*testCluster).statefulSet)
	c.story("clone", (*testCluster).clone)
	c.story("API server", (*testCluster).withoutAPIServer)
	c.story("node", (*testCluster).nodeDies)
	c.story("rollout past a dead node", (*testCluster).rolloutPastDead)
	c.quiet("node1", c.known...)
}

// story runs a part of a test. One that fails leaves nothing to the next.
func (c *testCluster) story(name string, f func(*testCluster)) {
	passed := c.TB.(*testing.T).Run(name, func(t *testing.T) {
		// Its cluster, with the test that fails.
		mine, with := *c.Cluster, *c.T
		with.TB = t
		mine.T = &with
		inner := &testCluster{Cluster: &mine, namespace: c.namespace, known: c.known}
		defer func() {
			c.known = inner.known
			mine.T = c.T
			*c.Cluster = mine
		}()
		f(inner)
	})
	switch {
	case passed:
	case c.tidy == nil:
		c.FailNow()
	default:
		c.tidy(c)
	}
}

// tidyUp ends what a story of TestStories has left half done.
func (c *testCluster) tidyUp() {
	c.Helper()
	for name, m := range c.Machines {
		_ = c.signalKubelet(name, "CONT") // fails if the machine is off
		c.Do(os.RemoveAll(filepath.Join(m.StaticPods(), "static.yaml")))
	}
	c.Repair("node1", "node2", "node3")
	c.importImage()
	c.run(`kubectl uncordon node1 node2 node3
kubectl -n shop delete deployments,statefulsets,jobs --all --timeout=$PATIENCE
kubectl -n shop delete pods -l 'app notin (by1, by2, by3)' --timeout=$PATIENCE
kubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE`)
	c.running("by1", "by2", "by3")
	c.members()
	all, err := c.conflicts("node1", "--cluster")
	c.Do(err)
	for _, o := range all {
		c.known = append(c.known, o.IP)
	}
}

// duplicate makes a pod on a machine, frees its address, sees that the audit says so, and makes another pod, which gets it.
func (c *testCluster) duplicate(machine, first, second, manifest string) netip.Addr {
	c.Helper()
	c.Apply(pod(first, machine))
	ip := c.running(first)[0]
	c.free(machine, ip)
	c.eventually("the audit", func() error {
		var doc struct{ Findings []lab.Finding }
		if err := c.query(machine, &doc, "audit", "--cluster"); err != nil {
			return err
		}
		if !slices.ContainsFunc(doc.Findings, func(f lab.Finding) bool { return f.Kind == "unreserved" && f.IP == ip }) {
			return fmt.Errorf("it does not say that %v is not reserved: %v", ip, doc.Findings)
		}
		return nil
	})
	c.Apply(manifest)
	c.has(second, ip)
	c.known = append(c.known, ip)
	return ip
}

// eachCommand: each printed way to end a duplicate on one node ends it, and hurts nobody else.
func (c *testCluster) eachCommand() {
	for from := range 2 { // by the API server, and if that fails by the runtime
		first, second := fmt.Sprint("first-", from), fmt.Sprint("second-", from)
		ip := c.duplicate("node1", first, second, pod(second, "node1"))
		steps := c.Ordered(c.cli("node2"), ip).Judgement.Steps
		c.end(ip, steps[from:], func(s lab.Step, _ []lab.Ran) bool { return from == 1 && s.If == steps[1].If }, first)
	}
}

// end carries out steps about an address to the letter, by these answers. Then the conflict is over, and of all pods only these have
// ended.
func (c *testCluster) end(ip netip.Addr, steps []lab.Step, answer func(lab.Step, []lab.Ran) bool, goes ...string) {
	c.Helper()
	c.endAll([]netip.Addr{ip}, steps, lab.Follower{Answer: answer}, goes...)
}

// endAll is end for several addresses.
func (c *testCluster) endAll(ips []netip.Addr, steps []lab.Step, f lab.Follower, goes ...string) {
	c.Helper()
	before, since := c.bystanders(goes...), time.Now()
	f.Run = c.carryOut
	c.Follow(steps, f)
	var agents []lab.Reporter
	for name := range c.Machines {
		agents = append(agents, reporter{c, name})
	}
	c.Ended(since, func() error { return c.harmed(before) }, ips, agents...)
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/shop/pods"))
	for _, p := range pods.Items {
		ip, err := netip.ParseAddr(p.Status.PodIP)
		if err != nil || !slices.Contains(ips, ip) || p.DeletionTimestamp != nil || slices.Contains(goes, p.Name) {
			continue
		}
		if err := c.Machines[p.Spec.NodeName].Ping(ip); err != nil {
			c.Error(fmt.Errorf("%s lives, and its node does not reach it: %w", p.Name, err))
		}
	}
}

// reporter is the agent on a machine.
type reporter struct {
	c       *testCluster
	machine string
}

// Conflicts are those that it knows, all of them.
func (r reporter) Conflicts(context.Context, bool) ([]lab.Conflict, error) {
	return r.c.conflicts(r.machine)
}

// cli are the commands of a machine's agent.
func (c *testCluster) cli(machine string) lab.CLI {
	return cli(func(command string) (string, error) { return c.dupip(machine, command) })
}

type cli func(command string) (string, error)

// CLI runs one.
func (f cli) CLI(_ context.Context, args ...string) (string, error) {
	return f(strings.Join(args, " "))
}

// statefulSet: a pod whose successor has its name. An order about it does not hurt that: not while the kubelet of the old one hangs and
// somebody has deleted it by force, so that the successor runs elsewhere, and not afterwards.
func (c *testCluster) statefulSet() {
	c.run("kubectl cordon node2 node3")
	c.Apply(`apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: shop}
spec:
  selector: {matchLabels: {app: set}}
  serviceName: set
  template:
    metadata: {labels: {app: set}}
    spec:
` + podSpec("", "      "))
	ip := c.running("set-0")[0]
	c.free("node1", ip)
	c.known = append(c.known, ip)
	c.place("second-set", "node1", ip)
	steps := c.Ordered(c.cli("node2"), ip).Judgement.Steps
	c.Do(c.signalKubelet("node1", "STOP"))
	c.run("kubectl uncordon node2 node3; kubectl cordon node1; kubectl -n shop delete pod set-0 --force")
	if got := c.running("set-0")[0]; got == ip {
		c.Fatal(fmt.Errorf("the successor has %v again", ip))
	}
	c.end(ip, steps, lab.Failed)
	before := c.bystanders()
	c.Do(c.signalKubelet("node1", "CONT")) // the kubelet removes what should not be there
	c.run("kubectl uncordon node1")
	text, err := c.dupip("node2", "explain "+ip.String())
	c.Do(err)
	if commands := printed(text); len(commands) > 0 {
		c.Error(fmt.Errorf("it is over, and there are commands: %q", commands))
	}
	c.Do(c.harmed(before))
}

// signalKubelet sends a signal, such as STOP, to the kubelet of a machine.
func (c *testCluster) signalKubelet(machine, name string) error {
	_, err := c.Machines[machine].Run(c.Context(), "pkill", "-"+name, "-f", "kubelet --config")
	return err
}

// clone: a machine that was cloned with the range of another one's pods. dupip says to drain it, and the successors of its pods do not
// collide. To delete the pods one by one gave each the next address that was taken.
func (c *testCluster) clone() {
	c.Add("node4", c.Machines["node3"].PodCIDR)
	c.Ready("node4")
	c.importImage()
	c.members()
	octets := c.Machines["node3"].PodCIDR.Addr().As4()
	octets[3] = 100 // far from those that others have
	ip := netip.AddrFrom4(octets)
	c.place("theirs", "node3", ip)
	c.next("node4", ip)
	c.run("kubectl cordon node1 node2 node3")
	c.Apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: ours, namespace: shop}
spec:
  selector: {matchLabels: {app: ours}}
  template:
    metadata: {labels: {app: ours}}
    spec:
` + podSpec("", "      "))
	c.known = append(c.known, ip)
	c.inState("node2", ip, "confirmed")
	c.run("kubectl uncordon node1 node2 node3")
	drain := "If node4 is the one with a wrong range"
	judged := c.Judged(c.cli("node2"), ip, func(j *lab.Judgement) bool {
		return slices.ContainsFunc(j.Steps, func(s lab.Step) bool { return s.If == drain })
	})
	ours := strings.TrimSpace(c.run("kubectl -n shop get pods -l app=ours -o name"))
	c.end(ip, judged.Judgement.Steps, func(s lab.Step, _ []lab.Ran) bool { return s.If == drain }, strings.TrimPrefix(ours, "pod/"))
	c.run("kubectl -n shop rollout status deployment/ours --timeout=$PATIENCE; kubectl -n shop delete deployment ours")
	c.Remove("node4")
	c.run("kubectl -n dupip delete pods --field-selector spec.nodeName=node4 --force")
}

// withoutAPIServer: what the agents know does not depend on it.
func (c *testCluster) withoutAPIServer() {
	ip := c.duplicate("node1", "first-away", "second-away", pod("second-away", "node1"))
	before, pods := c.ownInState("node1", ip, "confirmed"), c.bystanders()
	c.KillAPIServer()
	// That is the story, not a wait for something.
	time.Sleep(time.Minute)
	c.StartAPIServer()
	c.Ready("node1", "node2", "node3")
	c.same("node1", before)
	c.Do(c.harmed(pods))
	c.end(ip, c.Ordered(c.cli("node2"), ip).Judgement.Steps, lab.Failed, "first-away")
}

// nodeDies: a machine dies, returns, dies again, and another one with its name takes its place.
func (c *testCluster) nodeDies() {
	c.Apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: roam, namespace: shop}
spec:
  replicas: 6
  selector: {matchLabels: {app: roam}}
  template:
    metadata: {labels: {app: roam}}
    spec:
      tolerations:
        - {key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
        - {key: node.kubernetes.io/not-ready, operator: Exists, effect: NoExecute, tolerationSeconds: 1}
` + podSpec("", "      "))
	c.run("kubectl -n shop rollout status deployment/roam")
	node3 := c.Machines["node3"]
	for _, wipe := range []bool{false, true} {
		c.Do(node3.Kill())
		c.quiet("node1", c.known...)
		c.run("kubectl wait --for=condition=Ready=Unknown --timeout=$PATIENCE node/node3")
		c.run("kubectl -n shop rollout status deployment/roam --timeout=$PATIENCE")
		if wipe {
			c.Do(node3.Wipe())
		}
		c.Do(node3.Start())
		c.Ready("node3")
		if wipe {
			c.importImage()
		}
		c.run("kubectl -n dupip rollout status ds/dupip --timeout=$PATIENCE")
		c.members()
		c.running("by3")
	}
}

// carryOut runs the command of a step, kubectl anywhere and others on its machine.
func (c *testCluster) carryOut(s lab.Step) (out string, err error) {
	m := c.Machines[s.Node]
	switch {
	case s.Node == "":
		return c.Shell(s.Command)
	case m == nil:
		return "", fmt.Errorf("there is no machine %q", s.Node)
	}
	args := lab.ShellArgs(s.Command)
	err = lab.Poll(c.Context(), patience, func() error {
		out, err = m.Run(c.Context(), args[0], args[1:]...)
		// Then people repeat it, too: the pod is just being started, or the kubelet removes its network at the same time.
		if err != nil && !strings.Contains(err.Error(), "is in starting state") && !strings.Contains(err.Error(), `failed to delete "eth0": no such device`) {
			err = lab.Final(err)
		}
		return err
	})
	return out, err
}

// harmed returns an error if a pod that was there before is another one now.
func (c *testCluster) harmed(before map[string]string) error {
	after := c.bystanders()
	var errs []error
	for name, was := range before {
		if after[name] != was {
			errs = append(errs, fmt.Errorf("%s was %s and is %s", name, was, after[name]))
		}
	}
	return errors.Join(errs...)
}

// quiet fails if there is or was a conflict of another address than these.
func (c *testCluster) quiet(machine string, known ...netip.Addr) {
	c.Helper()
	all, err := c.conflicts(machine, "--cluster")
	c.Do(err)
	all = slices.DeleteFunc(all, func(o lab.Conflict) bool { return slices.Contains(known, o.IP) })
	if len(all) > 0 {
		c.Error(fmt.Errorf("conflicts that are none: %+v", all))
	}
}
