package cluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/lab"
)

// TestBooks: a cluster with Calico's objects, in which a machine has the name of another one in Calico's folder, and a Node is deleted whose
// machine runs on. The duplicates are foreseen, explained by the objects, and ended by the printed orders.
func TestBooks(t *testing.T) {
	c := newTestCluster(t, "node1", "node2", "node3")
	path := filepath.Join(c.Dir(), "kubectl-dupip")
	c.Do(lab.Build("../..", path, "./cmd/kubectl-dupip"))
	c.AddCommand("kubectl-dupip", path)
	node1, node2 := c.Machines["node1"].PodCIDR, c.Machines["node2"].PodCIDR
	k := c.NewCalico(netip.PrefixFrom(node1.Addr(), 16).Masked(), map[string]netip.Prefix{"node1": node1, "node2": node2, "node3": node1})
	k.Name("node3", "node1")
	ctx, cancel := context.WithCancel(context.Background())
	written := make(chan error, 1)
	go func() { written <- k.Run(ctx) }()
	c.Cleanup(func() {
		cancel()
		c.Do(<-written)
	})
	c.next("node3", at(node1, 100))
	c.importImage()
	c.install("--set reporter.enabled=true")
	c.run("kubectl -n dupip rollout status sts/dupip-reporter --timeout=$PATIENCE; kubectl -n dupip get pods -o wide")
	c.shop()
	c.Apply(pod("by1", "node1") + pod("by2", "node2") + pod("by3", "node3"))
	c.running("by1", "by2", "by3")
	c.misbooked(k, node1)
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
func (c *testCluster) misbooked(k *cluster.Calico, node1 netip.Prefix) {
	c.Helper()
	ip := at(node1, 140)
	c.next("node3", ip)
	c.Apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: first, namespace: shop}
spec:
  selector: {matchLabels: {app: first}}
  template:
    metadata: {labels: {app: first}}
    spec:
` + podSpec("node3", "      "))
	c.run("kubectl -n shop rollout status deployment/first --timeout=$PATIENCE")
	f := c.foresees("misbooked", ip)
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
	c.eventually("the collector", func() error {
		if !k.HasFreed(ip) {
			return errors.New("it has not freed the address")
		}
		return nil
	})
	c.run("kubectl get ipamblocks.crd.projectcalico.org -o yaml | tail -50")
	c.place("second", "node1", ip)
	c.known = append(c.known, ip)
	c.inState("node1", ip, "confirmed")
	judged := c.Ordered(c.kubectlDupip(), ip)
	text := c.run("kubectl dupip explain " + ip.String())
	for _, want := range []string{"calico (pool default-ipv4-ippool) had it reserved for shop/first-", "on node node1, while the pod ran on node node3", "/var/lib/calico/nodename"} {
		if !strings.Contains(text, want) {
			c.Error(fmt.Errorf("it does not say %q", want))
		}
	}
	first := strings.TrimSpace(c.run("kubectl -n shop get pods -l app=first -o name"))
	c.end(ip, judged.Judgement.Steps, lab.Failed, strings.TrimPrefix(first, "pod/"))
}
