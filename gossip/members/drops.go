package members

import "sync/atomic"

// drop is why something was not taken in or not sent.
type drop uint8

const (
	dropOversize  drop = iota // a packet larger than any member sends
	dropUnsent                // the network refused a packet
	dropMetadata              // a member whose metadata is not what it should be
	dropCrowd                 // a member beyond the most that are kept
	dropBroadcast             // a broadcast beyond the most that wait
	dropStream                // a connection beyond the most that are open or sent, or no member's
	dropKey                   // gossip under a key that is not here, or under none
	dropLabel                 // gossip of another cluster
	dropMalformed             // gossip that cannot be read
	dropFull                  // messages that came faster than they were taken
	dropCount
)

// dropNames are the reasons as metrics have them.
var dropNames = [dropCount]string{
	"oversize", "unsent", "metadata", "members", "broadcast", "stream",
	"key", "label", "malformed", "queue",
}

// drops counts. It may be used by several goroutines at once.
type drops [dropCount]atomic.Uint64

func (d *drops) add(why drop) { d[why].Add(1) }

// counts has every reason, those that did not occur too.
func (d *drops) counts() map[string]uint64 {
	counts := make(map[string]uint64, dropCount)
	for i := range d {
		counts[dropNames[i]] = d[i].Load()
	}
	return counts
}
