package othertools

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dupip/dupip/tests/lab"
)

// podIPEvery is how often PodIP reads the list of pods.
const podIPEvery = time.Second

// PodIP finds addresses that the API server lists for two pods, as `kubectl get pods -A -o wide` shows
// them: Running, status.podIPs, not hostNetwork. [podRecords] models the API server.
type PodIP struct {
	alarmLog

	mu      sync.Mutex
	records podRecords
	once    sync.Once
}

// NewPodIP makes one without pods.
func NewPodIP() *PodIP { return &PodIP{records: podRecords{}} }

// Name is "podip".
func (*PodIP) Name() string { return "podip" }

// Watch follows the changes of all nodes of the node's lab.
func (p *PodIP) Watch(_ context.Context, n *lab.Node) error {
	p.once.Do(func() {
		n.Lab().Subscribe(func(c lab.Change) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.records.update(c)
		})
		ctx, cancel := context.WithCancel(context.Background())
		var polling sync.WaitGroup
		polling.Go(func() { p.poll(ctx) })
		n.Lab().OnClose(func() error {
			cancel()
			polling.Wait()
			return nil
		})
	})
	return nil
}

// poll reads the list until ctx ends.
func (p *PodIP) poll(ctx context.Context) {
	known := map[netip.Addr]string{}
	for tick := time.NewTicker(podIPEvery); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		p.mu.Lock()
		twice := p.records.duplicates()
		p.mu.Unlock()
		for ip, pods := range twice {
			if known[ip] != pods {
				p.add(ip, "status.podIPs of "+pods)
			}
		}
		known = twice
	}
}

// podRecords is what the API server has about pods: what IPAM gave, not what the pods do.
//
// A pod is listed with its original addresses until its deletion is complete: a Terminating pod is
// Running, too. An address that is added in a running pod is not in its status, except the first ones of
// a pod that was made without. A disconnected node reports nothing: its pods stay listed (garbage
// collection and evictions take five minutes, longer than any scenario), and changes show when it is
// back. Secondary networks (net1), guests, the node's addresses, and containers that Kubernetes did not
// make are not in the API.
type podRecords map[*lab.Node]*nodeRecords

// nodeRecords is what is known of one node's pods.
type nodeRecords struct {
	// actual is what the kubelet knows. listed is what the API server knows: a copy of it while the
	// node is connected.
	actual, listed map[*lab.Pod][]netip.Addr
	cut            bool
}

// update records a change.
func (b podRecords) update(c lab.Change) {
	l := b[c.Node]
	if l == nil {
		l = &nodeRecords{actual: map[*lab.Pod][]netip.Addr{}}
		b[c.Node] = l
	}
	switch c.Kind {
	case lab.PodAdded:
		if inAPI(c.Pod) {
			l.actual[c.Pod] = c.Pod.Addrs()
		}
	case lab.PodAddrAdded:
		if _, known := l.actual[c.Pod]; known && len(c.Pod.Addrs()) == 0 {
			l.actual[c.Pod] = append(slices.Clone(l.actual[c.Pod]), c.Addr)
		}
	case lab.PodDeleted:
		delete(l.actual, c.Pod)
	case lab.NodeDisconnected:
		l.cut = true
	case lab.NodeReconnected:
		l.cut = false
	}
	if !l.cut {
		l.listed = maps.Clone(l.actual)
	}
}

// localEngine are the bridges of container engines whose containers are no pods.
var localEngine = regexp.MustCompile(`^(docker0|br-[0-9a-f]{12}|podman.*)$`)

// inAPI returns whether Kubernetes made the pod.
func inAPI(p *lab.Pod) bool {
	return p.Node.Number > 0 && p.Interface == "eth0" && !localEngine.MatchString(p.Options().Bridge)
}

// duplicates are the addresses that more than one pod is listed with, and the names of those.
func (b podRecords) duplicates() map[netip.Addr]string {
	pods := map[netip.Addr][]string{}
	for n, l := range b {
		for p, ips := range l.listed {
			for _, ip := range ips {
				pods[ip] = append(pods[ip], fmt.Sprintf("%s on %s", p.ShortName(), n.ShortName()))
			}
		}
	}
	all := map[netip.Addr]string{}
	for ip, names := range pods {
		if len(names) > 1 {
			slices.SortFunc(names, cmp.Compare)
			all[ip] = strings.Join(names, " and ")
		}
	}
	return all
}
