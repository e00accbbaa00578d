package cluster_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/tests/cluster"
)

const (
	// bookedPods is how many pods each node of the crowd has in the books.
	bookedPods = 10
	// writesAtOnce is how many objects are written at a time.
	writesAtOnce = 16
	// heartbeats is how often a kubelet writes the status of its Node.
	heartbeats = 5 * time.Minute
)

// bookedRange is the pool: each node has 128 of its addresses, in two blocks.
var bookedRange = netip.MustParsePrefix("10.128.0.0/12")

// booked are Nodes, Pods and blocks of the crowd's nodes, as the kubelets and Calico would write them, and what the agents there observe.
type booked struct {
	*testCluster
	writer *cluster.Writer
	crowd  *crowd // of the agents, once it is there

	mu    sync.Mutex
	nodes [crowdSize]bookedNode
}

// bookedNode is what the agent of a node observes.
type bookedNode struct {
	pods  []bookedPod
	hash  uint64
	lying bool // the book does not have its last pod
}

// bookedPod is a Pod with an address.
type bookedPod struct {
	name, uid string
	ip        netip.Addr
}

// sandbox is the id of the pod's sandbox.
func (p bookedPod) sandbox() string { return fmt.Sprintf("%x", sha256.Sum256([]byte(p.name))) }

// each calls do for all nodes, many at once.
func (b *booked) each(do func(ctx context.Context, number int) error) {
	b.Helper()
	all, ctx := errgroup.WithContext(b.Context())
	all.SetLimit(writesAtOnce)
	for number := range crowdSize {
		all.Go(func() error { return do(ctx, number) })
	}
	b.Do(all.Wait())
}

// make makes the objects of all nodes. The agent of the first one observes a pod that its block does not have.
func (b *booked) make() {
	b.Helper()
	images := make([]string, 50) // as many as a kubelet lists, at most
	for i := range images {
		images[i] = fmt.Sprintf(`{"names":["registry.example/shop/image-%d@sha256:%x","registry.example/shop/image-%[1]d:1.%[1]d"],"sizeBytes":123456789}`, i, sha256.Sum256([]byte{byte(i)}))
	}
	b.each(func(ctx context.Context, number int) error {
		// Without the label of its system no DaemonSet has pods there.
		node := fmt.Sprintf(`{"metadata":{"name":%q},"status":{"images":[%s],%s}}`, fmt.Sprint("worker-", number), strings.Join(images, ","), conditions(time.Now()))
		if err := b.writer.Write(ctx, http.MethodPost, "api/v1/nodes", []byte(node), nil); err != nil {
			return err
		}
		n := &b.nodes[number]
		n.lying = number == 0
		for i := range bookedPods {
			p := bookedPod{name: fmt.Sprintf("web-%d-%d", number, i), ip: bookedIP(number, i)}
			if err := b.run(ctx, number, &p); err != nil {
				return err
			}
			n.pods = append(n.pods, p)
		}
		n.hash++
		for half := range 2 {
			if err := b.writer.Write(ctx, http.MethodPost, blocksPath, b.block(number, half), nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// conditions is that part of the status of a Node.
func conditions(now time.Time) string {
	return fmt.Sprintf(`"conditions":[{"type":"Ready","status":"True","reason":"KubeletReady","lastHeartbeatTime":%q}]`, now.UTC().Format(time.RFC3339))
}

// bookedIP is an address of a node.
func bookedIP(number, ordinal int) netip.Addr {
	first := bookedRange.Addr().As4()
	return netip.AddrFrom4([4]byte{first[0], first[1] + byte(number>>9), byte(number >> 1), byte(number&1)<<7 | byte(ordinal)})
}

// run makes a Pod that runs, as the scheduler and the kubelet would.
func (b *booked) run(ctx context.Context, number int, p *bookedPod) error {
	var stored struct{ Metadata struct{ UID string } }
	env := strings.Repeat(`{"name":"SETTING","value":"0123456789"},`, 40)
	spec := fmt.Sprintf(`{"metadata":{"name":%q,"labels":{"app":"web"},"annotations":{"cni.projectcalico.org/podIP":"%v/32"}},"spec":{"nodeName":"worker-%d","containers":[{"name":"main","image":"registry.example/shop/web:1.0","env":[%s]}]}}`,
		p.name, p.ip, number, strings.TrimSuffix(env, ","))
	if err := b.writer.Write(ctx, http.MethodPost, podsPath, []byte(spec), &stored); err != nil {
		return err
	}
	p.uid = stored.Metadata.UID
	status := fmt.Sprintf(`{"status":{"phase":"Running","podIP":"%v","podIPs":[{"ip":"%[1]v"}],"conditions":[{"type":"Ready","status":"True"}]}}`, p.ip)
	return b.writer.Write(ctx, http.MethodPatch, podsPath+"/"+p.name+"/status", []byte(status), nil)
}

const podsPath, blocksPath = "api/v1/namespaces/shop/pods", "apis/crd.projectcalico.org/v1/ipamblocks"

// block is one of the two of a node, as Calico writes it.
func (b *booked) block(number, half int) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &b.nodes[number]
	cidr, _ := bookedIP(number, half<<6).Prefix(26)
	allocations, attributes, unallocated := make([]*int, 64), []any{}, []int{}
	for ordinal := range allocations {
		i := slices.IndexFunc(n.pods, func(p bookedPod) bool { return p.ip == bookedIP(number, half<<6|ordinal) })
		if i < 0 || n.lying && i == len(n.pods)-1 {
			unallocated = append(unallocated, ordinal)
			continue
		}
		allocations[ordinal] = new(len(attributes))
		attributes = append(attributes, map[string]any{"handle_id": "k8s-pod-network." + n.pods[i].sandbox(), "secondary": map[string]string{
			"namespace": "shop", "pod": n.pods[i].name, "node": fmt.Sprint("worker-", number), "timestamp": time.Now().UTC().String(),
		}})
	}
	return b.blockText(cidr, fmt.Sprint("worker-", number), allocations, attributes, unallocated)
}

// blockText is the text of a block.
func (b *booked) blockText(cidr netip.Prefix, node string, allocations, attributes, unallocated any) []byte {
	text, err := json.Marshal(map[string]any{
		"apiVersion": "crd.projectcalico.org/v1", "kind": "IPAMBlock", "metadata": map[string]any{"name": blockName(cidr)},
		"spec": map[string]any{"cidr": cidr.String(), "affinity": "host:" + node, "allocations": allocations, "attributes": attributes, "unallocated": unallocated, "deleted": false},
	})
	b.Do(err)
	return text
}

// blockName is that of the object of a block.
func blockName(cidr netip.Prefix) string {
	return strings.NewReplacer(".", "-", "/", "-").Replace(cidr.String())
}

// bindings are what an agent of the crowd observes.
func (b *booked) bindings(a *crowdAgent) (list []detector.Binding, hash uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := &b.nodes[a.number]
	for i, p := range n.pods {
		x := a.binding(p.ip, i)
		x.Holder.Pod = detector.Pod{Namespace: "shop", Name: p.name, UID: p.uid}
		x.Holder.Sandbox.ID = p.sandbox()[:13]
		x.Holder.ID.Netns = uint64(p.ip.As4()[3]) + 4000
		list = append(list, x)
	}
	return list, n.hash
}

// change changes what an agent observes, which says so, and writes its first block.
func (b *booked) change(ctx context.Context, number int, do func(*bookedNode)) error {
	b.mu.Lock()
	do(&b.nodes[number])
	b.nodes[number].hash++
	b.mu.Unlock()
	b.crowd.agents[number].summarize()
	return b.writer.Write(ctx, http.MethodPatch, blocksPath+"/"+b.blockName(number), b.block(number, 0), nil)
}

// blockName is the name of the first block of a node.
func (b *booked) blockName(number int) string {
	cidr, _ := bookedIP(number, 0).Prefix(26)
	return blockName(cidr)
}

// rollout replaces the first pod of each node: the new one runs before the old one ends.
func (b *booked) rollout(ordinal int) {
	b.Helper()
	b.each(func(ctx context.Context, number int) error {
		old := b.nodes[number].pods[0]
		made := bookedPod{name: fmt.Sprintf("web-%d-%d", number, ordinal), ip: bookedIP(number, ordinal)}
		if err := b.run(ctx, number, &made); err != nil {
			return err
		}
		if err := b.change(ctx, number, func(n *bookedNode) { n.pods = slices.Insert(n.pods, 1, made) }); err != nil {
			return err
		}
		if err := b.writer.Write(ctx, http.MethodDelete, podsPath+"/"+old.name, nil, nil); err != nil {
			return err
		}
		if err := b.change(ctx, number, func(n *bookedNode) { n.pods = n.pods[1:] }); err != nil {
			return err
		}
		return b.writer.Write(ctx, http.MethodDelete, podsPath+"/"+old.name+"?gracePeriodSeconds=0", nil, nil)
	})
}

// beat writes the status of Nodes, each as often as its kubelet would, until ctx ends.
func (b *booked) beat(ctx context.Context) {
	ticks := time.NewTicker(heartbeats / crowdSize)
	defer ticks.Stop()
	for number := 0; ; number = (number + 1) % crowdSize {
		select {
		case <-ctx.Done():
			return
		case now := <-ticks.C: // while the API server is away it fails
			_ = b.writer.Write(ctx, http.MethodPatch, fmt.Sprintf("api/v1/nodes/worker-%d/status", number), []byte(`{"status":{`+conditions(now)+`}}`), nil)
		}
	}
}

// spite makes what hostile objects there can be: blocks with 1 MB of empty attributes, or of keys, and Pods of 1 MB.
func (b *booked) spite(blocks, pods int) {
	b.Helper()
	ctx := b.Context()
	keys := make(map[string]string)
	for i := range 80_000 {
		keys[fmt.Sprintf("%x", i)] = ""
	}
	for i := range blocks {
		cidr := netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 143, byte(i), 0}), 26)
		attributes := []any{map[string]any{"secondary": keys}}
		if i%2 == 0 {
			attributes = slices.Repeat([]any{struct{}{}}, 350_000)
		}
		b.Do(b.writer.Write(ctx, http.MethodPost, blocksPath, b.blockText(cidr, "worker-0", []int{0}, attributes, []int{}), nil))
	}
	long := strings.Repeat("x", 100_000)
	env := strings.TrimSuffix(strings.Repeat(fmt.Sprintf(`{"name":"A","value":%q},`, long), 10), ",")
	for i := range pods {
		spec := fmt.Sprintf(`{"metadata":{"name":"spite-%d"},"spec":{"nodeName":"worker-%[1]d","containers":[{"name":"main","image":"x","env":[%s]}]}}`, i, env)
		b.Do(b.writer.Write(ctx, http.MethodPost, podsPath, []byte(spec), nil))
	}
}
