package incidents

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/kubelet"
	"github.com/dupip/dupip/tests/lab"
)

// network is the name of the pods' CNI network on every machine: machines with one store
// have one host-local, as if it were the IPAM of a whole cluster.
const network = "pods"

// testCluster is a lab with machines.
type testCluster struct {
	*lab.T
	machines []*machine
	// freed are the pods whose addresses were freed while they ran.
	freed []*pod
}

func newTestCluster(t *testing.T) *testCluster {
	t.Helper()
	t.Parallel()
	return &testCluster{T: lab.NewT(t)}
}

// machine is a node with a real containerd and a real agent.
type machine struct {
	*cri.Runtime
	s       *testCluster
	name    string
	kubelet *kubelet.Kubelet
	agent   *kubelet.Agent
	watch   *lab.Watch
	audits  *lab.Audits
	// unheldAfter is an option of the agent, and leaks says that some of its findings are right.
	unheldAfter string
	leaks       bool
	// books is where host-local has a file for every address that it has given out.
	books string
	// disk is where the agent's own folder is.
	disk string
}

// options describe a machine.
type options struct {
	// name is the node's; "" is the lab's name for it.
	name string
	// plugin makes the pods' interfaces; nil is ptp.
	plugin map[string]any
	// chained are the plugins after it, and scripts are plugins of our own.
	chained []map[string]any
	scripts map[string]string
	subnets []string
	// unheldAfter makes leaks a finding sooner than by default.
	unheldAfter string
	// store is where the books are; "" is a folder of the machine's own.
	store string
}

// machine makes one, see run.
func (s *testCluster) machine(o options) *machine {
	s.Helper()
	return s.build(o)[0]
}

// build makes machines, and starts their containerds side by side. There are no agents yet.
func (s *testCluster) build(all ...options) []*machine {
	s.Helper()
	var made []*machine
	for _, o := range all {
		made = append(made, s.prepare(o))
	}
	side(s, made, func(m *machine) error { return m.Start(s.Context()) })
	s.machines = append(s.machines, made...)
	return made
}

func (s *testCluster) prepare(o options) *machine {
	s.Helper()
	if o.store == "" {
		o.store = s.TempDir()
	}
	ipam := cri.HostLocal(o.subnets...)
	ipam["dataDir"] = o.store
	first := map[string]any{"type": "ptp", "ipam": ipam}
	maps.Copy(first, o.plugin)
	n := s.Node("")
	if o.name == "" {
		o.name = n.ShortName()
	}
	r, err := cri.New(s.Lab, n, cri.Options{
		Network: network, Plugins: append([]map[string]any{first}, o.chained...), Scripts: o.scripts,
	})
	s.Do(err)
	k, err := kubelet.New(r, kubelet.Manifest)
	s.Do(err)
	return &machine{
		Runtime: r, s: s, name: o.name, kubelet: k, unheldAfter: o.unheldAfter,
		books: filepath.Join(o.store, network), disk: k.HostPaths["/var/lib/dupip"],
	}
}

// startAgents starts the machines' agents, each in its container as the DaemonSet has it.
func (s *testCluster) startAgents(machines ...*machine) {
	s.Helper()
	side(s, machines, func(m *machine) (err error) {
		m.agent, err = m.kubelet.Run(s.Context(), m.name, m.change)
		return err
	})
	for _, m := range machines {
		s.Cleanup(func() {
			if s.Failed() {
				s.Logf("log of the agent on %s:\n%s", m.name, m.agent.Log())
			}
		})
		ctx, cancel := lab.WithTimeout(s.Context(), patience)
		defer cancel()
		s.Do(m.agent.WaitReady(ctx))
		var err error
		m.watch, err = s.Lab.Watch(context.WithoutCancel(s.Context()), m.agent.Client)
		s.Do(err)
		m.audits = s.WatchAudit(m.agent.Client)
	}
}

// change gives the agent its options, and what it reads of the machine's files where it must not see the
// file system of process 1.
func (m *machine) change(p *corev1.PodSpec) error {
	c := &p.Containers[0]
	if m.unheldAfter != "" {
		c.Args = append(c.Args, "--unheld-after", m.unheldAfter)
	}
	if kubelet.RootOfInit() {
		return nil
	}
	for i, path := range []string{m.ConfDir(), filepath.Dir(m.books), books.CacheDir} {
		name := fmt.Sprintf("books-%d", i)
		m.kubelet.HostPaths[path] = path
		p.Volumes = append(p.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: path, Type: new(corev1.HostPathDirectoryOrCreate)},
		}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true})
	}
	return nil
}

// waitMembers waits until each of the agents sees just these alive.
func (s *testCluster) waitMembers(machines ...*machine) {
	s.Helper()
	for _, m := range machines {
		s.Eventually("members on "+m.name, func() error {
			members, err := m.agent.Client.Members(s.Context())
			alive := 0
			for _, n := range members {
				if n.State == "alive" {
					alive++
				}
			}
			if err == nil && alive != len(machines) {
				err = fmt.Errorf("%d of %d are alive: %+v", alive, len(machines), members)
			}
			return err
		})
	}
}

// side does something with each at the same time.
func side[T any](s *testCluster, all []T, f func(T) error) {
	s.Helper()
	var wg sync.WaitGroup
	errs := make([]error, len(all))
	for i, one := range all {
		wg.Go(func() { errs[i] = f(one) })
	}
	wg.Wait()
	s.Do(errs...)
}

// pod is a pod of a machine.
type pod struct {
	*cri.Pod
	m *machine
	// began is when the runtime was called, and made when it returned.
	began, made time.Time
	// freed is when its addresses were removed from the books while it ran.
	freed time.Time
}

func (p *pod) String() string { return fmt.Sprintf("%s/%s on %s", p.Namespace, p.Name, p.m.name) }

func (p *pod) ref() lab.PodRef {
	return lab.PodRef{Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}

// run makes a pod.
func (m *machine) run(o cri.PodOptions) *pod {
	m.s.Helper()
	p, err := m.tryRun(o)
	m.s.Do(err)
	return p
}

func (m *machine) tryRun(o cri.PodOptions) (*pod, error) {
	p := &pod{m: m, began: time.Now()}
	var err error
	p.Pod, err = m.RunPod(m.s.Context(), o)
	p.made = time.Now()
	return p, err
}

// runMany makes pods side by side, as a kubelet does.
func (m *machine) runMany(prefix string, count int) []*pod {
	m.s.Helper()
	return m.s.runEach(prefix, count, m)
}

// runEach makes this many pods on each of the machines, all of them side by side.
func (s *testCluster) runEach(prefix string, count int, machines ...*machine) []*pod {
	s.Helper()
	all := make([]*pod, count*len(machines))
	numbers := make([]int, len(all))
	for i := range numbers {
		numbers[i] = i
	}
	side(s, numbers, func(i int) (err error) {
		all[i], err = machines[i%len(machines)].tryRun(named(fmt.Sprintf("%s-%d", prefix, i)))
		return err
	})
	return all
}

// named are the names of a pod in the namespace of these plays.
func named(name string) cri.PodOptions {
	return cri.PodOptions{Namespace: "shop", Name: name, UID: lab.UUIDOf(name)}
}

// remove ends pods as a kubelet does.
func (s *testCluster) remove(pods ...*pod) {
	s.Helper()
	side(s, pods, func(p *pod) error { return p.m.RemovePod(s.Context(), p.Pod) })
}

// freeAddrs removes the pods' addresses from the store while they run. The next pods get those
// addresses: host-local walks through its range, and its last address is set to the one before.
func (s *testCluster) freeAddrs(pods ...*pod) {
	s.Helper()
	s.free(pods)
	for family := range pods[0].IPs {
		next := pods[0].IPs[family]
		for _, p := range pods {
			ip := p.IPs[family]
			s.Do(os.Remove(filepath.Join(p.m.books, ip.String())))
			if ip.Less(next) {
				next = ip
			}
		}
		last := filepath.Join(pods[0].m.books, fmt.Sprintf("last_reserved_ip.%d", family))
		s.Do(os.WriteFile(last, []byte(next.Prev().String()), 0o600))
	}
}

// free notes that the addresses of these pods are about to be free in the books.
func (s *testCluster) free(pods []*pod) {
	s.freed = append(s.freed, pods...)
	for _, p := range pods {
		p.freed = time.Now()
	}
}

// wipe makes host-local forget everything, also the addresses of these pods, which run.
func (m *machine) wipe(pods ...*pod) {
	m.s.Helper()
	m.s.free(pods)
	m.s.Do(os.RemoveAll(m.books))
}

// reservedAddrs are the addresses that are given out by the books.
func (m *machine) reservedAddrs() []string {
	m.s.Helper()
	entries, err := os.ReadDir(m.books)
	m.s.Do(err)
	var all []string
	for _, e := range entries {
		if net.ParseIP(e.Name()) != nil {
			all = append(all, e.Name())
		}
	}
	return all
}

// shell runs a program on the machine and returns what it prints.
func (m *machine) shell(program string, args ...string) string {
	m.s.Helper()
	cmd := exec.Command(program, args...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	m.s.Do(m.Node.Start(cmd))
	if err := cmd.Wait(); err != nil {
		m.s.Fatal(fmt.Errorf("run %s %v on %s: %w\n%s", program, args, m.name, err, out.String()))
	}
	return strings.TrimSpace(out.String())
}

// dupip runs a command of the agent's and returns what it prints.
func (m *machine) dupip(args ...string) string {
	m.s.Helper()
	out, err := m.agent.CLI(m.s.Context(), args...)
	m.s.Do(err)
	return out
}
