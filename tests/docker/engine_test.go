package docker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/dupip/dupip/tests/apt"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// containerdConfig has no CRI plugin and no other that needs programs or file systems that a test machine may lack.
const containerdConfig = `version = 2
root = %q
state = %q
disabled_plugins = [
  "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime",
  "io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri",
  "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs",
]

[grpc]
  address = %q
`

// engine is Docker, or Podman with Docker's API, on a node, with an image that runs until it is stopped.
type engine struct {
	*lab.T
	version string
	socket  string
	parent  string // cgroup of the containers
	client  http.Client
	daemon  *lab.Process
	restart func() *lab.Process // starts another daemon
}

// startEngine starts the Docker of one of Debian's suites.
func startEngine(t *lab.T, n *lab.Node, suite string) *engine {
	t.Helper()
	packages, err := apt.Unpacked(suite, "docker.io", "containerd")
	t.Do(err)
	dir, err := cri.Folder(t.Lab)
	t.Do(err)
	file := func(name string) string { return filepath.Join(dir, name) }
	t.Do(os.WriteFile(file("containerd.toml"),
		fmt.Appendf(nil, containerdConfig, file("root"), file("run"), file("containerd.sock")), 0o600))
	launch := func(program string, args ...string) *lab.Process {
		cmd := exec.Command(filepath.Join(packages, "usr", program), args...)
		// Each finds other programs of the packages, and the machine's runc.
		cmd.Env = append(os.Environ(), fmt.Sprintf("PATH=%[1]s/usr/bin:%[1]s/usr/sbin:%s", packages, os.Getenv("PATH")))
		p, err := n.Launch(cmd)
		t.Do(err)
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("log of %s:\n%s", program, p.Log())
			}
		})
		return p
	}
	launch("bin/containerd", "--config", file("containerd.toml"))
	// Docker makes the folder of its plugins, which no flag moves.
	if _, err := os.Stat("/run/docker"); errors.Is(err, fs.ErrNotExist) {
		t.Cleanup(func() { t.Do(os.RemoveAll("/run/docker")) })
	}
	e := &engine{T: t, socket: file("docker.sock"), parent: "/" + filepath.Base(dir)}
	e.restart = func() *lab.Process {
		return launch("sbin/dockerd", "--containerd", file("containerd.sock"), "--host", "unix://"+e.socket, "--config-file", os.DevNull,
			"--data-root", file("data"), "--exec-root", file("exec"), "--pidfile", file("pid"), "--storage-driver", "vfs",
			"--exec-opt", "native.cgroupdriver=cgroupfs", "--live-restore",
			"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--userland-proxy=false")
	}
	e.daemon = e.restart()
	e.begin(file("image.tar"), filepath.Base(dir))
	return e
}

// begin waits for the engine and gives it an image, whose process has this argument.
func (e *engine) begin(file, tag string) {
	e.Helper()
	e.client.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", e.socket)
	}}
	e.Cleanup(e.client.CloseIdleConnections)
	e.answers()
	e.Do(cri.WriteSandboxImage(file, tag))
	image, err := os.ReadFile(file)
	e.Do(err, e.call(http.MethodPost, "/images/load", image, nil))
}

// answers waits until the engine answers.
func (e *engine) answers() {
	e.Helper()
	var about struct{ Version string }
	e.Eventually("the engine", func() error { return e.call(http.MethodGet, "/version", nil, &about) })
	e.version = about.Version
}

// call calls the API, with an archive or a document.
func (e *engine) call(method, path string, body, answer any) error {
	kind := "application/json"
	data, isArchive := body.([]byte)
	if isArchive {
		kind = "application/x-tar"
	} else if body != nil {
		var err error
		if data, err = json.Marshal(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(e.Context(), method, "http://docker"+path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", kind)
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusBadRequest {
		err = errors.New(response.Status)
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", method, path, err, text)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}

// network makes a network on a bridge of this name.
func (e *engine) network(bridge string, subnet netip.Prefix) {
	e.Helper()
	e.Do(e.call(http.MethodPost, "/networks/create", map[string]any{
		"Name": bridge, "Driver": "bridge", "IPAM": map[string]any{"Config": []any{map[string]any{"Subnet": subnet.String()}}},
		"Options": map[string]string{"com.docker.network.bridge.name": bridge},
	}, nil))
}

// container is one that runs.
type container struct {
	name, id string
	pid      int
	ip       netip.Addr
}

// run starts a container in a network, or in the netns of another one.
func (e *engine) run(name, network string) container {
	e.Helper()
	var made struct{ ID string }
	e.Do(e.call(http.MethodPost, "/containers/create?name="+name, map[string]any{
		"Image": cri.SandboxImage, "HostConfig": map[string]any{"NetworkMode": network, "CgroupParent": e.parent, "SecurityOpt": []string{"seccomp=unconfined"}},
	}, &made))
	e.Do(e.act(made.ID, "start"))
	return e.inspect(made.ID, network)
}

// act does something with a container: start, restart, kill.
func (e *engine) act(id, what string) error {
	return e.call(http.MethodPost, "/containers/"+id+"/"+what, nil, nil)
}

// inspect returns a container by its name or id.
func (e *engine) inspect(name, network string) container {
	e.Helper()
	var is struct {
		ID, Name        string
		State           struct{ Pid int }
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress netip.Addr }
		}
	}
	e.Do(e.call(http.MethodGet, "/containers/"+name+"/json", nil, &is))
	return container{is.Name[1:], is.ID, is.State.Pid, is.NetworkSettings.Networks[network].IPAddress}
}
