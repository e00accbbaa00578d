package cluster_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/cluster"
	"github.com/dupip/dupip/tests/helm"
	"github.com/dupip/dupip/tests/lab"
)

// TestInstall: the commands of the pages, as they are written there, the plugin, and what becomes of an open conflict meanwhile.
func TestInstall(t *testing.T) {
	c := newTestCluster(t, "node1", "node2")
	page := section(t, "../../README.md", "## Install")
	install := scripts(page)
	runtime, err := c.Machines["node1"].Run(t.Context(), "containerd", "--version")
	c.Do(err)
	tested := regexp.MustCompile(`\d+\.\d+`)
	for _, version := range []string{"Kubernetes " + tested.FindString(cluster.Version), "containerd " + tested.FindString(runtime)} {
		if !strings.Contains(page, version) {
			t.Errorf("the README does not say that %s is tested", version)
		}
	}
	c.story("the image", func(c *testCluster) { c.makeImage(install[0]) })
	c.story("a restricted namespace", (*testCluster).restricted)
	c.story("README", func(c *testCluster) { c.readme(install[1]) })
	c.story("a second release", (*testCluster).secondRelease)
	c.story("kubectl dupip", (*testCluster).plugin)
	c.story("upgrade, rollback, uninstall", (*testCluster).upgrades)
	c.story("manifest", (*testCluster).manifest)
}

// makeImage runs a script where there is a network and no cluster, and imports what it makes.
func (c *testCluster) makeImage(script string) {
	cmd := exec.Command("bash", "-euc", script)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	c.Logf("$ %s\n%s", script, out)
	c.Do(err)
	archive, err := filepath.Abs("../../bin/dupip-image.tar")
	c.Do(err)
	c.importArchive(archive)
}

// restricted: without the namespace's label there are no pods, and the events and the chart's notes say why.
func (c *testCluster) restricted() {
	out := c.run(`kubectl create namespace strict
kubectl label namespace strict pod-security.kubernetes.io/enforce=restricted
helm -n strict install strict deploy/chart --set fullnameOverride=strict
for try in $(seq 300); do
  kubectl -n strict get events --field-selector reason=FailedCreate -o yaml | grep -q message && break
  sleep 0.1
done
kubectl -n strict get events --field-selector reason=FailedCreate -o jsonpath='{.items[0].message}'
helm -n strict uninstall strict
kubectl delete namespace strict`)
	for _, text := range []string{"No pods? The namespace must allow privileged pods", `violates PodSecurity "restricted`} {
		if !strings.Contains(out, text) {
			c.Error(fmt.Errorf("nothing says %q", text))
		}
	}
}

// readme runs the README's commands.
func (c *testCluster) readme(script string) {
	out := c.run(script)
	for name := range c.Machines {
		if !strings.Contains(out, name) {
			c.Error(fmt.Errorf("what it prints in the end does not name %s", name))
		}
	}
	if strings.Count(out, "the drill has succeeded") != 2 {
		c.Error("the drill does not print in both pods that it has succeeded")
	}
	c.members()
	for name := range c.Machines {
		text, err := c.dupip(name, "doctor")
		c.Do(err)
		if !strings.Contains(text, " 0 warnings, 0 failures") {
			c.Error(fmt.Errorf("doctor on %s:\n%s", name, text))
		}
		agent, err := c.agent(name)
		c.Do(err)
		log, err := c.Shell("kubectl -n dupip logs " + agent)
		c.Do(err)
		if strings.Contains(log, "level=WARN") || strings.Contains(log, "level=ERROR") {
			c.Error(fmt.Errorf("an agent has a problem:\n%s", log))
		}
		c.rights(name)
	}
}

// rights compares what the kernel says of the agent's process with what the manifest asks for.
func (c *testCluster) rights(machine string) {
	c.Helper()
	// The memory limit is a file of cgroup 1 or 2.
	out, err := c.Machines[machine].Run(c.Context(), "sh", "-euc", `pid=$(pgrep -x dupip)
grep -E "^(CapEff|CapBnd|Seccomp):" /proc/$pid/status
awk '$5 == "/" { print "Root:", substr($6, 1, 2) }' /proc/$pid/mountinfo
cgroup=$(sed -n 's/^[0-9]*:\(memory\|\):\/*//p' /proc/$pid/cgroup | head -n 1)
echo Memory: $(cat /sys/fs/cgroup/memory/$cgroup/memory.limit_in_bytes /sys/fs/cgroup/$cgroup/memory.max 2>/dev/null)`)
	c.Do(err)
	// NET_BROADCAST, NET_ADMIN, NET_RAW, SYS_PTRACE and SYS_ADMIN (capability.h); a filter (seccomp(2)).
	want := "CapEff: 0000000000283800 CapBnd: 0000000000283800 Seccomp: 2 Root: ro Memory: 268435456"
	if got := strings.Join(strings.Fields(out), " "); got != want {
		c.Error(fmt.Errorf("the agent on %s has %q, want %q", machine, got, want))
	}
}

// secondRelease: its pods stay pending, because the ports are the nodes'.
func (c *testCluster) secondRelease() {
	out := c.run(`kubectl create namespace second
kubectl label namespace second pod-security.kubernetes.io/enforce=privileged
helm -n second install second deploy/chart
kubectl -n second wait --for=jsonpath='{.status.desiredNumberScheduled}'=2 --timeout=$PATIENCE ds/second-dupip
kubectl -n second wait --for=condition=PodScheduled=False --timeout=$PATIENCE pods --all
kubectl -n second get pods
kubectl -n second get pods -o jsonpath='{.items[*].status.conditions[*].message}'
helm -n second uninstall second
kubectl delete namespace second`)
	if strings.Count(out, "Pending") != len(c.Machines) || !strings.Contains(out, "didn't have free ports") {
		c.Error("the pods of a second release are not pending because of its ports")
	}
	c.members()
}

// upgrades: an open conflict keeps its id and its times on all these ways.
func (c *testCluster) upgrades() {
	ip := c.duplicate("node1", "old", "new", pod("new", "node1"))
	before := c.ownInState("node1", ip, "confirmed")
	for _, script := range []string{
		"helm -n dupip upgrade dupip deploy/chart --reuse-values --set securityContext.privileged=true --wait",
		"helm -n dupip rollback dupip --wait",
		`helm -n dupip uninstall dupip --wait
helm -n dupip install dupip deploy/chart --set cluster=prod --wait \
  --set image.repository=registry.example/dupip --set image.tag=0.2.0`,
	} {
		c.run(script)
		c.members()
		c.same("node1", before)
	}
	c.end(ip, c.Ordered(c.cli("node1"), ip).Judgement.Steps, lab.Failed, "old")
	if n := c.programs("node1"); n == 0 {
		c.Error("no program is attached: nothing is tested")
	}
	// Helm waits for the DaemonSet, not for its pods.
	c.run("helm -n dupip uninstall dupip --wait; kubectl -n dupip wait --for=delete --timeout=$PATIENCE pods -l app.kubernetes.io/name=dupip")
	const all = "jobs,leases,configmaps,secrets,serviceaccounts,services,roles,rolebindings,poddisruptionbudgets,statefulsets,daemonsets,pods"
	out := c.Kubectl("-n", "dupip", "get", all, "-o", "name")
	if left := strings.Join(strings.Fields(out), " "); left != "configmap/kube-root-ca.crt secret/dupip-gossip serviceaccount/default" {
		c.Error("uninstalled, and there are " + left)
	}
	for name, m := range c.Machines {
		out, err := m.Run(c.Context(), "sh", "-c", "ls -A /run/dupip; stat -c %a /run/dupip; ls -A /var/lib/dupip")
		c.Do(err)
		if n := c.programs(name); n > 0 || strings.Join(strings.Fields(out), " ") != "700 members.json state.json" {
			c.Error(fmt.Errorf("on %s there are %d programs, and what is left is %q", name, n, out))
		}
	}
}

// programs counts the tcx programs at the interfaces of a machine. The tests attach none.
func (c *testCluster) programs(machine string) (count int) {
	c.Helper()
	c.Do(c.Machines[machine].Exec(func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, l := range links {
			found, err := link.QueryPrograms(link.QueryOptions{Target: l.Attrs().Index, Attach: ebpf.AttachTCXIngress})
			if err != nil {
				return fmt.Errorf("query programs of %s: %w", l.Attrs().Name, err)
			}
			count += len(found.Programs)
		}
		return nil
	}))
	return count
}

// same fails unless a conflict of a machine is open with the id and the times that it had.
func (c *testCluster) same(machine string, before lab.Conflict) {
	c.Helper()
	after := c.ownInState(machine, before.IP, "confirmed")
	if after.ID != before.ID || !after.SuspectedAt.Equal(before.SuspectedAt) || !after.ConfirmedAt.Equal(before.ConfirmedAt) {
		c.Error(fmt.Errorf("the conflict was %+v and is %+v", before, after))
	}
}

// manifest: the installation without Helm.
func (c *testCluster) manifest() {
	text, err := os.ReadFile("../../deploy/dupip.yaml")
	c.Do(err)
	var script strings.Builder
	for line := range strings.Lines(string(text)) {
		if command, ok := strings.CutPrefix(line, "#   "); ok {
			script.WriteString(command)
		}
	}
	c.namespace = helm.Namespace
	c.run(script.String() + `sed 's|localhost/dupip:dev|registry.example/dupip:0.2.0|' deploy/dupip.yaml | kubectl apply -f -
kubectl -n kube-system rollout status ds/dupip --timeout=$PATIENCE`)
	c.members()
}
