package cluster

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

//go:embed machine
var files embed.FS

// readyTimeout is how long a node may take to become ready. When the API server has been away, kubelet and controllers wait up to a
// minute before they connect to it again (NewReflectorWithOptions, k8s.io/client-go/tools/cache/reflector.go).
const readyTimeout = 3 * time.Minute

// Machine is a node of the lab in namespaces of its own (mount, PID, UTS, IPC), with a disk of its own for what containerd,
// kubelet and CNI write. Its methods belong to one goroutine.
type Machine struct {
	*lab.Node
	// Name is the name of the Kubernetes node, and PodCIDR the range of its pods.
	Name    string
	PodCIDR netip.Prefix

	cluster *Cluster
	dir     string
	// init is process 1 of the machine. All others end with it.
	init *lab.Process
}

// Start boots the machine: containerd, and a kubelet that registers the node. Its pods of before are gone; the disk is as it was.
func (m *Machine) Start() error {
	if err := errors.Join(m.Reboot(), m.write()); err != nil {
		return fmt.Errorf("set %s up: %w", m.Name, err)
	}
	kubernetes, err := Program()
	if err != nil {
		return err
	}
	script, err := files.ReadFile("machine/init.sh")
	if err != nil {
		return err
	}
	cmd := exec.Command("sh", "-c", string(script), "init")
	cmd.Env = append(os.Environ(), seldomGC, "NAME="+m.Name, "DIR="+m.dir, "CGROUP="+m.cgroup(), "BOOT_ID="+m.BootIDFile(), "ADDRESS="+m.Uplink().String(),
		"IMAGES="+m.cluster.images(), "KUBERNETES="+kubernetes)
	cmd.SysProcAttr = &unix.SysProcAttr{Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC, Unshareflags: unix.CLONE_NEWNS}
	m.init, err = m.Launch(cmd)
	if err == nil {
		m.cluster.OnClose(m.Kill) // a process 1 that handles no SIGTERM does not get it
	}
	return err
}

// write makes the disk, unless it is there, and writes what the machine's programs read.
func (m *Machine) write() error {
	for _, folder := range []string{"lib/cni", "log", "etc/cni/net.d", "etc/kubernetes/manifests", "etc.work"} {
		if err := os.MkdirAll(filepath.Join(m.dir, folder), 0o755); err != nil {
			return err
		}
	}
	if err := m.linkPlugins(); err != nil {
		return err
	}
	values := map[string]any{
		"Dir": m.dir, "Plugins": m.plugins(), "Pause": cri.SandboxImage, "Cgroup": m.cgroup(), "PodCIDR": m.PodCIDR,
		"DNS": m.cluster.control.Uplink(), "CA": m.cluster.pki.path("ca", "crt"),
	}
	config := filepath.Join(m.dir, "kubelet.conf")
	if err := os.Remove(config); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	errs := []error{
		os.WriteFile(filepath.Join(m.dir, "resolv.conf"), fmt.Appendf(nil, "nameserver %v\n", m.cluster.control.Uplink()), 0o644),
		os.Symlink(m.cluster.pki.path(m.Name, "conf"), config),
		cri.WriteBaseSpec(filepath.Join(m.dir, "spec.json"), "/run/boot/id"),
		os.WriteFile(filepath.Join(m.dir, "etc/machine-id"), []byte(strings.ReplaceAll(lab.NewUUID(), "-", "")+"\n"), 0o444),
	}
	for from, to := range map[string]string{"containerd.toml": "", "kubelet.yaml": "", "cni.conflist": "etc/cni/net.d/10-pods.conflist"} {
		text, err := template.ParseFS(files, "machine/"+from)
		if err != nil {
			return err
		}
		var out strings.Builder
		errs = append(errs, text.Execute(&out, values))
		if to == "" {
			to = from
		}
		errs = append(errs, os.WriteFile(filepath.Join(m.dir, to), []byte(out.String()), 0o644))
	}
	return errors.Join(errs...)
}

// plugins is the folder with the machine's CNI plugins.
func (m *Machine) plugins() string { return filepath.Join(m.dir, "plugins") }

// linkPlugins makes that folder, unless it is there. The IPAM of [Calico] is among them, and Azure's.
func (m *Machine) linkPlugins() error {
	dir, err := lab.PluginDir()
	if err != nil {
		return err
	}
	all, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	errs := []error{os.MkdirAll(m.plugins(), 0o755)}
	link := func(from, to string) {
		if err := os.Symlink(filepath.Join(dir, from), filepath.Join(m.plugins(), to)); !errors.Is(err, fs.ErrExist) {
			errs = append(errs, err)
		}
	}
	for _, plugin := range all {
		link(plugin.Name(), plugin.Name())
	}
	link("host-local", calicoIPAM)
	script, err := files.ReadFile("machine/" + AzureIPAM + ".sh")
	return errors.Join(append(errs, err, os.WriteFile(filepath.Join(m.plugins(), AzureIPAM), script, 0o755))...)
}

// cgroup is the cgroup of the machine's pods.
func (m *Machine) cgroup() string { return m.cluster.tag + "/" + filepath.Base(m.dir) }

// Kill ends the machine at once, as if its power failed.
func (m *Machine) Kill() error { return errors.Join(m.init.Kill(), cri.RemoveCgroups(m.cgroup())) }

// Wipe empties the disk of a killed machine: it comes back as another one with its name.
func (m *Machine) Wipe() error { return os.RemoveAll(m.dir) }

// Command is a command that runs on the machine.
func (m *Machine) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{
		"--target", fmt.Sprint(m.init.PID()), "--mount", "--uts", "--ipc", "--net", "--pid", "--", name,
	}, args...)...)
	cmd.Env = m.cluster.environ()
	return cmd
}

// Run runs a command on the machine and returns what it printed.
func (m *Machine) Run(ctx context.Context, name string, args ...string) (string, error) {
	out, err := m.Command(ctx, name, args...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w\n%s", name, m.Name, err, out)
	}
	return string(out), nil
}

// AzureIPAM is the name of a plugin that gets the addresses of a network from Azure CNS.
const AzureIPAM = "azure-ipam"

// AzureNetwork is the name of that network.
const AzureNetwork = "azure"

// AzureEndpoints writes the file of Azure CNS again, by host-local's files, with an address that is never released for a sandbox unless that
// is empty.
func (m *Machine) AzureEndpoints(ctx context.Context, leaked string, ip netip.Addr) error {
	script := "mkdir -p /var/run/azure-cns; " + filepath.Join(m.plugins(), AzureIPAM)
	if leaked != "" {
		script = fmt.Sprintf("echo %s %v >>/var/run/azure-cns/leaked; ", leaked, ip) + script
	}
	_, err := m.Run(ctx, "sh", "-euc", script)
	return err
}

// Reserved is the folder in which host-local has a file for each address that it has given out.
func (m *Machine) Reserved() string { return filepath.Join(m.dir, "lib/cni/networks/pods") }

// StaticPods is the folder with the manifests of static pods.
func (m *Machine) StaticPods() string { return filepath.Join(m.dir, "etc/kubernetes/manifests") }

// Log is the end of what process 1 and the programs of the machine have written.
func (m *Machine) Log() string {
	text := m.init.Log()
	for _, name := range []string{"ctr", "containerd", "kubelet"} {
		data, _ := os.ReadFile(filepath.Join(m.dir, name+".log"))
		const most = 10_000
		text += name + ":\n" + strings.ToValidUTF8(string(data[max(0, len(data)-most):]), "?")
	}
	return text
}

// route leads the machine to a range.
func (m *Machine) route(to netip.Prefix, via netip.Addr) error {
	index, err := m.Ifindex(lab.UplinkName)
	if err != nil {
		return err
	}
	_, dst, err := net.ParseCIDR(to.String())
	if err != nil {
		return err
	}
	return m.Netlink().RouteReplace(&netlink.Route{LinkIndex: index, Dst: dst, Gw: via.AsSlice()})
}
