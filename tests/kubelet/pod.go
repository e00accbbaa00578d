package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
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
	// dir has the pod's volumes and is removed with it.
	dir string
}

const (
	// It has a path of the node that is not mounted: the agent opens it below the root of process 1.
	socketEnv = "DUPIP_CRI_SOCKET"
	// mountedRun is where the runtime's folder is mounted if the agent does not see that root.
	mountedRun = "/run/containerd"
	// defaultGrace is the default of terminationGracePeriodSeconds.
	defaultGrace = 30
	// criticalScore is the oom_score_adj of pods that are critical to their node.
	criticalScore = -997
)

// run makes the sandbox, the volumes and the container, and starts it.
func (p *pod) run(ctx context.Context, spec *corev1.PodSpec) (*Agent, error) {
	if len(spec.Containers) != 1 {
		return nil, fmt.Errorf("it has %d containers; one is understood", len(spec.Containers))
	}
	if err := errors.Join(checkPod(spec), os.MkdirAll(p.dir, 0o755)); err != nil {
		return nil, err
	}
	volumes := make(map[string]string)
	for _, v := range spec.Volumes {
		if volumes[v.Name] != "" {
			return nil, fmt.Errorf("volume %s: two volumes have that name", v.Name)
		}
		path, err := p.volume(v)
		if err != nil {
			return nil, fmt.Errorf("volume %s: %w", v.Name, err)
		}
		volumes[v.Name] = path
	}
	grace := int64(defaultGrace)
	if s := spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	a := &Agent{kubelet: p.kubelet, pod: p, Node: p.kubelet.Runtime.Node, grace: time.Duration(grace) * time.Second}
	var err error
	if a.config, err = p.config(&spec.Containers[0], volumes, a); err != nil {
		return nil, fmt.Errorf("container %s: %w", spec.Containers[0].Name, err)
	}
	options, err := p.options(spec, a.config)
	if err != nil {
		return nil, err
	}
	if name := a.config.Image.Image; name != image.Name {
		return nil, fmt.Errorf("the image %s is not the one that is built, %s", name, image.Name)
	}
	if err := p.kubelet.prepare(ctx); err != nil {
		return nil, err
	}
	if a.Sandbox, err = p.kubelet.Runtime.RunPod(ctx, options); err != nil {
		return nil, err
	}
	p.kubelet.publish(p)
	return a, a.start(ctx)
}

// options are the sandbox's part of the pod's specification.
func (p *pod) options(spec *corev1.PodSpec, config *runtimeapi.ContainerConfig) (cri.PodOptions, error) {
	o := cri.PodOptions{
		Namespace: p.namespace, Name: p.name, UID: p.uid,
		HostNetwork: spec.HostNetwork, HostPID: spec.HostPID,
		Privileged: config.Linux.SecurityContext.Privileged,
	}
	switch token := spec.AutomountServiceAccountToken; {
	case !o.HostNetwork:
		return o, errors.New("only pods with hostNetwork are understood: probes, DNS and status.podIP are the node's")
	case token == nil || *token:
		return o, errors.New("there is no token to mount: automountServiceAccountToken has to be false")
	case spec.PriorityClassName != "system-node-critical":
		return o, fmt.Errorf("the priority class %q is not understood", spec.PriorityClassName)
	}
	config.Linux.Resources.OomScoreAdj = criticalScore
	switch spec.DNSPolicy {
	case corev1.DNSClusterFirstWithHostNet:
		o.DNS = dnsConfig(p.namespace)
	case corev1.DNSDefault, corev1.DNSClusterFirst: // in the node's netns they are the same
	default:
		return o, fmt.Errorf("the DNS policy %q is not understood", spec.DNSPolicy)
	}
	for k, v := range spec.NodeSelector {
		if k != "kubernetes.io/os" || v != "linux" {
			return o, fmt.Errorf("the node has no label %s=%s", k, v)
		}
	}
	return o, nil
}

// config is the runtime's part of a container's specification. Probes go to the agent.
func (p *pod) config(c *corev1.Container, volumes map[string]string, a *Agent) (*runtimeapi.ContainerConfig, error) {
	security, err := securityContext(c.SecurityContext)
	if err != nil {
		return nil, err
	}
	config := &runtimeapi.ContainerConfig{
		Metadata:   &runtimeapi.ContainerMetadata{Name: c.Name},
		Image:      &runtimeapi.ImageSpec{Image: c.Image},
		Command:    c.Command,
		Args:       c.Args,
		WorkingDir: c.WorkingDir,
		Linux:      &runtimeapi.LinuxContainerConfig{Resources: resources(c.Resources), SecurityContext: security},
	}
	if config.Envs, err = p.env(c.Env); err != nil {
		return nil, err
	}
	if !RootOfInit() {
		// The first one: the container's own root is below it, with all that is mounted by then.
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{
			HostPath: p.kubelet.Runtime.RunDir(), ContainerPath: mountedRun, Readonly: true, Propagation: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
		})
	}
	for _, m := range c.VolumeMounts {
		path, ok := volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("mount of volume %s: there is no such volume", m.Name)
		}
		mount := &runtimeapi.Mount{HostPath: path, ContainerPath: m.MountPath, Readonly: m.ReadOnly}
		if m.MountPropagation != nil {
			if mount.Propagation, ok = propagations[*m.MountPropagation]; !ok {
				return nil, fmt.Errorf("the propagation %s is not understood", *m.MountPropagation)
			}
		}
		config.Mounts = append(config.Mounts, mount)
	}
	// The files that a kubelet itself mounts: the hosts file and the termination log.
	for at, text := range map[string]string{"/etc/hosts": "127.0.0.1 localhost\n::1 localhost\n", "/dev/termination-log": ""} {
		path := filepath.Join(p.dir, filepath.Base(at))
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			return nil, err
		}
		config.Mounts = append(config.Mounts, &runtimeapi.Mount{HostPath: path, ContainerPath: at})
	}
	var startup, liveness, readiness error
	a.startup, startup = toProbe(c.StartupProbe, c.Ports)
	a.liveness, liveness = toProbe(c.LivenessProbe, c.Ports)
	a.readiness, readiness = toProbe(c.ReadinessProbe, c.Ports)
	return config, errors.Join(startup, liveness, readiness)
}

var propagations = map[corev1.MountPropagationMode]runtimeapi.MountPropagation{
	corev1.MountPropagationNone:            runtimeapi.MountPropagation_PROPAGATION_PRIVATE,
	corev1.MountPropagationHostToContainer: runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
	corev1.MountPropagationBidirectional:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
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
		if from := e.ValueFrom; from != nil {
			var known bool
			if e.Value, known = fields[from.FieldRef.FieldPath]; !known {
				return nil, fmt.Errorf("variable %s: the field %s is not understood", e.Name, from.FieldRef.FieldPath)
			}
		}
		for _, earlier := range envs {
			e.Value = strings.ReplaceAll(e.Value, "$("+earlier.Key+")", string(earlier.Value))
		}
		envs = append(envs, &runtimeapi.KeyValue{Key: e.Name, Value: []byte(e.Value)})
	}
	if !slices.ContainsFunc(envs, func(e *runtimeapi.KeyValue) bool { return e.Key == socketEnv }) {
		socket := p.kubelet.Runtime.Socket // not the machine's
		if !RootOfInit() {
			socket = filepath.Join(mountedRun, filepath.Base(socket))
		}
		envs = append(envs, &runtimeapi.KeyValue{Key: socketEnv, Value: []byte(socket)})
	}
	return envs, nil
}
