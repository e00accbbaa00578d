package pods

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
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

// report is what is read from the status of a sandbox.
type report struct {
	pod detector.Pod
	ips []netip.Addr
	// hostNetwork says that it has no netns of its own.
	hostNetwork bool
	// path is the netns file and pid a process in it; either may be missing.
	path string
	pid  int
}

// read takes what is needed from a status. What is not fit to be shown is left out: a
// sandbox with such a name has none. The error says that no netns was told.
func read(answer *runtimeapi.PodSandboxStatusResponse) (report, error) {
	status := answer.GetStatus()
	var r report
	r.pod = podOf(status.GetMetadata())
	r.ips = addresses(status.GetNetwork())
	if status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == runtimeapi.NamespaceMode_NODE {
		r.hostNetwork = true
		return r, nil
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
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return r, errors.New("the runtime does not tell a sandbox's netns")
	}
	if info.Pid > 0 {
		r.pid = info.Pid
	}
	for _, ns := range info.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" && filepath.IsAbs(ns.Path) && len(ns.Path) < unix.PathMax && !strings.ContainsRune(ns.Path, 0) {
			r.path = ns.Path
		}
	}
	if r.path == "" && r.pid == 0 {
		return r, errors.New("the runtime does not tell a sandbox's netns")
	}
	return r, nil
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

// cookie looks for the netns of a sandbox. The process is asked only where the path fails,
// as where the runtime's mounts are not ours, and only while the sandbox runs: afterwards
// its id may be another's.
func (r report) cookie(ready bool) (uint64, error) {
	err := errors.New("the runtime does not tell a sandbox's netns")
	for _, path := range r.paths() {
		var cookie uint64
		if cookie, err = cookieAt(path); err == nil {
			return cookie, nil
		}
	}
	if r.pid != 0 && ready {
		return cookieAt(fmt.Sprintf("/proc/%d/ns/net", r.pid))
	}
	return 0, err
}

// paths are where the netns file may be. containerd says /var/run, which is a link to /run
// on the host and not there at all in a container that has little more than the agent.
func (r report) paths() []string {
	if r.path == "" {
		return nil
	}
	if rest, ok := strings.CutPrefix(r.path, "/var/run/"); ok {
		return []string{r.path, "/run/" + rest}
	}
	return []string{r.path}
}

// cookieAt returns the cookie of the netns at path, which may be anything: a file that is
// merely located (O_PATH, open(2)) neither blocks nor has side effects.
func cookieAt(path string) (uint64, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("finding netns %s: %w", path, err)
	}
	defer unix.Close(fd)
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return 0, fmt.Errorf("finding netns %s: %w", path, err)
	}
	if fs.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("finding netns %s: not a namespace", path)
	}
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return 0, fmt.Errorf("opening netns %s: %w", path, err)
	}
	defer file.Close()
	var cookie uint64
	err = netns.Do(file, func() (err error) {
		cookie, err = netns.Cookie()
		return err
	})
	return cookie, err
}
