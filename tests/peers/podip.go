package peers

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

// podIPEvery is how often the list of pods is looked at.
const podIPEvery = time.Second

// PodIP looks for an address that the API server lists for two pods, as one does by hand
// with `kubectl get pods -A -o wide`: Running, status.podIPs, not hostNetwork. What the
// API server would say is derived from what the lab does; see [bookkeeping].
type PodIP struct {
	alarmLog

	mu      sync.Mutex
	records podRecords
	once    sync.Once
}

// NewPodIP makes one that knows of no pod yet.
func NewPodIP() *PodIP { return &PodIP{records: podRecords{}} }

// Name is "podip".
func (*PodIP) Name() string { return "podip" }

// Watch follows what happens on all nodes of the node's lab.
func (p *PodIP) Watch(_ context.Context, n *lab.Node) error {
	p.once.Do(func() {
		n.Lab().Subscribe(func(news lab.Change) {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.records.update(news)
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

// poll looks at the list until ctx ends.
func (p *PodIP) poll(ctx context.Context) {
	said := map[netip.Addr]string{}
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
			if said[ip] != pods {
				p.add(ip, "status.podIPs of "+pods)
			}
		}
		said = twice
	}
}

// podRecords is what the API server has about pods: what IPAM gave, not what the pods do.
//
// A pod is listed, with the addresses it was made with, as soon as it is there, and until
// its deletion is complete: a Terminating pod is Running, too. An address that is added in
// a running pod is not in its status; but the first ones of a pod that was made without
// are taken for what it was given. A node that is cut off reports nothing: its pods stay
// as they were listed last (the pod garbage collector and evictions come after five
// minutes, which no story lasts), and what it did shows once it is back. Other networks
// than the pod's own (net1), guests, the node's addresses, and containers that are not
// Kubernetes's are not in the API.
type podRecords map[*lab.Node]*nodeRecords

// nodeRecords is what is known of one node's pods.
type nodeRecords struct {
	// actual is what the kubelet knows and listed what the API server does: a copy of it,
	// while the node is not cut off.
	actual, listed map[*lab.Pod][]netip.Addr
	cut            bool
}

// update takes something that happened.
func (b podRecords) update(news lab.Change) {
	l := b[news.Node]
	if l == nil {
		l = &nodeRecords{actual: map[*lab.Pod][]netip.Addr{}}
		b[news.Node] = l
	}
	switch news.Kind {
	case lab.PodAdded:
		if inAPI(news.Pod) {
			l.actual[news.Pod] = news.Pod.Addrs()
		}
	case lab.PodAddrAdded:
		if _, known := l.actual[news.Pod]; known && len(news.Pod.Addrs()) == 0 {
			l.actual[news.Pod] = append(slices.Clone(l.actual[news.Pod]), news.Addr)
		}
	case lab.PodDeleted:
		delete(l.actual, news.Pod)
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

// inAPI says that Kubernetes made the pod.
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
