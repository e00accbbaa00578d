package kubelet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

const domain = "cluster.local"

// dnsAddress is where a node's DNS server is, in the manner of a cache on every node.
var dnsAddress = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 153}), 53)

// cluster is what all kubelets of a lab are of. It may be used concurrently.
type cluster struct {
	mu sync.Mutex
	// endpoints are the addresses behind the name of a headless service.
	endpoints map[string]map[*pod]netip.Addr
}

var (
	clustersMu sync.Mutex
	clusters   = make(map[*lab.Lab]*cluster)
)

// clusterOf is the cluster of the nodes of a lab.
func clusterOf(l *lab.Lab) *cluster {
	clustersMu.Lock()
	defer clustersMu.Unlock()
	if clusters[l] == nil {
		clusters[l] = &cluster{endpoints: make(map[string]map[*pod]netip.Addr)}
		l.OnClose(func() error {
			clustersMu.Lock()
			defer clustersMu.Unlock()
			delete(clusters, l)
			return nil
		})
	}
	return clusters[l]
}

// publish puts a pod behind a service, ready or not, and withdraw takes it away.
func (c *cluster) publish(service string, p *pod, address netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endpoints[service] == nil {
		c.endpoints[service] = make(map[*pod]netip.Addr)
	}
	c.endpoints[service][p] = address
}

func (c *cluster) withdraw(p *pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pods := range c.endpoints {
		delete(pods, p)
	}
}

// lookup returns the addresses of a name, and whether there is one.
func (c *cluster) lookup(name string) (addresses []netip.Addr, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	pods, found := c.endpoints[name]
	for _, a := range pods {
		addresses = append(addresses, a)
	}
	return addresses, found
}

// dnsConfig is what a pod that asks the cluster first has in /etc/resolv.conf.
func dnsConfig(namespace string) *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{
		Servers:  []string{dnsAddress.Addr().String()},
		Searches: []string{namespace + ".svc." + domain, "svc." + domain, domain},
		Options:  []string{"ndots:5"},
	}
}

// serveDNS answers on a node from what the cluster knows, until the lab is closed.
func (c *cluster) serveDNS(n *lab.Node) error {
	conn, err := n.ListenUDP(dnsAddress)
	if err != nil {
		return fmt.Errorf("start a DNS server: %w", err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		var buffer [512]byte
		for {
			size, from, err := conn.ReadFromUDPAddrPort(buffer[:])
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue // an error of an earlier answer
			}
			if reply, err := c.answer(buffer[:size]); err == nil {
				_, _ = conn.WriteToUDPAddrPort(reply, from)
			}
		}
	})
	n.Lab().OnClose(func() error {
		err := conn.Close()
		wg.Wait()
		return err
	})
	return nil
}

// answer makes the reply to a query.
func (c *cluster) answer(query []byte) ([]byte, error) {
	const lifetime = 5 // seconds, as CoreDNS has it
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil {
		return nil, err
	}
	if len(m.Questions) != 1 {
		return nil, errors.New("it has no question")
	}
	q := m.Questions[0]
	m.Response, m.Authoritative, m.Additionals = true, true, nil
	addresses, found := c.lookup(q.Name.String())
	if !found {
		m.RCode = dnsmessage.RCodeNameError
	}
	for _, a := range addresses {
		if q.Type == dnsmessage.TypeA && a.Is4() {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: q.Name, Class: q.Class, TTL: lifetime},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	return m.Pack()
}
