package detector

import (
	"cmp"
	"time"
)

// Options are the identity and the limits of a Detector. A limit that is zero or negative takes its default.
type Options struct {
	// Node identifies the node whose detector this is, as in [HolderID].
	Node string
	// MinOverlap is the least time between the two rounds of a verification. So the holders of a
	// confirmed conflict had the address together for at least that time. Default 1 s.
	MinOverlap time.Duration
	// NodeOverlap is the same for the addresses of nodes themselves: a virtual address that moves is on both for a while. Default 10 s.
	NodeOverlap time.Duration
	// MaxBindings limits the bindings in the table. Default 65,536.
	MaxBindings int
	// MaxPerInterface limits the bindings of one interface. Default 256.
	MaxPerInterface int
	// MaxHistory limits the resolved conflicts that are kept, and also the stories of addresses without
	// holders. Default 1,000.
	MaxHistory int
	// Budget limits when conflicts begin a round; nil: no limit.
	Budget Budget
}

// Budget is how many probes of holders of this node may be sent.
type Budget interface {
	// Reserve sets one probe of each of these holders aside for a round now, and one for a round again; that is zero if the round only checks
	// whether they still answer. A round that yields leaves room for others. If there are too many, Reserve returns when it may be tried
	// again, and whether that holds for all holders of the node. It must not call the detector.
	Reserve(holders []Probe, again, now time.Time, yields bool) (until time.Time, all bool)
}

const (
	defaultMinOverlap      = time.Second
	defaultNodeOverlap     = 10 * time.Second
	defaultMaxBindings     = 65_536
	defaultMaxPerInterface = 256
	defaultMaxHistory      = 1_000

	bindingTTL = 5 * time.Minute // of a binding without evidence
	// stoppedTime is how long a remote holder stays whose agent has ended in order, if no other one begins.
	stoppedTime = 90 * time.Second

	maxHolders      = 64 // per key
	maxRemote       = 16 // remote holders per key
	maxRemoteOfNode = 4  // remote holders per key and node
	maxSources      = 4  // interfaces per binding
	maxNotes        = 32 // per key
)

func (o Options) withDefaults() Options {
	o.MinOverlap = cmp.Or(max(o.MinOverlap, 0), defaultMinOverlap)
	o.NodeOverlap = cmp.Or(max(o.NodeOverlap, 0), defaultNodeOverlap)
	o.MaxBindings = cmp.Or(max(o.MaxBindings, 0), defaultMaxBindings)
	o.MaxPerInterface = cmp.Or(max(o.MaxPerInterface, 0), defaultMaxPerInterface)
	o.MaxHistory = cmp.Or(max(o.MaxHistory, 0), defaultMaxHistory)
	return o
}
