package cluster_test

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/tests/cri"
)

// lawful plays what happens in every cluster, and must not alarm.
func (c *testCluster) lawful() {
	c.Do(os.WriteFile(filepath.Join(c.Machines["node1"].StaticPods(), "static.yaml"), []byte(pod("static", "node1")[len("---\n"):]), 0o644))
	c.Apply(`apiVersion: apps/v1
kind: Deployment
metadata: {name: front, namespace: shop}
spec:
  replicas: 4
  selector: {matchLabels: {app: front}}
  template:
    metadata: {labels: {app: front}}
    spec:
` + podSpec("", "      ") + `
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, namespace: shop}
spec:
  completions: 6
  parallelism: 3
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: ` + cri.SandboxImage + `, args: [show, /proc/uptime]}]
` + strings.ReplaceAll(pod("host", "node2"), "spec:\n", "spec:\n  hostNetwork: true\n"))
	c.run(`kubectl -n shop rollout status deployment/front
kubectl -n shop rollout restart deployment/front
kubectl -n shop rollout status deployment/front
kubectl -n shop rollout restart deployment/front
kubectl -n shop wait --for=condition=complete --timeout=$PATIENCE job/once
kubectl -n shop rollout status deployment/front`)
	c.running("host", "static-node1")
	c.reuse()
	c.Do(os.Remove(filepath.Join(c.Machines["node1"].StaticPods(), "static.yaml")))
	c.run("kubectl -n shop wait --for=delete --timeout=$PATIENCE pod/static-node1")
	c.quiet("node1", c.known...)
}

// reuse gives the address of a pod that has completed to another one.
func (c *testCluster) reuse() {
	c.Helper()
	var pods corev1.PodList
	c.Do(c.Get(&pods, "api/v1/namespaces/shop/pods?labelSelector=job-name=once"))
	completed := pods.Items[0]
	ip, machine := netip.MustParseAddr(completed.Status.PodIP), completed.Spec.NodeName
	dir := c.Machines[machine].Reserved()
	c.eventually("the end of the completed pod's sandbox", func() error {
		if _, err := os.Stat(filepath.Join(dir, ip.String())); !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("%v is reserved: %w", ip, err)
		}
		return nil
	})
	c.place("heir", machine, ip)
}
