package othertools

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/probe"
	"github.com/dupip/dupip/tests/lab"
)

// Alarm is a report that an address has more than one holder.
type Alarm struct {
	IP netip.Addr
	// At is when it was read, on the clock of this process.
	At time.Time
	// Text is the report in one line.
	Text string
}

// Tool is one way to find duplicates. Its methods may be called from several goroutines.
type Tool interface {
	// Name is a short word for tables.
	Name() string
	// Watch starts to observe a node, and returns once it observes every packet. The lab ends it.
	Watch(ctx context.Context, n *lab.Node) error
	// Alarms are those so far, in the order in which they were raised; some are repeated.
	Alarms() []Alarm
}

// All are the tools for one lab, in the order of the tables. Those that know networks get the declared
// ones.
func All(networks *config.Config) []Tool {
	return []Tool{&Arpwatch{}, &Tshark{}, NewEVPN(networks), NewPodIP()}
}

// minInterval is between two recorded alarms about one address: in a flood of announcements some tools
// raise thousands a second.
const minInterval = 100 * time.Millisecond

// alarmLog is a list of alarms.
type alarmLog struct {
	mu     sync.Mutex
	alarms []Alarm
	latest map[netip.Addr]time.Time
}

// add records an alarm at the current time.
func (r *alarmLog) add(ip netip.Addr, text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	ip = ip.Unmap()
	if now.Sub(r.latest[ip]) < minInterval {
		return
	}
	if r.latest == nil {
		r.latest = make(map[netip.Addr]time.Time)
	}
	r.latest[ip] = now
	r.alarms = append(r.alarms, Alarm{IP: ip, At: now, Text: text})
}

// Alarms are those so far.
func (r *alarmLog) Alarms() []Alarm {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.alarms)
}

// proberMAC is what the MACs begin with from which the node's agent probes pods. The tools do not see the answers, which pods
// would not send without dupip.
func proberMAC(n *lab.Node) net.HardwareAddr {
	source := probe.Source(n.ShortName(), n.BootID())
	return source[:]
}
