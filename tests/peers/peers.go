package peers

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

// Alarm says that an address has more than one holder.
type Alarm struct {
	IP netip.Addr
	// At is when it could be read, on the clock of this process.
	At time.Time
	// Text is what was said, in one line.
	Text string
}

// Peer is one way to find duplicates. Its methods may be called from several goroutines.
type Peer interface {
	// Name is a short word for tables.
	Name() string
	// Watch starts to observe a node, and returns once everything that is sent there
	// from then on is observed. The lab ends it.
	Watch(ctx context.Context, n *lab.Node) error
	// Alarms are those so far, in the order they were raised. Some repeat themselves.
	Alarms() []Alarm
}

// All are the peers for one lab, in the order of the tables. Where networks are declared,
// those who know networks know them, too.
func All(networks *config.Config) []Peer {
	return []Peer{&Arpwatch{}, &Tshark{}, NewEVPN(networks), NewPodIP()}
}

// minInterval is how often one address is taken down: a flood of announcements makes some peers
// repeat themselves thousands of times a second.
const minInterval = 100 * time.Millisecond

// alarmLog is a list of alarms.
type alarmLog struct {
	mu     sync.Mutex
	alarms []Alarm
	latest map[netip.Addr]time.Time
}

// add takes the time.
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

// proberMAC is the MAC from which an agent on the node asks pods for their addresses. What
// they answer would not be said without the agent, so peers do not hear it: otherwise a
// pod that never says a word would be found by them as well, thanks to dupip.
func proberMAC(n *lab.Node) net.HardwareAddr { return probe.MAC(n.ShortName(), n.BootID()) }
