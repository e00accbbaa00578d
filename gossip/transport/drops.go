package transport

import (
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"
)

// drop is why something was not accepted or not sent.
type drop uint8

const (
	dropOversize   drop = iota + 1 // larger than anything that an agent sends
	dropMalformed                  // not of an agent
	dropLabel                      // of another cluster
	dropReceiver                   // for another incarnation
	dropKey                        // sealed with another key, or only one side has a key
	dropReplay                     // received before, or too late
	dropStream                     // a connection beyond the limits, or one that stalled or failed
	dropMemberlist                 // nothing that an agent sends by memberlist
	dropUnsent                     // the network refused it
	dropUnproved                   // in the name of a member that has not proved that it sends this
	dropChallenge                  // a challenge of a member that sends too many
	dropShort                      // the most of a list of members, for one of many that join at once
	dropCount
)

// dropNames are the values of the label "reason" in metrics.
var dropNames = [dropCount]string{
	"", "oversize", "malformed", "label", "receiver", "key", "replay", "stream", "memberlist", "unsent", "unproved", "challenge", "short_list",
}

// mistakes are for people: reasons that say that an agent is configured otherwise than this one. The
// text has its address, which without a connection may be forged.
var mistakes = [dropCount]string{
	dropLabel: "the agent at %s is of another cluster: if this node belongs there, give both the same --cluster",
	dropKey:   "the agent at %s does not have the gossip key of this node: give both the same --gossip-key-file",
}

// mistakeFor is how long a mistake is reported after the last sign of it.
const mistakeFor = 5 * time.Minute

// drops counts by reason, and remembers where the last mistake came from. It is safe for concurrent use.
type drops struct {
	counts [dropCount]atomic.Uint64

	mu    sync.Mutex
	lasts [dropCount]struct {
		from netip.Addr
		at   time.Time
	}
}

func (d *drops) add(why drop) { d.counts[why].Add(1) }

// addFrom adds something of an address.
func (d *drops) addFrom(why drop, from netip.Addr) {
	d.add(why)
	if mistakes[why] != "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.lasts[why].from, d.lasts[why].at = from, time.Now()
	}
}

// Problems returns what is wrong as clauses for people: mistakes of the last 5 minutes, and a key file that
// cannot be read.
func (t *Transport) Problems(now time.Time) (all []string) {
	if t.keys != nil {
		if problem := t.keys.problem.Load(); problem != nil {
			all = append(all, *problem)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for why, last := range t.lasts {
		if !last.at.IsZero() && now.Sub(last.at) < mistakeFor {
			all = append(all, fmt.Sprintf(mistakes[why], last.from))
		}
	}
	return all
}

// Dropped returns the counts by reason, also those that are 0.
func (d *drops) Dropped() map[string]uint64 {
	counts := make(map[string]uint64, dropCount)
	for why := drop(1); why < dropCount; why++ {
		counts[dropNames[why]] = d.counts[why].Load()
	}
	return counts
}
