package kubelet

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/image"
)

// pod is the DaemonSet's pod on one node.
type pod struct {
	kubelet              *Kubelet
	namespace, name, uid string
	labels               map[string]string
	nodeName             string
	// dir is for what goes with the pod.
	dir string
}

const (
	// defaultGrace is the time a pod has to end when its manifest does not say.
	defaultGrace = 30 * time.Second
	// criticalScore is the oom_score_adj of pods that are critical to their node.
	criticalScore = -997
)

// run makes the sandbox, the volumes and the container, and starts it.
func (p *pod) run(ctx context.Context, spec *corev1.PodSpec) (*Agent, error) {
	if len(spec.Containers) != 1 {
		return nil, fmt.Errorf("it has %d containers; one is understood", len(spec.Containers))
	}
	c := take(&spec.Containers)[0]
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		return nil, err
	}
	volumes := make(map[string]string)
	for _, v := range take(&spec.Volumes) {
		if volumes[v.Name] != "" {
			return nil, fmt.Errorf("volume %s: %w", v.Name, errTwice)
		}
		path, err := p.volume(v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		volumes[v.Name] = path
	}
	a := &Agent{kubelet: p.kubelet, pod: p, Node: p.kubelet.Runtime.Node, grace: defaultGrace}
	config, err := p.config(&c, volumes, a)
	if err != nil {
		return nil, err
	}
	options, err := p.options(spec, config)
	if err != nil {
		return nil, err
	}
	if s := take(&spec.TerminationGracePeriodSeconds); s != nil {
		a.grace = time.Duration(*s) * time.Second
	}
	if err := nothingLeft("the pod", *spec); err != nil {
		return nil, err
	}
	if config.Image.Image != image.Name {
		return nil, fmt.Errorf("the image %s is not the one that is built, %s", config.Image.Image, image.Name)
	}
	a.config = config
	if err := p.kubelet.prepare(ctx); err != nil {
		return nil, err
	}
	if a.Sandbox, err = p.kubelet.Runtime.RunPod(ctx, options); err != nil {
		return nil, err
	}
	p.kubelet.publish(p)
	return a, a.start(ctx)
}

// options are what of the pod's specification is the sandbox's.
func (p *pod) options(spec *corev1.PodSpec, config *runtimeapi.ContainerConfig) (cri.PodOptions, error) {
	o := cri.PodOptions{
		Namespace: p.namespace, Name: p.name, UID: p.uid,
		HostNetwork: take(&spec.HostNetwork), HostPID: take(&spec.HostPID),
		Privileged: config.Linux.SecurityContext.Privileged,
	}
	if !o.HostNetwork {
		return o, fmt.Errorf("only pods with hostNetwork are understood: probes, DNS and status.podIP are the node's")
	}
	if token := take(&spec.AutomountServiceAccountToken); token == nil || *token {
		return o, fmt.Errorf("there is no token to mount: automountServiceAccountToken has to be false")
	}
	switch class := take(&spec.PriorityClassName); class {
	case "system-node-critical":
		config.Linux.Resources.OomScoreAdj = criticalScore
	default:
		return o, fmt.Errorf("the priority class %q is not understood", class)
	}
	switch policy := take(&spec.DNSPolicy); policy {
	case corev1.DNSClusterFirstWithHostNet:
		o.DNS = dnsConfig(p.namespace)
	case corev1.DNSDefault, corev1.DNSClusterFirst: // in the node's netns they are the same
	default:
		return o, fmt.Errorf("the DNS policy %q is not understood", policy)
	}
	// It is on this node already: the scheduler's business, as far as it allows that.
	take(&spec.NodeName)
	for k, v := range take(&spec.NodeSelector) {
		if k != "kubernetes.io/os" || v != "linux" {
			return o, fmt.Errorf("the node has no label %s=%s", k, v)
		}
	}
	take(&spec.Tolerations)
	take(&spec.ServiceAccountName)
	return o, nil
}

// config is what of a container's specification is the runtime's. Probes go to the agent.
func (p *pod) config(c *corev1.Container, volumes map[string]string, a *Agent) (*runtimeapi.ContainerConfig, error) {
	config := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: take(&c.Name)},
		Image:      &runtimeapi.ImageSpec{Image: take(&c.Image)},
		Command:    take(&c.Command),
		Args:       take(&c.Args),
		WorkingDir: take(&c.WorkingDir),
		Linux:      &runtimeapi.LinuxContainerConfig{},
	}
	take(&c.ImagePullPolicy)
	var err error
	if config.Envs, err = p.env(take(&c.Env)); err != nil {
		return nil, err
	}
	if config.Linux.Resources, err = resources(take(&c.Resources)); err != nil {
		return nil, err
	}
	if config.Linux.SecurityContext, err = securityContext(take(&c.SecurityContext)); err != nil {
		return nil, err
	}
	for _, m := range take(&c.VolumeMounts) {
		mount, err := toMount(m, volumes)
		if err != nil {
			return nil, fmt.Errorf("mount of volume %s: %w", m.Name, err)
		}
		config.Mounts = append(config.Mounts, mount)
	}
	hosts, err := p.hosts()
	if err != nil {
		return nil, err
	}
	config.Mounts = append(config.Mounts, hosts...)
	ports := take(&c.Ports)
	for _, probe := range []struct {
		from *corev1.Probe
		to   *probe
	}{{take(&c.StartupProbe), &a.startup}, {take(&c.LivenessProbe), &a.liveness}, {take(&c.ReadinessProbe), &a.readiness}} {
		if *probe.to, err = toProbe(probe.from, ports); err != nil {
			return nil, err
		}
	}
	return config, nothingLeft("container "+config.Metadata.Name, *c)
}

// env resolves the variables, after those of the API server's service.
func (p *pod) env(list []corev1.EnvVar) ([]*runtimeapi.KeyValue, error) {
	envs := []*runtimeapi.KeyValue{
		{Key: "KUBERNETES_SERVICE_HOST", Value: []byte("10.96.0.1")},
		{Key: "KUBERNETES_SERVICE_PORT", Value: []byte("443")},
		{Key: "KUBERNETES_SERVICE_PORT_HTTPS", Value: []byte("443")},
		{Key: "KUBERNETES_PORT", Value: []byte("tcp://10.96.0.1:443")},
	}
	host := p.kubelet.Runtime.Node.Uplink().String()
	fields := map[string]string{
		"spec.nodeName": p.nodeName, "status.hostIP": host, "status.podIP": host,
		"metadata.name": p.name, "metadata.namespace": p.namespace, "metadata.uid": p.uid,
		"spec.serviceAccountName": p.kubelet.manifest.account.Name,
	}
	for k, v := range p.labels {
		fields["metadata.labels['"+k+"']"] = v
	}
	for _, e := range list {
		value := e.Value
		if from := e.ValueFrom; from != nil {
			if from.FieldRef == nil {
				return nil, fmt.Errorf("variable %s: only fieldRef is understood", e.Name)
			}
			var known bool
			if value, known = fields[from.FieldRef.FieldPath]; !known {
				return nil, fmt.Errorf("variable %s: the field %s is not understood", e.Name, from.FieldRef.FieldPath)
			}
		}
		envs = append(envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(value)})
	}
	return envs, nil
}

func toMount(m corev1.VolumeMount, volumes map[string]string) (*runtimeapi.Mount, error) {
	path, ok := volumes[take(&m.Name)]
	if !ok {
		return nil, fmt.Errorf("there is no such volume")
	}
	mount := &runtimeapi.Mount{HostPath: path, ContainerPath: take(&m.MountPath), Readonly: take(&m.ReadOnly)}
	if mode := take(&m.MountPropagation); mode != nil {
		switch *mode {
		case corev1.MountPropagationNone:
		case corev1.MountPropagationHostToContainer:
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER
		case corev1.MountPropagationBidirectional:
			mount.Propagation = runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL
		default:
			return nil, fmt.Errorf("the propagation %s is not understood", *mode)
		}
	}
	return mount, nothingLeft("the mount", m)
}

// hosts are the files that a kubelet itself mounts: the names that a node knows, and where
// a container may leave its last words.
func (p *pod) hosts() ([]*runtimeapi.Mount, error) {
	var mounts []*runtimeapi.Mount
	for _, f := range []struct{ name, at, text string }{
		{"etc-hosts", "/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n"},
		{"termination-log", "/dev/termination-log", ""},
	} {
		path := filepath.Join(p.dir, f.name)
		if err := os.WriteFile(path, []byte(f.text), 0o644); err != nil {
			return nil, err
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: path, ContainerPath: f.at})
	}
	return mounts, nil
}

// portOf is the number of a port of a container by its name.
func portOf(name string, ports []corev1.ContainerPort) (int32, error) {
	i := slices.IndexFunc(ports, func(p corev1.ContainerPort) bool { return p.Name == name })
	if i < 0 {
		return 0, fmt.Errorf("there is no port %s", name)
	}
	return ports[i].ContainerPort, nil
}
