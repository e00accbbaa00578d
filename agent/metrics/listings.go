package metrics

import (
	"time"

	"github.com/dupip/dupip/detector"
)

const (
	// maxOfPair limits the listings of one pair of holders in listingTTL.
	maxOfPair = 2 * maxConflicts
	// listingTTL is how long a listing counts after its last scrape.
	listingTTL = 10 * time.Minute
	// maxListings limits the memory. What is exported beyond does not count.
	maxListings = 4096
)

// listing is what two pods can choose of the labels of their conflict.
type listing struct {
	pair       pairOfHolders
	key        detector.Key
	interfaces [2]string
	macs       [2]detector.MAC
}

// pairOfHolders are the two oldest holders of a conflict, in any order.
type pairOfHolders [2]detector.HolderID

// listings has when a scrape last had each listing. It bounds the series that a pair of holders makes over time: each new address, MAC
// or name of an interface makes new ones, which Prometheus keeps for hours.
type listings map[listing]time.Time

// expire forgets what no scrape had for listingTTL. It returns how many listings each pair has left.
func (l listings) expire(now time.Time) map[pairOfHolders]int {
	left := make(map[pairOfHolders]int)
	for is, at := range l {
		if now.Sub(at) > listingTTL {
			delete(l, is)
		} else {
			left[is.pair]++
		}
	}
	return left
}

// admit reports whether a conflict may have series of its own, and counts it in of.
func (l listings) admit(c *detector.Conflict, of map[pairOfHolders]int, now time.Time) bool {
	two := oldest(c)
	is := listing{
		pair: pairOfHolders{two[0].ID, two[1].ID}, key: c.Key,
		interfaces: [2]string{two[0].InterfaceName, two[1].InterfaceName}, macs: [2]detector.MAC{two[0].MAC, two[1].MAC},
	}
	if two[1].ID.Compare(two[0].ID) < 0 {
		is.pair = pairOfHolders{two[1].ID, two[0].ID}
	}
	if _, known := l[is]; !known {
		switch {
		case of[is.pair] >= maxOfPair:
			return false
		case len(l) >= maxListings:
			return true
		}
		of[is.pair]++
	}
	l[is] = now
	return true
}
