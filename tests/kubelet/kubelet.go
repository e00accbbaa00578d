package kubelet

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/image"
	"github.com/dupip/dupip/tests/lab"
)

// Kubelet runs the pod of a DaemonSet on one node. Its methods belong to one goroutine.
type Kubelet struct {
	// Runtime is the container runtime of the node.
	Runtime *cri.Runtime
	// HostPaths are where the paths of hostPath volumes are, because all nodes of a lab share one file system. An unknown path is an error.
	// A test may add some.
	HostPaths map[string]string

	manifest *manifest
	cluster  *cluster
	// prepared: the runtime has the image, and the node has a DNS server.
	prepared bool
	objects  map[objectKey]map[string]string
	volumes  []objectVolume
}

// New prepares the DaemonSet of a manifest for the node of a runtime.
func New(r *cri.Runtime, manifest string) (*Kubelet, error) {
	m, err := readManifest(manifest)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		Runtime: r,
		HostPaths: map[string]string{
			// The names of all nodes' namespaces are in one folder, as CNI has it.
			"/run/netns":     "/run/netns",
			"/var/lib/dupip": filepath.Join(r.Dir(), "host", "var", "lib", "dupip"),
			"/run/dupip":     filepath.Join(r.Dir(), "host", "run", "dupip"),
		},
		manifest: m,
		cluster:  clusterOf(r.Node.Lab()),
		objects:  make(map[objectKey]map[string]string),
	}
	// What the manifest's first comment creates; all nodes of a lab are one cluster.
	k.objects[objectKey{secret, "dupip-gossip"}] = map[string]string{"gossip.key": r.Node.Lab().Key()}
	for _, c := range m.configs {
		k.objects[objectKey{configMap, c.Name}] = c.Data
	}
	return k, nil
}

// RootOfInit reports whether this machine lets root see the file system of process 1. Where it does not, the agent
// reads the node's files in its own file system, if they are there.
func RootOfInit() bool {
	_, err := os.Stat(books.HostRoot + "/")
	return err == nil
}

// Change is what a test changes in the manifest's pod. It may change anything; the pod has one
// container.
type Change func(*corev1.PodSpec) error

// Run makes the DaemonSet's pod on the node, with changes, and starts its container. [Agent.WaitReady]
// waits for it. The lab stops the agent.
func (k *Kubelet) Run(ctx context.Context, nodeName string, changes ...Change) (*Agent, error) {
	spec := k.manifest.set.Spec.Template.Spec.DeepCopy()
	for _, change := range changes {
		if err := change(spec); err != nil {
			return nil, fmt.Errorf("change the manifest: %w", err)
		}
	}
	spec.NodeName = nodeName
	pod := &pod{
		kubelet: k, namespace: k.manifest.set.Namespace, labels: k.manifest.set.Spec.Template.Labels,
		// As a DaemonSet's controller names them.
		name: k.manifest.set.Name + "-" + strings.ToLower(rand.Text()[:5]), uid: lab.NewUUID(), nodeName: nodeName,
	}
	// The path of the socket must stay short.
	pod.dir = filepath.Join(k.Runtime.Dir(), "pods", pod.uid)
	a, err := pod.run(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("run pod %s: %w", pod.name, err)
	}
	k.Runtime.Node.Lab().OnClose(a.close)
	return a, nil
}

// archive is the path of the image as an OCI archive, built at the first call.
var archive = sync.OnceValues(func() (string, error) {
	dir, err := lab.TempDir()
	if err != nil {
		return "", err
	}
	return image.Build(context.Background(), dir)
})

// prepare imports the image and starts the node's DNS server, once.
func (k *Kubelet) prepare(ctx context.Context) error {
	if k.prepared {
		return nil
	}
	if err := k.cluster.serveDNS(k.Runtime.Node); err != nil {
		return err
	}
	path, err := archive()
	if err != nil {
		return err
	}
	k.prepared = true
	return k.Runtime.Import(ctx, path, image.Name)
}

// publish adds a pod to the Service.
func (k *Kubelet) publish(p *pod) {
	s := k.manifest.service
	k.cluster.publish(fmt.Sprintf("%s.%s.svc.%s.", s.Name, s.Namespace, domain), p, k.Runtime.Node.Uplink())
}
