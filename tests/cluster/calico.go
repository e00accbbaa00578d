package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Calico plays what Calico's programs write: a block for every 64 addresses, with the allocations that the plugin made, and the collector of
// leaked ones in kube-controllers (github.com/projectcalico/calico: libcalico-go/lib/ipam, kube-controllers/pkg/controllers/node/ipam.go).
// The plugin is host-local by another name, whose store the agents do not know.
type Calico struct {
	c      *Cluster
	mu     sync.Mutex
	named  map[string]string // see Name
	grace  time.Duration
	leaked map[netip.Addr]time.Time
	freed  map[netip.Addr]bool
	last   map[netip.Addr]allocation // of the last step
	cools  map[netip.Addr]allocation // released a moment ago
	moved  string                    // whose all blocks are, if this is not empty
	blocks map[string]string         // as they were written
}

// calicoIPAM is the name of the plugin.
const calicoIPAM = "calico-ipam"

// crds are the resources, as Calico's are: the API server keeps what it does not know of them.
const crds = `---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %s.crd.projectcalico.org}
spec:
  group: crd.projectcalico.org
  names: {kind: %s, plural: %[1]s, singular: %[3]s}
  scope: Cluster
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`

// CalicoResources makes the resources and a pool.
func (c *Cluster) CalicoResources(pool netip.Prefix) {
	c.Helper()
	c.Apply(fmt.Sprintf(crds, "ipamblocks", "IPAMBlock", "ipamblock") + fmt.Sprintf(crds, "ippools", "IPPool", "ippool"))
	c.Kubectl("wait", "--for=condition=Established", "crd/ipamblocks.crd.projectcalico.org", "crd/ippools.crd.projectcalico.org")
	c.Apply(fmt.Sprintf("apiVersion: crd.projectcalico.org/v1\nkind: IPPool\nmetadata: {name: default-ipv4-ippool}\nspec: {cidr: %v, blockSize: 26}\n", pool))
}

// NewCalico makes the resources and a pool, of which all machines give out addresses.
func (c *Cluster) NewCalico(pool netip.Prefix) *Calico {
	c.Helper()
	c.CalicoResources(pool)
	for _, m := range c.Machines {
		text := fmt.Sprintf(`{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"ptp","ipam":{"type":%q,"ranges":[[{"subnet":"%v","gateway":"%v"}]],"routes":[{"dst":"0.0.0.0/0"}]}}]}`,
			calicoIPAM, pool, m.PodCIDR.Addr().Next())
		_, err := m.Run(c.Context(), "sh", "-euc", "echo '"+text+"' >/etc/cni/net.d/new; mv /etc/cni/net.d/new /etc/cni/net.d/10-pods.conflist")
		c.Do(err)
	}
	return &Calico{
		c: c, named: make(map[string]string), grace: 15 * time.Minute,
		leaked: make(map[netip.Addr]time.Time), freed: make(map[netip.Addr]bool), blocks: make(map[string]string), cools: make(map[netip.Addr]allocation),
	}
}

// Name gives a machine a name for Calico, as /var/lib/calico/nodename does: its own, or that of the machine whose template it is of.
func (k *Calico) Name(machine, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.named[machine] = name
}

// SetGrace sets how long the collector leaves an allocation alone that looks leaked (leakGracePeriod).
func (k *Calico) SetGrace(grace time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.grace = grace
}

// MoveBlocks gives all blocks to one machine, as pools that are too small do: nodes borrow addresses.
func (k *Calico) MoveBlocks(machine string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.moved = machine
}

// HasFreed reports whether the collector has freed an address.
func (k *Calico) HasFreed(ip netip.Addr) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.freed[ip]
}

// allocation is an address that the plugin has given out.
type allocation struct {
	ip                      netip.Addr
	sandbox, namespace, pod string
	machine                 string
	at                      time.Time
}

// Run writes until ctx ends.
func (k *Calico) Run(ctx context.Context) error {
	for ticks := time.Tick(200 * time.Millisecond); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-ticks:
		}
		k.mu.Lock()
		err := k.step(ctx)
		k.mu.Unlock()
		if err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// step writes blocks as they should be now, and frees what the collector takes for leaked.
func (k *Calico) step(ctx context.Context) error {
	all := make(map[netip.Addr]allocation)
	for name, m := range k.c.Machines {
		list, err := m.allocations()
		if err != nil {
			return err
		}
		for _, a := range list {
			if a.machine = name; a.pod != "" {
				all[a.ip] = a
			}
		}
	}
	var pods corev1.PodList
	var nodes corev1.NodeList
	if err := errors.Join(k.c.Get(&pods, "api/v1/pods"), k.c.Get(&nodes, "api/v1/nodes")); err != nil {
		return nil // the API server is away
	}
	for ip, a := range all {
		if k.isLeaked(a, pods.Items, nodes.Items) {
			if err := k.free(ip); err != nil {
				return err
			}
			delete(all, ip)
		}
	}
	for ip, a := range k.last {
		if _, held := all[ip]; !held {
			a.at = time.Now()
			k.cools[ip] = a
		}
	}
	maps.DeleteFunc(k.cools, func(ip netip.Addr, a allocation) bool {
		_, again := all[ip]
		return again || time.Since(a.at) > cooling
	})
	k.last = all
	return k.write(ctx, all)
}

// cooling is how long an address has its attributes after its release.
const cooling = 3 * time.Second

// node is the name that a machine has for Calico.
func (k *Calico) node(machine string) string {
	if name := k.named[machine]; name != "" {
		return name
	}
	return machine
}

// isLeaked is what the collector decides: the pod is not there, or on another node, for the grace; that of a node that is gone at once.
func (k *Calico) isLeaked(a allocation, pods []corev1.Pod, nodes []corev1.Node) bool {
	node := k.node(a.machine)
	i := slices.IndexFunc(pods, func(p corev1.Pod) bool { return p.Namespace == a.namespace && p.Name == a.pod })
	if i >= 0 && (pods[i].Spec.NodeName == node || pods[i].Spec.NodeName == "") {
		delete(k.leaked, a.ip)
		return false
	}
	if k.leaked[a.ip].IsZero() {
		k.leaked[a.ip] = time.Now()
	}
	exists := slices.ContainsFunc(nodes, func(n corev1.Node) bool { return n.Name == node })
	return !exists || time.Since(k.leaked[a.ip]) > k.grace
}

// free frees an address, as IPAM does, although a pod may have it.
func (k *Calico) free(ip netip.Addr) error {
	k.freed[ip] = true
	delete(k.leaked, ip)
	for _, m := range k.c.Machines {
		if err := os.Remove(filepath.Join(m.Reserved(), ip.String())); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// write writes the blocks of these allocations, and empties those that have none.
func (k *Calico) write(ctx context.Context, all map[netip.Addr]allocation) error {
	blocks := make(map[netip.Prefix][]allocation)
	for name := range k.blocks {
		cidr := strings.ReplaceAll(strings.TrimSuffix(name, "-26"), "-", ".") + "/26"
		blocks[netip.MustParsePrefix(cidr)] = nil
	}
	for _, list := range []map[netip.Addr]allocation{all, k.cools} {
		for ip, a := range list {
			cidr, err := ip.Prefix(26)
			if err != nil {
				return err
			}
			blocks[cidr] = append(blocks[cidr], a)
		}
	}
	for cidr, list := range blocks {
		if err := k.put(ctx, cidr, list); err != nil {
			return err
		}
	}
	return nil
}

// put writes one block if it has changed.
func (k *Calico) put(ctx context.Context, cidr netip.Prefix, list []allocation) error {
	slices.SortFunc(list, func(x, y allocation) int { return x.ip.Compare(y.ip) })
	allocations, attributes, unallocated := make([]*int, 64), []any{}, []int{}
	ip := cidr.Addr()
	for ordinal := range allocations {
		i := slices.IndexFunc(list, func(a allocation) bool { return a.ip == ip })
		if i < 0 {
			unallocated = append(unallocated, ordinal)
		} else {
			a := list[i]
			allocations[ordinal] = new(len(attributes))
			attribute := map[string]any{"handle_id": "k8s-pod-network." + a.sandbox, "secondary": map[string]string{
				"namespace": a.namespace, "pod": a.pod, "node": k.node(a.machine), "timestamp": a.at.UTC().String(),
			}}
			if c, cools := k.cools[ip]; cools {
				attribute["releasedAt"] = c.at.UTC().Format(time.RFC3339)
			}
			attributes = append(attributes, attribute)
		}
		ip = ip.Next()
	}
	name := strings.NewReplacer(".", "-", "/", "-").Replace(cidr.String())
	object := map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"cidr": cidr.String(), "affinity": "host:" + k.affinity(cidr), "allocations": allocations, "attributes": attributes, "unallocated": unallocated, "deleted": false},
	}
	text, err := json.Marshal(object)
	if err != nil || k.blocks[name] == string(text) {
		return err
	}
	// As a patch: it needs no version, and makes what is not there.
	err = k.c.send(ctx, http.MethodPatch, "apis/crd.projectcalico.org/v1/ipamblocks/"+name+"?fieldManager=calico&force=true", "application/apply-patch+yaml", text)
	if err == nil {
		k.blocks[name] = string(text)
	}
	return nil // the API server may be away
}

// affinity is whose a block is: of the machine whose range it is in.
func (k *Calico) affinity(cidr netip.Prefix) string {
	if k.moved != "" {
		return k.moved
	}
	for name, m := range k.c.Machines {
		if m.PodCIDR.Overlaps(cidr) {
			return name
		}
	}
	return ""
}

// allocations are the addresses that the plugin of a machine has given out, with the pods that libcni's cache has.
func (m *Machine) allocations() (list []allocation, err error) {
	files, err := filepath.Glob(filepath.Join(m.Reserved(), "*.*.*.*"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		ip, err := netip.ParseAddr(filepath.Base(file))
		text, readErr := os.ReadFile(file)
		if err != nil || readErr != nil { // another file, or it is being freed
			continue
		}
		a := allocation{ip: ip}
		a.sandbox, _, _ = strings.Cut(string(text), "\r\n")
		if info, err := os.Stat(file); err == nil {
			a.at = info.ModTime()
		}
		var cached struct {
			CNIArgs [][2]string `json:"cniArgs"`
		}
		cache, err := os.ReadFile(filepath.Join(m.dir, "lib/cni/results", "pods-"+a.sandbox+"-eth0"))
		if err == nil && json.Unmarshal(cache, &cached) == nil {
			for _, arg := range cached.CNIArgs {
				switch arg[0] {
				case "K8S_POD_NAMESPACE":
					a.namespace = arg[1]
				case "K8S_POD_NAME":
					a.pod = arg[1]
				}
			}
		}
		list = append(list, a)
	}
	return list, nil
}

// send sends a request to the API server.
func (c *Cluster) send(ctx context.Context, method, path, contentType string, body []byte) error {
	request, err := http.NewRequestWithContext(ctx, method, c.url+"/"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", contentType)
	response, err := c.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode >= 300 {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1000)) // less will do
		return fmt.Errorf("%s %s: %s: %s", method, path, response.Status, text)
	}
	return nil
}
