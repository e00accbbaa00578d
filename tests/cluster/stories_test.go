package cluster_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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

// eachCommand: each command that is printed about a duplicate on one node ends it, and hurts nobody else.
func (c *testCluster) eachCommand() {
	for n := range 2 {
		first, second := fmt.Sprint("first-", n), fmt.Sprint("second-", n)
		ip := c.duplicate("node1", first, second, pod(second, "node1"))
		c.end("node1", ip, n, first, second)
	}
}

// end ends a conflict by the command with a number of those that are printed about it.
func (c *testCluster) end(machine string, ip netip.Addr, n int, holders ...string) {
	c.Helper()
	c.inState("node2", ip, "confirmed")
	text, err := c.dupip("node2", "explain "+ip.String())
	c.Do(err)
	c.Log(text)
	commands := printed(text)
	if len(commands) != 2 {
		c.Fatal(fmt.Errorf("the commands are %q", commands))
	}
	before := c.bystanders(holders...)
	c.follow(machine, commands[n])
	c.inState("node2", ip, "resolved")
	c.unharmed(before)
}

// statefulSet: a pod whose successor has its name. No command hurts that: not while the kubelet of the old one hangs and somebody
// has deleted it by force, so that the successor runs elsewhere, and not afterwards.
func (c *testCluster) statefulSet() {
	c.run("kubectl cordon node2 node3")
	ip := c.duplicate("node1", "first-set", "set-0", `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: set, namespace: shop}
spec:
  selector: {matchLabels: {app: set}}
  serviceName: set
  template:
    metadata: {labels: {app: set}}
    spec:
`+podSpec("", "      "))
	c.inState("node2", ip, "confirmed")
	c.Do(c.signalKubelet("node1", "STOP"))
	c.run("kubectl uncordon node2 node3; kubectl cordon node1; kubectl -n shop delete pod set-0 --force")
	if got := c.running("set-0")[0]; got == ip {
		c.Fatal(fmt.Errorf("the successor has %v again", ip))
	}
	before := c.bystanders()
	text, err := c.dupip("node2", "explain "+ip.String())
	c.Do(err)
	c.Log(text)
	commands := printed(text)
	if len(commands) == 0 {
		c.Fatal("no command: nothing is tested")
	}
	c.follow("node1", commands[0])
	c.unharmed(before)
	c.Do(c.signalKubelet("node1", "CONT")) // the kubelet removes what should not be there
	c.inState("node2", ip, "resolved")
	c.run("kubectl uncordon node1")
	text, err = c.dupip("node2", "explain "+ip.String())
	c.Do(err)
	if commands := printed(text); len(commands) > 0 {
		c.Error(fmt.Errorf("it is over, and there are commands: %q", commands))
	}
	c.unharmed(before)
}

// signalKubelet sends a signal, such as STOP, to the kubelet of a machine.
func (c *testCluster) signalKubelet(machine, name string) error {
	_, err := c.Machines[machine].Run(c.Context(), "pkill", "-"+name, "-f", "kubelet --config")
	return err
}

// clone: a machine that was cloned with the range of another one's pods.
func (c *testCluster) clone() {
	c.Add("node4", c.Machines["node3"].PodCIDR)
	c.Ready("node4")
	c.importImage()
	c.members()
	for n := range 2 {
		theirs, ours := fmt.Sprint("theirs-", n), fmt.Sprint("ours-", n)
		// After the first command the kubelet gives the pod a new sandbox, with the next address of the range. So the addresses
		// of the two rounds are far apart.
		octets := c.Machines["node3"].PodCIDR.Addr().As4()
		octets[3] = byte(100 * (1 + n))
		ip := netip.AddrFrom4(octets)
		c.place(theirs, "node3", ip)
		c.place(ours, "node4", ip)
		c.known = append(c.known, ip)
		c.end([]string{"node4", "node3"}[n], ip, n, theirs, ours)
	}
	c.run("kubectl -n shop delete pod ours-1")
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
	c.unharmed(pods)
	c.end("node1", ip, 0, "first-away", "second-away")
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

// follow runs a printed command: kubectl anywhere, others on the machine.
func (c *testCluster) follow(machine, command string) {
	c.Helper()
	if strings.HasPrefix(command, "kubectl ") {
		c.run(command)
		return
	}
	repeated := false
	c.eventually(command, func() error {
		out, err := c.Machines[machine].Run(c.Context(), "sh", "-c", command)
		switch {
		case err == nil, repeated && strings.Contains(err.Error(), "not found"): // the kubelet was faster
			c.Logf("%s# %s\n%s", machine, command, out)
			return nil
		// Then people repeat it, too: the pod is just being started, or the kubelet removes its network at the same time.
		case strings.Contains(err.Error(), "is in starting state"), strings.Contains(err.Error(), `failed to delete "eth0": no such device`):
			repeated = true
			return err
		}
		return lab.Final(err)
	})
}

// unharmed fails if a pod that was there before is another one now.
func (c *testCluster) unharmed(before map[string]string) {
	c.Helper()
	after := c.bystanders()
	for name, was := range before {
		if after[name] != was {
			c.Error(fmt.Errorf("%s was %s and is %s", name, was, after[name]))
		}
	}
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
