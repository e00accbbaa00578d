package kubelet

import (
	"fmt"
	"net/netip"
	"sync"

	"github.com/miekg/dns"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/lab"
)

const domain = "cluster.local"

// dnsAddress is where a node's DNS server is, in the manner of a cache on every node.
var dnsAddress = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 153}), 53)

// cluster is shared by all kubelets of a lab. It may be used concurrently.
type cluster struct {
	mu sync.Mutex
	// endpoints are the addresses behind the name of a headless service.
	endpoints map[string]map[*pod]netip.Addr
}

var clusters sync.Map

// clusterOf is the cluster of the nodes of a lab.
func clusterOf(l *lab.Lab) *cluster {
	c, _ := clusters.LoadOrStore(l, &cluster{endpoints: make(map[string]map[*pod]netip.Addr)})
	return c.(*cluster)
}

// publish adds a pod to a service, ready or not, and withdraw removes it.
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

// dnsConfig is the resolver configuration of a pod with the policy ClusterFirst.
func dnsConfig(namespace string) *runtimeapi.DNSConfig {
	return &runtimeapi.DNSConfig{
		Servers:  []string{dnsAddress.Addr().String()},
		Searches: []string{namespace + ".svc." + domain, "svc." + domain, domain},
		Options:  []string{"ndots:5"},
	}
}

// serveDNS serves the cluster's names on a node until the lab is closed.
func (c *cluster) serveDNS(n *lab.Node) error {
	conn, err := n.ListenUDP(dnsAddress)
	if err != nil {
		return fmt.Errorf("start a DNS server: %w", err)
	}
	server := &dns.Server{PacketConn: conn, Handler: c}
	served := make(chan error, 1)
	go func() { served <- server.ActivateAndServe() }()
	n.Lab().OnClose(func() error {
		_ = conn.Close()
		<-served // that its socket was closed
		return nil
	})
	return nil
}

// ServeDNS answers one query.
func (c *cluster) ServeDNS(w dns.ResponseWriter, query *dns.Msg) {
	const lifetime = 5 // seconds, as CoreDNS has it
	answer := new(dns.Msg).SetReply(query)
	answer.Authoritative = true
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, q := range query.Question {
		pods, found := c.endpoints[q.Name]
		if !found {
			answer.Rcode = dns.RcodeNameError
		}
		for _, address := range pods {
			if q.Qtype == dns.TypeA {
				answer.Answer = append(answer.Answer, &dns.A{
					Hdr: dns.RR_Header{Name: q.Name, Class: q.Qclass, Rrtype: q.Qtype, Ttl: lifetime}, A: address.AsSlice(),
				})
			}
		}
	}
	_ = w.WriteMsg(answer)
}
