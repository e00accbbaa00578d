package pods

import (
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
	// maxName is the longest name of Kubernetes (RFC 1123 subdomains).
	maxName = 253
	// maxIPs bounds the addresses taken from one sandbox; pods have one or two.
	maxIPs = 16
)

// sandboxStatus is what is read from the status of a sandbox.
type sandboxStatus struct {
	pod detector.Pod
	ips []netip.Addr
	// hostNetwork says that it has no netns of its own.
	hostNetwork bool
	// path is the netns file and pid a process in it; either may be missing.
	path string
	pid  int
}

// parse takes what is needed from a status. What is not fit to be shown is left out: a
// sandbox with such a name has none.
func parse(response *runtimeapi.PodSandboxStatusResponse) sandboxStatus {
	status := response.GetStatus()
	s := sandboxStatus{
		pod: podOf(status.GetMetadata()), ips: addresses(status.GetNetwork()),
		hostNetwork: status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE,
	}
	// What containerd and CRI-O put there; the CRI leaves it open.
	var info struct {
		Pid         int
		RuntimeSpec struct {
			Linux struct {
				Namespaces []struct{ Type, Path string }
			}
		}
	}
	if json.Unmarshal([]byte(response.GetInfo()["info"]), &info) != nil {
		return s
	}
	s.pid = info.Pid
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" && filepath.IsAbs(ns.Path) && len(ns.Path) < unix.PathMax && !strings.ContainsRune(ns.Path, 0) {
			s.path = ns.Path
		}
	}
	return s
}

// podOf returns the pod's identity, nothing if its name or namespace cannot be shown.
func podOf(m *runtimeapi.PodSandboxMetadata) detector.Pod {
	pod := detector.Pod{Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid()}
	if pod.Name == "" || !fit(pod.Name) || !fit(pod.Namespace) {
		return detector.Pod{}
	}
	if !fit(pod.UID) {
		pod.UID = ""
	}
	return pod
}

// fit says that a name is short and of printable ASCII without spaces, so that it can go
// to terminals, logs and labels.
func fit(s string) bool {
	if len(s) > maxName {
		return false
	}
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// printable cuts a text of the runtime and replaces what a terminal might take for more.
func printable(s string, most int) string {
	s = s[:min(len(s), most)]
	return strings.Map(func(c rune) rune {
		if c < ' ' || c > '~' {
			return '?'
		}
		return c
	}, s)
}

func addresses(network *runtimeapi.PodSandboxNetworkStatus) []netip.Addr {
	texts := []string{network.GetIp()}
	for _, ip := range network.GetAdditionalIps() {
		if len(texts) == maxIPs {
			break
		}
		texts = append(texts, ip.GetIp())
	}
	var ips []netip.Addr
	for _, text := range texts {
		if ip, err := netip.ParseAddr(text); err == nil && ip.Zone() == "" {
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

// paths are where the netns may be found. containerd reports /var/run, which is a link to /run
// on the host and not there at all in a container that has little more than the agent. The
// process comes last, for a runtime whose mounts are not ours, and only while the sandbox runs:
// afterwards its id may be another's.
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
