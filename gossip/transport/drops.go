package transport

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// Drop is why something was not accepted or not sent.
type Drop uint8

// The reasons.
const (
	DropOversize  Drop = iota + 1 // larger than anything that an agent sends
	DropMalformed                 // not of an agent
	DropVersion                   // of an agent of version 0.1
	DropLabel                     // of another cluster
	DropReceiver                  // for another incarnation
	DropKey                       // sealed with another key, or only one side has a key
	DropReplay                    // came before, or too late
	DropSource                    // too many of one address, or of all
	DropStream                    // a connection beyond the limits, or one that stalled
	DropUnsent                    // the network refused it
	DropUnproven                  // the receiver has not proven that it is there
	dropCount
)

var dropNames = [dropCount]string{
	"", "oversize", "malformed", "version", "label", "receiver", "key", "replay", "source", "stream", "unsent", "unproven",
}

// String returns the value of the label "reason" in metrics.
func (d Drop) String() string { return dropNames[d] }

// Drops counts by reason, and remembers where the last came from that tell of an operator's mistake.
// It is safe for concurrent use.
type Drops struct {
	counts [dropCount]atomic.Uint64

	mu    sync.Mutex
	lasts map[Drop]last
}

type last struct {
	from netip.Addr
	at   time.Time
}

func (d *Drops) add(why Drop) { d.counts[why].Add(1) }

func (d *Drops) from(why Drop, from netip.Addr, now time.Time) {
	d.add(why)
	if mistakes[why] == "" {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.lasts == nil {
		d.lasts = make(map[Drop]last)
	}
	d.lasts[why] = last{from, now}
}

// mistakes are the reasons that say that an agent is configured otherwise than this one. The text has
// the address.
var mistakes = map[Drop]string{
	DropVersion: "an agent of dupip 0.1 at %s is in a cluster of its own: finish the upgrade; until then the two halves find only their own duplicates",
	DropLabel:   "gossip from %s is of another cluster: if this node belongs there, give both the same --cluster",
	DropKey:     "gossip from %s does not fit the keys of this node: give both the same --gossip-key-file",
}

// mistakeFor is how long a mistake is reported after the last sign of it.
const mistakeFor = 5 * time.Minute

// Problems are clauses for people.
func (t *Transport) Problems(now time.Time) (all []string) {
	if t.keys != nil {
		all = t.keys.problems()
	}
	t.drops.mu.Lock()
	defer t.drops.mu.Unlock()
	for _, why := range []Drop{DropVersion, DropLabel, DropKey} {
		if l, ok := t.drops.lasts[why]; ok && now.Sub(l.at) < mistakeFor {
			all = append(all, fmt.Sprintf(mistakes[why], l.from))
		}
	}
	return all
}

// Dropped returns the counts by reason, also those that are 0.
func (t *Transport) Dropped() map[string]uint64 {
	counts := make(map[string]uint64, dropCount)
	for d := Drop(1); d < dropCount; d++ {
		counts[d.String()] = t.drops.counts[d].Load()
	}
	return counts
}
