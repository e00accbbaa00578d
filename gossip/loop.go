package gossip

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/roster"
	"github.com/dupip/dupip/gossip/wire"
	"github.com/dupip/dupip/internal/schedule"
)

// tick is how long the loop sleeps at most, so that it notices when it was paused.
const tick = time.Second

// loop does all the work, until done is closed.
func (g *Gossip) loop(done <-chan struct{}) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var pauses pauseDetector
	for {
		select {
		case <-done:
			return
		case <-g.in.wake:
		case <-timer.C:
		}
		now := g.now()
		next := g.Turn(pauses.paused(now), now)
		timer.Reset(min(tick, time.Until(next)))
	}
}

// Turn handles what came in, does what is due, and returns when something is due next. Others may have given up this
// agent if it was paused. [Gossip.Run] calls it; a simulation that has its own time does so instead of that.
func (g *Gossip) Turn(paused bool, now time.Time) (next time.Time) {
	g.state.Lock()
	defer g.state.Unlock()
	if paused {
		g.log.Info("this node was suspended or paused; joining again and sending all leases again")
		g.network.Rejoin()
		g.leases.Resend(nil, now)
	}
	for _, t := range g.in.take() {
		t.do(now)
	}
	g.reportAgain(now)
	for _, n := range g.roster.Cleanup(now) {
		g.kept.Forget(n)
		delete(g.senders, n)
	}
	next = schedule.Earlier(now.Add(tick), g.kept.Expire(now))
	next = schedule.Earlier(next, g.send(now))
	return schedule.Earlier(next, g.out.send(now))
}

// joined handles a member that is there, or says something else of itself.
func (g *Gossip) joined(m members.Member, now time.Time) {
	changes, err := g.roster.Join(m.ID, m.Member, now)
	if err != nil {
		g.count.drop(dropNodes)
	}
	g.changed(changes, now)
}

// changed handles changes of members.
func (g *Gossip) changed(changes []roster.Change, now time.Time) {
	for _, change := range changes {
		n := change.Node
		g.logMember(change, now)
		switch change.Kind {
		case roster.Went:
			for _, m := range g.queue.RemoveAll(n) {
				g.unanswered(m, now)
			}
			g.leases.Moved(n, now)
			if n.State == cluster.Left {
				g.deliver(cluster.Stopped{Node: n.ID})
			}
			continue
		case roster.Renewed:
			g.leases.Renewed(n, now)
		case roster.Came:
			g.returned(n, now)
			if n.IsAgent() {
				g.leases.Moved(n, now)
			}
			if change.Again {
				g.put(n, resend{}, now) // it may not know that it was gone, and take its leases for acknowledged
			}
		}
		g.ask(n, now)
		g.reportAll(n, now)
	}
}

// receive handles a datagram.
func (g *Gossip) receive(id wire.MemberID, payload []byte, now time.Time) {
	from := g.roster.Sender(id)
	if from == nil || from == g.roster.Self() {
		g.count.drop(dropUnknown)
		return
	}
	from.Heard = now
	if !g.sender(from).packets.AllowN(now, 1) {
		g.count.drop(dropPackets)
		return
	}
	g.returned(from, now)
	m, invalid, unknown, err := wire.Decode(payload, from.ID, now)
	g.count.field(unknown)
	if err != nil {
		invalid++
	}
	g.count.dropN(dropMalformed, invalid)
	each(g, from, now, wire.KindAck, m.Acks, g.receiveAck)
	each(g, from, now, wire.KindReply, m.Replies, g.receiveReply)
	each(g, from, now, wire.KindNotice, m.Notices, g.receiveNotice)
	each(g, from, now, wire.KindRequest, m.Requests, g.receiveRequest)
	each(g, from, now, wire.KindLease, m.Leases, g.receiveLease)
	each(g, from, now, wire.KindResend, m.Resends, g.receiveResend)
	each(g, from, now, wire.KindReport, m.Reports, g.receiveReport)
}

// each handles the messages of one kind.
func each[M any](g *Gossip, from *roster.Node, now time.Time, kind wire.Kind, list []M, receive func(*roster.Node, M, time.Time)) {
	g.count.receive(kind, len(list))
	for _, m := range list {
		receive(from, m, now)
	}
}

const (
	// A machine that was suspended for so long joins again.
	maxSuspended = 5 * time.Second
	// A turn that is so late says that the agent was paused: others may have given it up.
	maxLate = 30 * time.Second
)

// pauseDetector notices that the machine was suspended, or this process paused.
type pauseDetector struct {
	last      time.Time
	suspended time.Duration
}

// paused reports whether that was so since the last call.
func (p *pauseDetector) paused(now time.Time) bool {
	passed, suspended, first := now.Sub(p.last), suspendedFor(), p.last.IsZero()
	more := suspended - p.suspended
	p.last, p.suspended = now, suspended
	return !first && (more > maxSuspended || passed > tick+maxLate)
}

// suspendedFor is how long the machine was suspended since it was booted: only one of the two clocks runs then.
// Both are the kernel's, so a simulation that has its own time is never suspended.
func suspendedFor() time.Duration {
	var boot, mono unix.Timespec
	if unix.ClockGettime(unix.CLOCK_MONOTONIC, &mono) != nil || unix.ClockGettime(unix.CLOCK_BOOTTIME, &boot) != nil {
		return 0
	}
	return time.Duration(boot.Nano() - mono.Nano())
}
