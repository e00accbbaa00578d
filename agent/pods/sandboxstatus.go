package pods

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/detector"
)

const (
	maxName = 253 // RFC 1123 subdomains
	maxIPs  = 16  // of one sandbox; pods have one or two
)

// sandboxStatus is the part of a status that is used.
type sandboxStatus struct {
	pod         detector.Pod
	vm          detector.VM
	ips         []netip.Addr
	hostNetwork bool   // it has no netns of its own
	path        string // netns file, empty if unknown
	pid         int    // a process in the netns, 0 if unknown
	info        []byte // what the runtime says beyond the CRI, as JSON
}

// parse reads a status. It omits invalid names.
func parse(response *runtimeapi.PodSandboxStatusResponse) sandboxStatus {
	status := response.GetStatus()
	s := sandboxStatus{
		pod: podOf(status.GetMetadata().GetNamespace(), status.GetMetadata().GetName(), status.GetMetadata().GetUid()),
		vm:  vmOf(status.GetLabels()),
		ips: addresses(status.GetNetwork()), info: []byte(response.GetInfo()["info"]),
		hostNetwork: status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	var info struct { // as containerd and CRI-O have it; the CRI does not define it
		Pid         int
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
		// SandboxMetadata is containerd's. Since version 2 there is nothing else of a sandbox whose process did not start.
		SandboxMetadata struct {
			Metadata struct{ NetNSPath string }
		}
	}
	_ = json.Unmarshal(s.info, &info) // what is of another kind is left out
	s.pid, s.path = info.Pid, validPath(info.SandboxMetadata.Metadata.NetNSPath)
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			s.path = cmp.Or(validPath(ns.Path), s.path)
		}
	}
	return s
}

// validPath returns a path that may be one of a file, else nothing.
func validPath(path string) string {
	if !filepath.IsAbs(path) || len(path) >= unix.PathMax || strings.ContainsRune(path, 0) {
		return ""
	}
	return path
}

// podOf returns the pod's identity, empty if its name or namespace is invalid.
func podOf(namespace, name, uid string) detector.Pod {
	pod := detector.Pod{Namespace: namespace, Name: name, UID: uid}
	if pod.Name == "" || !validName(pod.Name) || !validName(pod.Namespace) {
		return detector.Pod{}
	}
	if !validName(pod.UID) {
		pod.UID = ""
	}
	return pod
}

// vmOf returns the virtual machine of a pod of KubeVirt, by the labels that virt-controller gives to it (api/core/v1/types.go). The first one
// has had the name of the VirtualMachineInstance since version 0.42, the last one always.
func vmOf(labels map[string]string) detector.VM {
	vm := detector.VM{UID: labels["kubevirt.io/created-by"]}
	if vm.UID == "" || !validName(vm.UID) {
		return detector.VM{}
	}
	for _, label := range []string{"vm.kubevirt.io/name", "kubevirt.io/domain"} {
		if name := labels[label]; vm.Name == "" && validName(name) {
			vm.Name = name
		}
	}
	return vm
}

// validName requires printable ASCII without spaces, for terminals, logs and labels.
func validName(s string) bool {
	return len(s) <= maxName && !strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' })
}

func addresses(network *runtimeapi.PodSandboxNetworkStatus) []netip.Addr {
	reported := append([]*runtimeapi.PodIP{{Ip: network.GetIp()}}, network.GetAdditionalIps()...)
	var ips []netip.Addr
	for _, one := range reported[:min(len(reported), maxIPs)] {
		if ip, err := netip.ParseAddr(one.GetIp()); err == nil && ip.Zone() == "" {
			ips = append(ips, ip.Unmap())
		}
	}
	return ips
}

// cookie returns the cookie of the netns of a sandbox.
func (s sandboxStatus) cookie(ready bool) (cookie uint64, err error) {
	err = errors.New("the runtime does not report a sandbox's netns")
	for _, path := range s.paths(ready) {
		if cookie, err = netns.CookieAt(path); err == nil {
			break
		}
	}
	return cookie, err
}

// paths returns where the netns may be. containerd reports /var/run, which is a link to /run on the host
// and missing in the agent's container. The process comes last, for a runtime with other mounts, and
// only while the sandbox runs: afterwards its id may be reused.
func (s sandboxStatus) paths(ready bool) (paths []string) {
	if s.path != "" {
		paths = append(paths, s.path)
	}
	if rest, ok := strings.CutPrefix(s.path, "/var/run/"); ok {
		paths = append(paths, "/run/"+rest)
	}
	if s.pid > 0 && ready {
		paths = append(paths, fmt.Sprintf("/proc/%d/ns/net", s.pid))
	}
	return paths
}
