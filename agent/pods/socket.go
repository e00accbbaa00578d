package pods

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// DefaultSockets are the paths that are tried in this order. A distribution's own socket
// says more than containerd's, which is also where Docker runs.
var DefaultSockets = []string{
	"/run/k3s/containerd/containerd.sock", // k3s and RKE2
	"/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
	"/run/crio/crio.sock",
	"/run/containerd/containerd.sock",
	"/run/cri-dockerd.sock",
}

// maxSocket is the longest path that the kernel takes (sun_path, unix(7)).
const maxSocket = 107

// parseSocket returns the paths to try, none if nobody is to be asked.
func parseSocket(text string) ([]string, error) {
	switch text {
	case "":
		return DefaultSockets, nil
	case "none", "off":
		return nil, nil
	}
	path := strings.TrimPrefix(text, "unix://")
	switch {
	case strings.Contains(path, "://"):
		return nil, fmt.Errorf("CRI socket %q: must be a Unix socket", text)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("CRI socket %q: must be an absolute path, or none", text)
	case len(path) > maxSocket:
		return nil, fmt.Errorf("CRI socket %q: longer than %d bytes", text, maxSocket)
	case strings.ContainsRune(path, 0):
		return nil, errors.New("CRI socket: has a zero byte in its path")
	}
	return []string{path}, nil
}
