package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/lab"
)

// TestBooks: a cluster with Calico's objects and books of nodes. The store of host-local is wiped, a clean-up of Azure CNS frees a live pod's
// address, a machine has the name of another one in Calico's folder, and a Node is deleted, and replaced, whose machine runs on. The
// duplicates are foreseen, explained by the books, and ended by the printed orders. What is lawful is no finding.
func TestBooks(t *testing.T) {
	c := newTestCluster(t, "node1", "node2", "node3")
	path := filepath.Join(c.Dir(), "kubectl-dupip")
	c.Do(lab.Build("../..", path, "./cmd/kubectl-dupip"))
	c.AddCommand("kubectl-dupip", path)
	k := c.NewCalico(netip.PrefixFrom(c.Machines["node1"].PodCIDR.Addr(), 16).Masked())
	ctx, cancel := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() { written <- k.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		c.Do(<-written)
	})
	c.Cleanup(end)
	for _, m := range c.Machines {
		c.next(m.Name, at(m.PodCIDR, 10))
	}
	c.Apply(azureResource)
	c.Kubectl("wait", "--for=condition=Established", "crd/nodenetworkconfigs.acn.azure.com")
	c.Do(os.Symlink(c.importImage(), filepath.Join(c.Dir(), "images", "dupip.tar"))) // for the machine that comes later
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE; kubectl -n dupip get pods -o wide")
	c.shop()
	c.Apply(pod("by1", "node1") + pod("by2", "node2") + pod("by3", "node3"))
	c.running("by1", "by2", "by3")
	c.story("lawful", func(c *testCluster) { c.lawfulBooks(k) })
	c.story("node's books", (*testCluster).nodeBooks)
	c.story("misbooked", func(c *testCluster) { c.misbooked(k) })
	c.story("deleted Node", func(c *testCluster) { c.nodeDeleted(k) })
	end()
	c.story("replaced", (*testCluster).replaced)
	c.quiet("node1", c.known...)
}

// lawfully is how long the lawful life is played at least.
var lawfully = flag.Duration("lawful", 0, "how long TestBooks plays what is lawful")

// lawfulBooks: what changes in the books of every cluster is no finding.
func (c *testCluster) lawfulBooks(k *cluster.Calico) {
	began, ctx := time.Now(), c.Context()
	ctx, cancel := context.WithCancel(ctx)
	var found []document.Finding
	asked, watched := 0, make(chan struct{})
	go func() {
		defer close(watched)
		for tick := time.Tick(2 * time.Second); ; {
			if doc, err := c.audit(); err == nil { // while a reporter or the API server is away there is none
				asked++
				found = append(found, doc.Findings...)
			}
			select {
			case <-ctx.Done():
				return
			case <-tick:
			}
		}
	}()
	c.Apply(deployment("web", 6, ""))
	for round := 0; round == 0 || time.Since(began) < *lawfully; round++ {
		c.run(`kubectl -n shop rollout status deployment/web --timeout=$PATIENCE
kubectl -n shop rollout restart deployment/web
kubectl -n shop rollout status deployment/web --timeout=$PATIENCE
kubectl -n shop scale deployment/web --replicas=12
kubectl drain node2 --ignore-daemonsets --force --delete-emptydir-data --timeout=$PATIENCE
kubectl uncordon node2
kubectl -n shop delete pod -l app=web --field-selector spec.nodeName=node1 --force --grace-period=0`)
		k.MoveBlocks([]string{"node1", "node3"}[round%2])
		c.run("kubectl -n shop rollout status deployment/web --timeout=$PATIENCE; kubectl -n shop scale deployment/web --replicas=6")
		c.KillAPIServer()
		time.Sleep(5 * time.Second) // that is the story, not a wait for something
		c.StartAPIServer()
		c.Ready("node1", "node2", "node3")
		c.run("kubectl -n shop rollout status deployment/web --timeout=$PATIENCE")
	}
	c.Apply(pod("by2", "node2")) // it was drained
	c.running("by2")
	cancel()
	<-watched
	k.MoveBlocks("")
	c.run("kubectl -n shop delete deployment web")
	c.Logf("%.0f s of lawful life, the audit was asked %d times", time.Since(began).Seconds(), asked)
	if len(found) > 0 || asked == 0 {
		c.Error(fmt.Errorf("findings of %d audits: %+v", asked, found))
	}
}

// deployment is the manifest of one, on a machine if that is not empty.
func deployment(name string, replicas int, machine string) string {
	return fmt.Sprintf(`---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %s, namespace: shop}
spec:
  replicas: %d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
%[3]s
`, name, replicas, podSpec(machine, "      "))
}

// at is the address with that last byte in a range.
func at(p netip.Prefix, last byte) netip.Addr {
	b := p.Addr().As4()
	b[3] = last
	return netip.AddrFrom4(b)
}

// audit runs kubectl dupip audit.
func (c *testCluster) audit() (doc document.Audit, err error) {
	out, err := c.Shell("kubectl dupip audit -o json")
	if err == nil {
		err = json.Unmarshal([]byte(out), &doc)
	}
	return doc, err
}

// foresees waits for a finding about an address, or without one if that is zero.
func (c *testCluster) foresees(kind string, ip netip.Addr) (found document.Finding) {
	c.Helper()
	began := time.Now()
	c.eventually("the finding "+kind, func() error {
		doc, err := c.audit()
		if err != nil {
			return err
		}
		i := slices.IndexFunc(doc.Findings, func(f document.Finding) bool { return f.Kind == kind && f.IP == ip })
		if i < 0 {
			return fmt.Errorf("there are %+v; unchecked: %q", doc.Findings, doc.Unchecked)
		}
		found = doc.Findings[i]
		return nil
	})
	c.Logf("%s %v is found after %.1f s", kind, ip, time.Since(began).Seconds())
	return found
}

// plugin's commands, as people type them.
func (c *testCluster) kubectlDupip() lab.CLI {
	return cli(func(command string) (string, error) { return c.Shell("kubectl dupip " + command) })
}

// misbooked: the incident that the project begins with.
func (c *testCluster) misbooked(k *cluster.Calico) {
	ip := at(c.Machines["node1"].PodCIDR, 140)
	k.Name("node3", "node1")
	c.next("node3", ip)
	c.Apply(deployment("first", 1, "node3"))
	c.run("kubectl -n shop rollout status deployment/first --timeout=$PATIENCE")
	f := c.foresees(document.Misbooked, ip)
	if f.Node != "node3" || f.ReservedNode != "node1" || f.Book != "calico" || f.FreedBy.IsZero() {
		c.Error(fmt.Errorf("the finding is %+v", f))
	}
	c.run("kubectl dupip audit; kubectl dupip explain " + ip.String())
	c.eventually("an Event of the node", func() error {
		out, err := c.Shell("kubectl describe node node3")
		if err == nil && !strings.Contains(out, "MisbookedIP") {
			_, out, _ = strings.Cut(out, "\nEvents:")
			err = errors.New("its Events are" + out)
		}
		return err
	})

	k.SetGrace(0)
	c.collected(k, ip)
	c.place("second", "node1", ip)
	c.known = append(c.known, ip)
	c.inState("node1", ip, "confirmed")
	first := strings.TrimPrefix(strings.TrimSpace(c.run("kubectl -n shop get pods -l app=first -o name")), "pod/")
	steps := c.says(ip, document.CauseLost, "calico (pool default-ipv4-ippool) had it reserved for shop/"+first+" on node node1, while the pod ran on node node3",
		"/var/lib/calico/nodename", "from node2 to node node1")
	c.end(ip, steps, lab.Failed, first)
	k.Name("node3", "node3")
	k.SetGrace(15 * time.Minute)
}

// nodeDeleted: a Node is deleted while its machine runs on, and the addresses of its pods are given out again.
func (c *testCluster) nodeDeleted(k *cluster.Calico) {
	c.Apply(pod("orphan", "node2"))
	ip := c.running("orphan")[0]
	c.Apply(nodeNetworkConfig(strings.TrimSpace(c.run("kubectl get node node2 -o 'jsonpath={.metadata.uid}'"))))
	c.Do(c.signalKubelet("node2", "STOP"))
	c.run("kubectl delete node node2")
	if f := c.foresees(document.Deleted, netip.Addr{}); f.Node != "node2" || f.Pods == 0 {
		c.Error(fmt.Errorf("the finding is %+v", f))
	}
	c.collected(k, ip)
	c.place("heir", "node1", ip)
	c.known = append(c.known, ip)
	c.inState("node1", ip, "confirmed")
	steps := c.says(ip, document.CauseDeleted, "The Node node2 was deleted at", "The API server does not have shop/orphan")
	c.end(ip, steps, lab.Failed, "orphan")
}

// collected waits until the collector has freed an address.
func (c *testCluster) collected(k *cluster.Calico, ip netip.Addr) {
	c.Helper()
	c.eventually("the collector", func() error {
		if !k.HasFreed(ip) {
			return fmt.Errorf("it has not freed %v", ip)
		}
		return nil
	})
}

// says returns the steps about an address when they have an order and this cause, and the words.
func (c *testCluster) says(ip netip.Addr, cause string, words ...string) []lab.Step {
	c.Helper()
	judged := c.Ordered(c.kubectlDupip(), ip)
	c.run("kubectl dupip explain " + ip.String())
	text := judged.Judgement.Text
	for _, s := range judged.Judgement.Steps {
		text += " " + s.Text
	}
	for _, want := range words {
		if !strings.Contains(text, want) {
			c.Error(fmt.Errorf("it does not say %q: %s", want, text))
		}
	}
	if judged.Judgement.Cause != cause {
		c.Error(fmt.Errorf("the cause is %s, want %s", judged.Judgement.Cause, cause))
	}
	return judged.Judgement.Steps
}
