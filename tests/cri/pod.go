package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

// callTimeout bounds each call: a plugin may wait ten seconds for an address, and a container has
// thirty to end.
const callTimeout = time.Minute

// PodOptions name a pod as the API server does.
type PodOptions struct {
	Namespace, Name, UID string
	// Attempt distinguishes the sandboxes of one pod.
	Attempt uint32
	// HostNetwork is a pod in the node's own netns.
	HostNetwork bool
	// HostPID is one that sees the processes of the node.
	HostPID bool
	// Privileged is one that may have privileged containers.
	Privileged bool
	// Labels and Annotations are those that a kubelet passes on.
	Labels, Annotations map[string]string
	// Sysctls are set in the sandbox, which does not start if one of them does not exist.
	Sysctls map[string]string
	// DNS is what its containers find in /etc/resolv.conf; nil is what the machine has.
	DNS *runtimeapi.DNSConfig
}

// namespaces are those that a pod's sandbox and all its containers have.
func (o PodOptions) namespaces() *runtimeapi.NamespaceOption {
	n := &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER}
	if o.HostNetwork {
		n.Network = runtimeapi.NamespaceMode_NODE
	}
	if o.HostPID {
		n.Pid = runtimeapi.NamespaceMode_NODE
	}
	return n
}

// Pod is a pod sandbox.
type Pod struct {
	PodOptions
	ID string
	// Netns is the path of its netns, "" with HostNetwork.
	Netns string
	IPs   []netip.Addr
	// Called and Returned are when RunPodSandbox was called and when it returned.
	Called, Returned time.Time

	config *runtimeapi.PodSandboxConfig
}

// NetnsName is the file name of the netns.
func (p *Pod) NetnsName() string { return filepath.Base(p.Netns) }

// failed is an error of a call about the pod, or nil.
func (p *Pod) failed(what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s of pod %s/%s: %w", what, p.Namespace, p.Name, err)
}

// RunPod makes a pod sandbox and returns its status.
func (r *Runtime) RunPod(ctx context.Context, o PodOptions) (*Pod, error) {
	p := &Pod{PodOptions: o, config: &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Namespace: o.Namespace, Name: o.Name, Uid: o.UID, Attempt: o.Attempt},
		Labels:       o.Labels,
		Annotations:  o.Annotations,
		LogDirectory: r.logs(),
		DnsConfig:    o.DNS,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    "/" + r.tag,
			Sysctls:         o.Sysctls,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: o.namespaces(), Privileged: o.Privileged},
		},
	}}
	if !o.HostNetwork {
		p.config.Hostname = o.Name
	}
	if err := r.noteBootID(); err != nil {
		return nil, err
	}
	p.Called = time.Now()
	run, err := r.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: p.config})
	p.Returned = time.Now()
	if err != nil {
		return nil, p.failed("run the sandbox", err)
	}
	p.ID = run.PodSandboxId
	status, info, err := r.describe(ctx, p)
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			p.Netns = ns.Path
		}
	}
	texts := []string{status.GetNetwork().GetIp()}
	for _, ip := range status.GetNetwork().GetAdditionalIps() {
		texts = append(texts, ip.GetIp())
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			p.IPs = append(p.IPs, ip)
		}
	}
	return p, err
}

// podInfo is the verbose part of containerd's pod status.
type podInfo struct {
	PID         int
	RuntimeSpec struct {
		Linux struct {
			Namespaces []struct{ Type, Path string }
		}
	}
}

// describe returns the status of a pod.
func (r *Runtime) describe(ctx context.Context, p *Pod) (status *runtimeapi.PodSandboxStatus, info podInfo, err error) {
	answer, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	if err == nil {
		err = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info)
	}
	return answer.GetStatus(), info, p.failed("get the status of the sandbox", err)
}

// KillPod kills only the process that holds a sandbox. It returns when the runtime has noticed.
func (r *Runtime) KillPod(ctx context.Context, p *Pod) error {
	_, info, err := r.describe(ctx, p)
	switch {
	case err != nil:
		return err
	case info.PID <= 1:
		return fmt.Errorf("pod %s/%s has no process", p.Namespace, p.Name)
	}
	if err := unix.Kill(info.PID, unix.SIGKILL); err != nil {
		return p.failed("kill the process", err)
	}
	return lab.Poll(ctx, callTimeout, func() error {
		status, _, err := r.describe(ctx, p)
		if err == nil && status.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
			err = fmt.Errorf("pod %s/%s is ready without a process", p.Namespace, p.Name)
		}
		return err
	})
}

// StopPod ends a pod; its sandbox stays, not ready.
func (r *Runtime) StopPod(ctx context.Context, p *Pod) error {
	_, err := r.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID})
	return p.failed("stop the sandbox", err)
}

// RemovePod removes a pod, and stops it where it runs.
func (r *Runtime) RemovePod(ctx context.Context, p *Pod) error {
	if err := r.StopPod(ctx, p); err != nil {
		return err
	}
	_, err := r.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID})
	return p.failed("remove the sandbox", err)
}
