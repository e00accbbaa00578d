package cluster_test

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/lab"
)

// The books of nodes, in a cluster with books at the API server.

// ownRange and azureRange are out of the pool of Calico: the networks of nodes give them out.
var (
	ownRange   = netip.MustParsePrefix("10.242.0.0/24")
	azureRange = netip.MustParsePrefix("10.241.0.0/24")
)

// network has the next pods of a machine in another network. It returns the folder with its reservations.
func (c *testCluster) network(machine, name, ipam string, subnet netip.Prefix) (store string) {
	c.Helper()
	m := c.Machines[machine]
	text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":%q,"plugins":[{"type":"ptp","ipam":{"type":%q,"ranges":[[{"subnet":"%v"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`, name, ipam, subnet)
	_, err := m.Run(c.Context(), "sh", "-euc", "echo '"+text+"' >/etc/cni/net.d/new; mv /etc/cni/net.d/new "+firstNetwork)
	c.Do(err)
	return filepath.Join(filepath.Dir(m.Reserved()), name)
}

// firstNetwork is the configuration that comes before that of all others.
const firstNetwork = "/etc/cni/net.d/05-first.conflist"

// noNetwork undoes that.
func (c *testCluster) noNetwork(machine string) {
	c.Helper()
	_, err := c.Machines[machine].Run(c.Context(), "rm", firstNetwork)
	c.Do(err)
}

// with is the name of the pod of a deployment that has an address.
func (c *testCluster) with(ip netip.Addr, app string) string {
	c.Helper()
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/shop/pods?labelSelector=app="+app))
	i := slices.IndexFunc(pods.Items, func(p corev1.Pod) bool { return p.Status.PodIP == ip.String() })
	if i < 0 {
		c.Fatal(fmt.Errorf("no pod of %s has %v", app, ip))
	}
	return pods.Items[i].Name
}

// nodeBooks: on one machine the store of host-local is wiped, on another one a clean-up of Azure CNS frees the address of a live pod. The next
// pods get addresses that are taken.
func (c *testCluster) nodeBooks() {
	ips := []netip.Addr{at(ownRange, 2), at(azureRange, 2)}
	c.known = append(c.known, ips...)
	store := c.network("node1", "own", "host-local", ownRange)
	given := c.network("node2", cluster.AzureNetwork, cluster.AzureIPAM, azureRange)
	azure := c.Machines["node2"]
	c.Do(azure.AzureEndpoints(c.Context(), "", netip.Addr{}))
	c.Apply(deployment("older", 4, "node1") + deployment("crashing", 1, "node2"))
	c.run("kubectl -n shop rollout status deployment/older --timeout=$PATIENCE; kubectl -n shop rollout status deployment/crashing --timeout=$PATIENCE")
	goes := []string{c.with(ips[0], "older"), c.with(ips[1], "crashing")}

	run := time.Now()
	c.eventually("the book of node2", func() error { // only what an agent has seen may be lost there
		var doc document.Audit
		err := c.query("node2", &doc, "audit")
		if err == nil && (doc.At.Sub(run) < time.Second || !slices.ContainsFunc(doc.Books, func(b document.BookStatus) bool { return b.Kind == "azure-cns" && b.Reserved == 1 })) {
			err = fmt.Errorf("at %v its books are %+v", doc.At, doc.Books)
		}
		return err
	})
	c.Do(os.RemoveAll(store), os.RemoveAll(given), azure.AzureEndpoints(c.Context(), "", netip.Addr{}))
	for last := byte(2); last <= 5; last++ {
		c.foresees(document.Unreserved, at(ownRange, last))
	}
	c.foresees(document.Unreserved, ips[1])
	c.run("kubectl dupip audit")

	// That of an earlier sandbox of the pod is never released.
	c.Do(azure.AzureEndpoints(c.Context(), strings.Repeat("0a", 32), ips[1]))
	c.Apply(pod("newer", "node1") + pod("taker", "node2"))
	c.has("newer", ips[0])
	c.has("taker", ips[1])
	steps := c.says(ips[0], document.CauseLost, "host-local (network own) of node node1 has reserved it for shop/newer",
		"The store of host-local (network own) on node node1 was probably wiped: it has no reservation for")
	steps = append(steps, c.says(ips[1], document.CauseLost, "azure-cns (network azure) of node node2 has reserved it for shop/taker",
		"Stop what frees addresses of Azure CNS")...)
	c.endAll(ips, steps, lab.Follower{Answer: lab.Failed, ByHand: c.reserveAgain}, goes...)
	c.run("kubectl -n shop rollout status deployment/older --timeout=$PATIENCE; kubectl -n shop rollout status deployment/crashing --timeout=$PATIENCE")
	c.run("kubectl -n shop delete deployments --all --timeout=$PATIENCE")
	c.noNetwork("node1")
	c.noNetwork("node2")
}

// reserveAgain does what the audit says about pods whose reservation is lost, and which share their address with nobody.
func (c *testCluster) reserveAgain(s lab.Step) (string, error) {
	if !strings.HasPrefix(s.Text, `Run "dupip audit", and reserve other addresses again`) {
		return "", nil
	}
	doc, err := c.audit()
	for _, f := range doc.Findings {
		if f.Kind == document.Unreserved && f.Node == s.Node && !f.Contested && err == nil {
			_, repair := say.Finding(f)
			c.Logf("%s: %s", repair[0].Text, repair[0].Command)
			_, err = c.carryOut(lab.Step{Command: repair[0].Command, Node: repair[0].Node})
		}
	}
	return "", err
}

// azureResource is that of Azure CNS: the API server keeps what it does not know of it.
const azureResource = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodenetworkconfigs.acn.azure.com}
spec:
  group: acn.azure.com
  names: {kind: NodeNetworkConfig, plural: nodenetworkconfigs, singular: nodenetworkconfig}
  scope: Namespaced
  versions:
  - name: v1alpha
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// nodeNetworkConfig is that of node2, which belongs to the Node with a UID. A finalizer keeps it when that is gone.
func nodeNetworkConfig(uid string) string {
	return fmt.Sprintf(`---
apiVersion: acn.azure.com/v1alpha
kind: NodeNetworkConfig
metadata:
  name: node2
  namespace: kube-system
  finalizers: [example.com/kept]
  ownerReferences: [{apiVersion: v1, kind: Node, name: node2, uid: %s}]
status: {networkContainers: [{assignmentMode: static, primaryIP: %v}]}
`, uid, azureRange)
}

// replaced: a machine whose Node was deleted runs on, and another one with its name has its range, by an object that belongs to the first one.
func (c *testCluster) replaced() {
	next := c.Replace("node2", "old")
	old := c.Machines["old"]
	c.Ready("node2")
	c.network("node2", cluster.AzureNetwork, cluster.AzureIPAM, azureRange)
	c.members()
	if f := c.foresees(document.Stale, netip.Addr{}); f.Node != "node2" || f.Book != "azure" || f.OwnerUID == "" {
		c.Error(fmt.Errorf("the finding is %+v", f))
	}
	ip := at(azureRange, 2) // shop/taker of the first machine has it
	c.Apply(pod("next", "node2"))
	c.has("next", ip)
	c.inState("node1", ip, "confirmed")
	judged := c.Judged(c.kubectlDupip(), ip, func(j *lab.Judgement) bool { return j.Cause == document.CauseNamesakes })
	for _, want := range []string{"are machines with one node name", "The API server has shop/next", "and not shop/taker", "The address book azure has for node node2 belongs to an earlier node of that name"} {
		if !strings.Contains(judged.Judgement.Text, want) {
			c.Error(fmt.Errorf("it does not say %q: %s", want, judged.Judgement.Text))
		}
	}
	repaired := false
	c.endAll([]netip.Addr{ip}, judged.Judgement.Steps, lab.Follower{
		Answer: func(s lab.Step, before []lab.Ran) bool {
			boot, ok := strings.CutSuffix(strings.TrimPrefix(s.If, "If another one of them is always there, and "), " never")
			return ok && len(before) > 0 && !strings.Contains(before[0].Out, boot)
		},
		ByHand: func(s lab.Step) (string, error) {
			switch s.Address {
			case old.Uplink().String():
				delete(c.Machines, "old")
				return "", c.shutDown(old)
			case "": // Azure's controller
				repaired = strings.Contains(s.Text, "NodeNetworkConfig")
				return c.Shell(`kubectl -n kube-system patch nodenetworkconfig node2 --type=merge -p '{"metadata": {"finalizers": null}}'
kubectl -n kube-system delete nodenetworkconfig node2 --ignore-not-found --timeout=$PATIENCE`)
			}
			return "", fmt.Errorf("that is no machine to shut down: %+v; %v should run", s, next.Uplink())
		},
	})
	if _, runs := c.Machines["old"]; runs || !repaired {
		c.Fatal(fmt.Errorf("not carried out: the first machine runs: %v, the object is made anew: %v", runs, repaired))
	}
	c.eventually("the end of the finding", func() error {
		doc, err := c.audit()
		if err == nil && slices.ContainsFunc(doc.Findings, func(f document.Finding) bool { return f.Kind == document.Stale }) {
			err = fmt.Errorf("there are %+v", doc.Findings)
		}
		return err
	})
}

// shutDown ends a machine in order, as far as dupip knows.
func (c *testCluster) shutDown(m *cluster.Machine) error {
	const agent = "^/usr/bin/dupip agent"
	if _, err := m.Run(c.Context(), "pkill", "-TERM", "-f", agent); err != nil {
		return err
	}
	err := lab.Poll(c.Context(), patience, func() error {
		if _, err := m.Run(c.Context(), "pgrep", "-f", agent); err == nil {
			return fmt.Errorf("its agent has not ended")
		}
		return nil
	})
	if err != nil {
		return err
	}
	return m.Kill()
}
