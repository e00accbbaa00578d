package kubelet

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/image"
)

// Kubelet runs the pod of a DaemonSet on one node. Its methods belong to one goroutine.
type Kubelet struct {
	// Runtime is the container runtime of the node.
	Runtime *cri.Runtime
	// HostPaths say where the paths of hostPath volumes are: all nodes of a lab share one
	// file system. A path that is not there is an error. A test may add some.
	HostPaths map[string]string

	manifest *manifest
	cluster  *cluster
	// imported: the runtime has the image; serves: the node has a DNS server.
	imported bool
	serves   bool
	objects  map[objectKey]map[string]string
	volumes  []objectVolume
}

// New prepares the DaemonSet of a manifest for the node of a runtime, which has been
// started or will be.
func New(r *cri.Runtime, manifest string) (*Kubelet, error) {
	m, err := readManifest(manifest)
	if err != nil {
		return nil, err
	}
	k := &Kubelet{
		Runtime: r,
		HostPaths: map[string]string{
			"/run/containerd": r.RunDir(),
			// The names of all nodes' namespaces are in one folder, as CNI has it.
			"/run/netns":     "/run/netns",
			"/var/lib/dupip": filepath.Join(r.Dir(), "host", "var", "lib", "dupip"),
		},
		manifest: m,
		cluster:  clusterOf(r.Node.Lab()),
		objects:  make(map[objectKey]map[string]string),
	}
	for _, c := range m.configs {
		k.objects[objectKey{configMap, c.Name}] = c.Data
	}
	return k, nil
}

// Run makes the DaemonSet's pod on the node, with some changes, and starts its container.
// It does not wait; see [Agent.WaitReady]. The lab stops the agent.
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
		name: k.manifest.set.Name + "-" + lower(5), uid: uid(), nodeName: nodeName,
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

// archive is the image as an OCI archive, built at the first call.
var archive = sync.OnceValues(func() ([]byte, error) {
	dir, err := os.MkdirTemp("", "dupip-kubelet-image-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	path, err := image.Build(context.Background(), dir)
	if err != nil {
		return nil, err
	}
	return os.ReadFile(path)
})

// prepare gives the runtime the image and the node its DNS server, once.
func (k *Kubelet) prepare(ctx context.Context) error {
	if !k.serves {
		if err := k.cluster.serveDNS(k.Runtime.Node); err != nil {
			return err
		}
		k.serves = true
	}
	if k.imported {
		return nil
	}
	data, err := archive()
	if err != nil {
		return err
	}
	path := filepath.Join(k.Runtime.Dir(), "dupip.tar")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return err
	}
	defer os.Remove(path)
	if err := k.Runtime.Import(ctx, path, image.Name); err != nil {
		return err
	}
	k.imported = true
	return nil
}

// publish puts a pod behind the name of the Service.
func (k *Kubelet) publish(p *pod) {
	s := k.manifest.service
	k.cluster.publish(fmt.Sprintf("%s.%s.svc.%s.", s.Name, s.Namespace, domain), p, k.Runtime.Node.Uplink())
}

// hostPath is where a path of the node is.
func (k *Kubelet) hostPath(path string) (string, error) {
	if here := k.HostPaths[path]; here != "" {
		return here, nil
	}
	return "", fmt.Errorf("where the host's %s is in the lab is not said: add it to HostPaths", path)
}

func uid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

// lower is n random letters and digits, as the API server makes them for names.
func lower(n int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	b := make([]byte, n)
	_, _ = rand.Read(b)
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return string(b)
}

var errTwice = errors.New("two volumes have that name")
