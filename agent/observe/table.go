package observe

import (
	"cmp"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// Table has the interfaces of this node, and joins what is known of them. It must not know whether others have their addresses. Create it
// with [New] and call [Table.Configure] first. It is not safe for concurrent use.
type Table struct {
	Options
	Records  *Records
	Mirrors  *Mirrors
	Origins  *Origins
	Refusals *Refusals
	Own      *Own

	networks   networks
	interfaces interfaces
	unobserved []links.Interface
	lost       lostLog
	ready      bool // see Ready; it stays true
}

// New returns an empty Table.
func New(opts Options) *Table {
	if opts.TimeOf == nil {
		opts.TimeOf = TimeOf
	}
	lines := rate.NewLimiter(rate.Every(time.Minute), 10)
	t := &Table{Options: opts, interfaces: make(interfaces)}
	t.Records = &Records{
		opts: &t.Options, interfaces: t.interfaces, early: make(map[detector.Interface][]bpf.Record),
		dropped: map[string]uint64{droppedEarly: 0, droppedGone: 0, droppedVLANs: 0, droppedScan: 0, droppedView: 0},
	}
	t.Mirrors = &Mirrors{opts: &t.Options, interfaces: t.interfaces, heard: make(map[answer][]heard)}
	t.Own = &Own{opts: &t.Options}
	t.networks.own = t.Own
	t.Origins = &Origins{opts: &t.Options, interfaces: t.interfaces, lines: lines, all: make(map[HostEnd]*Origin)}
	t.Refusals = &Refusals{opts: &t.Options, interfaces: t.interfaces, lines: lines}
	t.lost = lostLog{opts: &t.Options, lines: rate.NewLimiter(rate.Every(time.Minute), 10)}
	return t
}

// Configure sets the configuration. At a reload, bindings move into the networks that their addresses
// belong to now.
func (t *Table) Configure(c *config.Config, now time.Time) []Observation {
	first := t.networks.config == nil
	t.networks.config, t.Own.config = c, c
	if first {
		t.Origins.rolesAt, t.Refusals.next = now.Add(time.Minute), now.Add(sampleEvery)
		return nil
	}
	t.Own.stale = true
	for _, i := range t.interfaces {
		i.moves = true
	}
	return t.settle(nil, now)
}

// Name sets the pod in a netns, and returns the interfaces that lead there or were set up for it.
func (t *Table) Name(pod pods.Change, now time.Time) (named []*Interface, all []Observation) {
	for _, i := range t.interfaces {
		if i.Seen && i.View.Cookie == pod.Cookie || pod.Result.Names(i.Name) {
			named = append(named, i)
			t.named(i, pod)
			t.followEngine(i)
		}
	}
	return named, t.settle(nil, now)
}

// Config is the current configuration.
func (t *Table) Config() *config.Config { return t.networks.config }

// Interface returns an interface, nil if it does not exist.
func (t *Table) Interface(ref detector.Interface) *Interface { return t.interfaces[ref] }

// All returns the interfaces that lead into pods, in no order.
func (t *Table) All() iter.Seq[*Interface] { return maps.Values(t.interfaces) }

// Ready reports whether the watcher has attached to all interfaces that existed at the start, or failed to.
func (t *Table) Ready() bool {
	if !t.ready && t.Own.listedBefore {
		t.ready = true
		for _, i := range t.interfaces {
			t.ready = t.ready && (!i.Listed || i.State != links.Pending && i.State != links.Waiting)
		}
	}
	return t.ready
}

// Unobserved returns the pod devices that cannot be observed or are ignored.
func (t *Table) Unobserved() []links.Interface { return t.unobserved }

// ScanFor scans whether the kernel of the pod behind an interface uses an address, in a scan that begins after now. It is the
// probe where nothing answers.
func (t *Table) ScanFor(ref detector.Interface, ip netip.Addr, vlan bpf.VLAN, now time.Time) {
	if i := t.interfaces[ref]; i != nil {
		i.awaiting.request(scanKey{ip, vlan}, now)
		t.Rescan(i.Generation)
	}
}

// Listed is an address that the kernel of a pod lists.
type Listed struct {
	Key       detector.Key
	VLAN      bpf.VLAN
	Interface *Interface
	netns.Address
}

// Lists returns the pod interfaces with an address in their netns, ordered by interface name.
func (t *Table) Lists(ip netip.Addr) (all []Listed) {
	for _, i := range t.interfaces {
		for a := range i.View.Find(ip) {
			all = append(all, Listed{i.key(a), vlanOf(a), i, a})
		}
	}
	slices.SortFunc(all, func(x, y Listed) int { return strings.Compare(x.Interface.Name, y.Interface.Name) })
	return all
}

// Lost counts the addresses of pods whose IPv6 duplicate address detection failed (RFC 4862 section 5.4.5), and
// returns up to limit of them, ordered by interface name. The pod's kernel does not use the address: it takes another holder on
// the link to have it, or its own packets came back. An address that two interfaces lead to counts twice.
func (t *Table) Lost(limit int) (list []Listed, total int) {
	interfaces := slices.SortedFunc(t.All(), func(x, y *Interface) int { return cmp.Compare(x.Name, y.Name) })
	for _, i := range interfaces {
		for _, a := range i.View.Addresses {
			if !isLost(a) {
				continue
			}
			if total++; total <= limit {
				list = append(list, Listed{i.key(a), vlanOf(a), i, a})
			}
		}
	}
	return list, total
}
