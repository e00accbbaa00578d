package cluster

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

const namePrefix = "dupip-cluster-"

// seldomGC has the programs of Kubernetes collect garbage a quarter as often: there is more memory than time.
const seldomGC = "GOGC=400"

var (
	clusters atomic.Uint32
	// serviceCIDR has the addresses of services, of which only the first one leads anywhere: to the API server.
	serviceCIDR = netip.MustParsePrefix("10.96.0.0/16")
	serviceIP   = netip.MustParseAddr("10.96.0.1")
)

func init() { lab.OnSweep(sweep) }

// sweep removes what is left of clusters whose process has ended. The kernel ended their machines then, with all mounts.
func sweep() error {
	var errs []error
	for _, dir := range lab.Leftovers(os.TempDir(), namePrefix, true) {
		errs = append(errs, remove(dir))
	}
	return errors.Join(errs...)
}

func remove(dir string) error {
	return errors.Join(cri.RemoveCgroups(filepath.Base(dir)), os.RemoveAll(dir))
}

// Cluster is a Kubernetes cluster. Its methods belong to the test's goroutine, unless they say otherwise.
type Cluster struct {
	*lab.T
	Machines map[string]*Machine

	control           *lab.Node
	pki               *authority
	tag               string
	dir               string
	url               string       // of the API server
	client            *http.Client // as an administrator
	server, scheduler *lab.Process
	controllers       *lab.Process
	flags             []string // of the API server, in addition
}

// New starts a cluster with machines of these names, and waits until all nodes are ready. It ends with the test.
func New(t testing.TB, names ...string) *Cluster {
	t.Helper()
	return Start(t, nil, names...)
}

// Start is New with more flags for the API server.
func Start(t testing.TB, flags []string, names ...string) *Cluster {
	t.Helper()
	c := &Cluster{T: lab.NewT(t), Machines: make(map[string]*Machine), flags: flags}
	kubernetes, err := Program()
	c.Do(err)
	c.tag = fmt.Sprintf("%s%x-%d", namePrefix, os.Getpid(), clusters.Add(1))
	c.dir = filepath.Join(os.TempDir(), c.tag)
	c.Do(os.Mkdir(c.dir, 0o755))
	// The lab ends processes first: steps run in reverse.
	c.OnClose(func() error { return remove(c.dir) })
	c.Do(os.Mkdir(c.images(), 0o755))
	c.Do(cri.WriteSandboxImage(filepath.Join(c.images(), "pause.tar"), c.tag))
	c.startControl(kubernetes)
	for _, name := range names {
		c.Add(name, netip.Prefix{})
	}
	c.Ready(names...)
	return c
}

// Dir is a folder for other files, which is removed with the cluster.
func (c *Cluster) Dir() string { return c.dir }

func (c *Cluster) images() string { return filepath.Join(c.dir, "images") }

// startControl starts etcd, API server, controllers, scheduler and DNS.
func (c *Cluster) startControl(kubernetes string) {
	c.Helper()
	c.control = c.Node("control")
	c.Do(c.control.AddAddr("lo", netip.PrefixFrom(serviceIP, 32)))
	pki := filepath.Join(c.dir, "pki")
	c.Do(os.Mkdir(pki, 0o755))
	var err error
	c.pki, err = newAuthority(pki)
	c.Do(err)
	address := c.control.Uplink().String()
	c.url = "https://" + address
	c.Do(
		c.pki.issue("server", "kube-apiserver", nil, address, serviceIP.String(), "kubernetes.default.svc"),
		c.pki.issue("kubelet-client", "kube-apiserver-kubelet-client", []string{"system:masters"}),
		c.pki.kubeconfig(c.url, "admin", "admin", "system:masters"),
		c.pki.kubeconfig(c.url, "kube-controller-manager", "system:kube-controller-manager"),
		c.pki.kubeconfig(c.url, "kube-scheduler", "system:kube-scheduler"),
		os.WriteFile(filepath.Join(c.dir, "Corefile"), fmt.Appendf(nil, `.:53 {
    errors
    kubernetes cluster.local {
        kubeconfig %s
    }
}
`, c.pki.path("admin", "conf")), 0o644),
		commands(filepath.Join(c.dir, "bin"), map[string]string{"kubectl": kubernetes + " kubectl", "crictl": kubernetes + " crictl"}),
	)
	c.client, err = c.pki.client(c.control, "admin")
	c.Do(err)
	c.program("etcd", "--data-dir", filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync", "--log-level", "error")
	c.StartAPIServer()
	c.controllers = c.program("kube-controller-manager", "--kubeconfig", c.pki.path("kube-controller-manager", "conf"), "--leader-elect=false",
		"--service-account-private-key-file", c.pki.path("server", "key"), "--root-ca-file", c.pki.path("ca", "crt"),
		"--use-service-account-credentials", "--node-monitor-period=1s", "--node-monitor-grace-period=10s")
	c.program("coredns", "-conf", filepath.Join(c.dir, "Corefile"))
}

// StartAPIServer starts the API server, waits until it is ready, and starts the scheduler: one that did not hear how a pod was replaced by
// its namesake ends itself (k8s.io/kubernetes, pkg/scheduler/backend/cache/cache.go), and a real cluster starts it again.
func (c *Cluster) StartAPIServer() {
	c.Helper()
	c.server = c.program("kube-apiserver", append(slices.Clone(c.flags), "--etcd-servers=http://127.0.0.1:2379", "--secure-port=443", "--advertise-address", c.control.Uplink().String(),
		"--client-ca-file", c.pki.path("ca", "crt"), "--tls-cert-file", c.pki.path("server", "crt"), "--tls-private-key-file", c.pki.path("server", "key"),
		"--kubelet-preferred-address-types=InternalIP", "--kubelet-client-certificate", c.pki.path("kubelet-client", "crt"), "--kubelet-client-key", c.pki.path("kubelet-client", "key"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file", c.pki.path("server", "key"),
		"--service-account-signing-key-file", c.pki.path("server", "key"), "--service-cluster-ip-range", serviceCIDR.String(),
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction", "--allow-privileged")...)
	c.Eventually("the API server", func() error {
		if !c.server.Running() {
			return lab.Final(errors.New("it has ended"))
		}
		_, err := c.Shell("kubectl get --raw /readyz")
		return err
	})
	if c.scheduler != nil {
		c.Do(c.scheduler.Kill())
	}
	c.scheduler = c.program("kube-scheduler", "--kubeconfig", c.pki.path("kube-scheduler", "conf"), "--leader-elect=false")
}

// KillAPIServer ends the API server at once.
func (c *Cluster) KillAPIServer() {
	c.Helper()
	c.Do(c.server.Kill())
}

// StopControllers ends the controllers: what they would do about nodes without machines does not happen.
func (c *Cluster) StopControllers() {
	c.Helper()
	c.Do(c.controllers.Kill())
}

// program starts a program of Kubernetes beside the API server.
func (c *Cluster) program(name string, args ...string) *lab.Process {
	c.Helper()
	kubernetes, err := Program()
	c.Do(err)
	cmd := exec.Command(kubernetes, append([]string{name}, args...)...)
	cmd.Env = append(os.Environ(), seldomGC)
	p, err := c.control.Launch(cmd)
	c.Do(err)
	c.OnClose(p.Kill) // the API server waits for its clients
	c.Cleanup(func() {
		if c.Failed() {
			log := p.Log()
			c.Logf("%s, the end of its log:\n%s", name, log[max(0, len(log)-5000):])
		}
	})
	return p
}

// Add makes a machine and starts it. podCIDR is the range of its pods; the zero Prefix is one of its own, which the others route to it.
func (c *Cluster) Add(name string, podCIDR netip.Prefix) *Machine {
	c.Helper()
	return c.add(name, name, podCIDR)
}

// Replace makes another machine with the node name and the range of one that runs on, and calls that one otherwise.
func (c *Cluster) Replace(name, old string) *Machine {
	c.Helper()
	c.Machines[old] = c.Machines[name]
	return c.add(name, name+"-next", c.Machines[old].PodCIDR)
}

// add makes a machine with a folder of that name.
func (c *Cluster) add(name, dir string, podCIDR netip.Prefix) *Machine {
	c.Helper()
	n := c.Node(dir)
	if !podCIDR.IsValid() {
		podCIDR = netip.PrefixFrom(n.RoutedIPv4(0), 24)
	}
	m := &Machine{Node: n, Name: name, PodCIDR: podCIDR, cluster: c, dir: filepath.Join(c.dir, dir)}
	c.Do(m.route(netip.PrefixFrom(serviceIP, 32), c.control.Uplink()))
	c.Do(c.pki.kubeconfig(c.url, name, "system:node:"+name, "system:nodes"))
	c.Apply(fmt.Sprintf("apiVersion: v1\nkind: Node\nmetadata: {name: %s}\nspec: {podCIDR: %s, podCIDRs: [%[2]s]}\n", name, m.PodCIDR))
	c.Machines[name] = m
	c.Cleanup(func() {
		if c.Failed() {
			c.Logf("log of %s:\n%s", name, m.Log())
		}
	})
	c.Do(m.Start())
	return m
}

// Ready waits until nodes are ready.
func (c *Cluster) Ready(names ...string) {
	c.Helper()
	for _, name := range names {
		c.Kubectl("wait", "--for=condition=Ready", "--timeout="+lab.Patience(readyTimeout).String(), "node/"+name)
	}
}

// Remove kills a machine for good, and deletes its node.
func (c *Cluster) Remove(name string) {
	c.Helper()
	c.Do(c.Machines[name].Kill())
	delete(c.Machines, name)
	c.Kubectl("delete", "node", name)
}

// Repair starts the API server and the machines of these names if they do not run, waits until the nodes are ready, and removes all
// other machines.
func (c *Cluster) Repair(names ...string) {
	c.Helper()
	if !c.server.Running() {
		c.StartAPIServer()
	}
	for name, m := range c.Machines {
		switch {
		case !slices.Contains(names, name):
			c.Remove(name)
		case !m.init.Running():
			c.Do(m.Start())
		}
	}
	c.Ready(names...)
}
