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

// callTimeout bounds each call: a plugin may wait ten seconds for an address.
const callTimeout = 30 * time.Second

// PodOptions name a pod as the API server does.
type PodOptions struct {
	Namespace, Name, UID string
	// Attempt tells the sandboxes of one pod apart.
	Attempt uint32
	// HostNetwork is a pod in the node's own netns.
	HostNetwork bool
	// HostPID is one that sees the processes of the node.
	HostPID bool
	// Privileged is one that may have privileged containers.
	Privileged bool
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

// NetnsName is the file name of the netns, which people know it by.
func (p *Pod) NetnsName() string { return filepath.Base(p.Netns) }

// RunPod makes a pod sandbox and returns what the runtime says of it.
func (r *Runtime) RunPod(ctx context.Context, o PodOptions) (*Pod, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Namespace: o.Namespace, Name: o.Name, Uid: o.UID, Attempt: o.Attempt},
		LogDirectory: r.logs(),
		DnsConfig:    o.DNS,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent:    "/" + r.tag,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: o.namespaces(), Privileged: o.Privileged},
		},
	}
	if !o.HostNetwork {
		config.Hostname = o.Name
	}
	if err := r.noteBootID(); err != nil {
		return nil, err
	}
	called := time.Now()
	run, err := r.client.RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	returned := time.Now()
	if err != nil {
		return nil, fmt.Errorf("run pod %s/%s: %w", o.Namespace, o.Name, err)
	}
	p := &Pod{PodOptions: o, ID: run.PodSandboxId, Called: called, Returned: returned, config: config}
	return p, r.describe(ctx, p)
}

// describe asks for the netns and the addresses of a pod.
func (r *Runtime) describe(ctx context.Context, p *Pod) error {
	status, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
	if err != nil {
		return fmt.Errorf("ask for pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	var info struct {
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if err := json.Unmarshal([]byte(status.GetInfo()["info"]), &info); err != nil {
		return fmt.Errorf("ask for pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			p.Netns = ns.Path
		}
	}
	network := status.GetStatus().GetNetwork()
	texts := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		texts = append(texts, ip.GetIp())
	}
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil {
			p.IPs = append(p.IPs, ip)
		}
	}
	return nil
}

// KillPod kills the process that keeps a sandbox, and nothing else goes. It returns when the
// runtime has noticed.
func (r *Runtime) KillPod(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	ask := func() (pid int, state runtimeapi.PodSandboxState, err error) {
		status, err := r.client.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: p.ID, Verbose: true})
		var info struct{ Pid int }
		if err == nil {
			err = json.Unmarshal([]byte(status.GetInfo()["info"]), &info)
		}
		return info.Pid, status.GetStatus().GetState(), err
	}
	pid, _, err := ask()
	switch {
	case err != nil:
		return fmt.Errorf("ask for pod %s/%s: %w", p.Namespace, p.Name, err)
	case pid <= 1:
		return fmt.Errorf("pod %s/%s has no process", p.Namespace, p.Name)
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		return fmt.Errorf("kill pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return lab.Poll(ctx, callTimeout, func() error {
		_, state, err := ask()
		if err == nil && state == runtimeapi.PodSandboxState_SANDBOX_READY {
			err = fmt.Errorf("pod %s/%s is ready without a process", p.Namespace, p.Name)
		}
		return err
	})
}

// StopPod ends a pod; its sandbox stays, not ready.
func (r *Runtime) StopPod(ctx context.Context, p *Pod) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.client.StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: p.ID}); err != nil {
		return fmt.Errorf("stop pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}

// RemovePod removes a pod, and stops it where it runs.
func (r *Runtime) RemovePod(ctx context.Context, p *Pod) error {
	if err := r.StopPod(ctx, p); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.client.RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: p.ID}); err != nil {
		return fmt.Errorf("remove pod %s/%s: %w", p.Namespace, p.Name, err)
	}
	return nil
}
