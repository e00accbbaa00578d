package exchange

import (
	"cmp"
	"slices"
	"time"

	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/internal/schedule"
)

// probeReuse is how long a probe also serves other requests about the holder that arrived before it. Later
// requests wait that long, so that the next probe serves all of them: if many nodes have an address, each
// sends a request to each.
const probeReuse = 20 * time.Millisecond

// request is a probe request of another node that is not answered yet.
type request struct {
	cluster.ProbeRequest
	schedule.Place // until it has ended
	arrived        time.Time
	began          time.Time // first attempt; zero before
	attempts       int
	next           time.Time // of the next attempt
	forwards       bool      // it answered, but for an address that it does not have
	// unreported: its last probe was not reported to Probed.
	unreported bool
	// configured: the answer is what the kernel of the holder has configured.
	configured bool
}

// Before implements [schedule.Element]: by next, then by arrival.
func (r *request) Before(o *request) bool {
	return cmp.Or(r.next.Compare(o.next), r.arrived.Compare(o.arrived)) < 0
}

func (r *request) target() target { return target{r.Key, r.Holder} }

// target is the holder and the address that a request is about.
type target struct {
	key    detector.Key
	holder detector.HolderID
}

// requests are the probe requests of other nodes that wait. The zero value is empty.
type requests struct {
	due      schedule.Schedule[*request]
	byTarget map[target][]*request
	// probed has the time of the last probe of each holder in recent, which is ordered by that time.
	probed map[target]time.Time
	recent []target
	// paused is until when requests wait because the probe budget is used up.
	paused time.Time
}

func (rs *requests) add(r *request) {
	if rs.byTarget == nil {
		rs.byTarget, rs.probed = make(map[target][]*request), make(map[target]time.Time)
	}
	to := r.target()
	if at, ok := rs.probed[to]; ok && r.next.Before(at.Add(probeReuse)) {
		r.next = at.Add(probeReuse)
	}
	rs.due.Set(r)
	rs.byTarget[to] = append(rs.byTarget[to], r)
}

// end removes a request. It reports false if the request has ended already.
func (rs *requests) end(r *request) bool {
	if r.Place == 0 {
		return false
	}
	rs.due.Remove(r)
	to := r.target()
	rest := slices.DeleteFunc(rs.byTarget[to], func(other *request) bool { return other == r })
	if rs.byTarget[to] = rest; len(rest) == 0 {
		delete(rs.byTarget, to)
	}
	return true
}

// wait sets the time of the next attempt, unless the request has ended.
func (rs *requests) wait(r *request, until time.Time) {
	if r.Place != 0 {
		r.next = until
		rs.due.Set(r)
	}
}

// setProbed records that a holder was probed.
func (rs *requests) setProbed(to target, now time.Time) {
	for len(rs.recent) > 0 && now.Sub(rs.probed[rs.recent[0]]) >= probeReuse {
		delete(rs.probed, rs.recent[0])
		rs.recent = rs.recent[1:]
	}
	rs.probed[to] = now
	rs.recent = append(rs.recent, to)
}

// probedRecently reports whether the holder was probed less than probeReuse ago, and after the request
// arrived. The request then needs no probe of its own.
func (rs *requests) probedRecently(r *request, now time.Time) bool {
	at, ok := rs.probed[r.target()]
	return ok && now.Sub(at) < probeReuse && !at.Before(r.arrived)
}

// first returns the first request that is due, nil if there is none.
func (rs *requests) first(now time.Time) *request {
	if rs.next().After(now) {
		return nil
	}
	return rs.due.First()
}

// next returns when first returns a request, zero for never.
func (rs *requests) next() time.Time {
	r := rs.due.First()
	if r == nil {
		return time.Time{}
	}
	return schedule.Later(r.next, rs.paused)
}
