package gossip

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip/lease"
	"github.com/dupip/dupip/gossip/members"
	"github.com/dupip/dupip/gossip/retry"
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
		g.holders.leases.Resend(nil, now)
	}
	for _, t := range g.in.take() {
		t.do(now)
	}
	g.reports.again(now)
	for _, n := range g.roster.Cleanup(now) {
		g.holders.kept.Forget(n)
		delete(g.peers.all, n)
	}
	next = schedule.Earlier(now.Add(tick), g.holders.kept.Expire(now))
	next = schedule.Earlier(next, g.send(now))
	return schedule.Earlier(next, g.post.flush(now))
}

// handler is what the network calls. It implements [members.Handler].
type handler struct{ *Gossip }

func (g handler) Receive(from wire.MemberID, _ netip.AddrPort, payload []byte) {
	payload = slices.Clone(payload)
	g.in.packet(func(now time.Time) { g.receive(from, payload, now) })
}

func (g handler) Serve(ctx context.Context, request []byte) []byte {
	return g.queries.serve(ctx, request)
}

func (g handler) Joined(m members.Member) {
	g.in.call(func(now time.Time) {
		changes, err := g.roster.Join(m.ID, m.Member, now)
		if err != nil {
			g.count.drop(dropNodes)
		}
		g.changed(changes, now)
	})
}

func (g handler) Left(m members.Member, gracefully bool) {
	g.in.call(func(now time.Time) { g.changed(g.roster.Leave(m.ID, gracefully, now), now) })
}

// changed handles changes of members.
func (g *Gossip) changed(changes []roster.Change, now time.Time) {
	for _, change := range changes {
		n := change.Node
		g.memberLines.log(g.log, change, now)
		switch change.Kind {
		case roster.Went:
			for _, m := range g.post.RemoveAll(n) {
				g.gaveUp(m, now)
			}
			g.holders.leases.Moved(n, now)
			if n.State == cluster.Left {
				g.peers.deliver(cluster.Stopped{Node: n.ID})
			}
			continue
		case roster.Renewed:
			g.holders.leases.Renewed(n, now)
		case roster.Came:
			g.peers.returned(n, now)
			if n.IsAgent() {
				g.holders.leases.Moved(n, now)
			}
			if change.Again {
				g.post.put(n, resend{}, now) // it may not know that it was gone, and take its leases for acknowledged
			}
		}
		g.holders.ask(n, now)
		g.reports.toOne(n, now)
	}
}

// receive handles a datagram.
func (g *Gossip) receive(id wire.MemberID, payload []byte, now time.Time) {
	g.changed(g.roster.Heard(id, now), now)
	from := g.roster.Sender(id)
	if from == nil || from == g.roster.Self() {
		g.count.drop(dropUnknown)
		return
	}
	from.Heard = now
	if !g.peers.of(from).packets.AllowN(now, 1) {
		g.count.drop(dropPackets)
		return
	}
	g.peers.returned(from, now)
	m, invalid, unknown, err := wire.Decode(payload, from.ID, now)
	g.count.field(unknown)
	if err != nil {
		invalid++
	}
	g.count.dropN(dropMalformed, invalid)
	each(g, from, now, wire.KindAck, m.Acks, g.receiveAck)
	each(g, from, now, wire.KindReply, m.Replies, g.probes.receiveReply)
	each(g, from, now, wire.KindNotice, m.Notices, g.holders.receiveNotice)
	each(g, from, now, wire.KindRequest, m.Requests, g.probes.receiveRequest)
	each(g, from, now, wire.KindLease, m.Leases, g.holders.receiveLease)
	each(g, from, now, wire.KindResend, m.Resends, g.holders.receiveResend)
	each(g, from, now, wire.KindReport, m.Reports, g.receiveReport)
}

// each handles the messages of one kind: what receive returns goes back to the sender.
func each[M any](g *Gossip, from *roster.Node, now time.Time, kind wire.Kind, list []M, receive func(*roster.Node, M, time.Time) wire.Message) {
	g.count.receive(kind, len(list))
	for _, m := range list {
		if back := receive(from, m, now); back != nil {
			g.post.add(from, back, now)
		}
	}
}

// receiveAck handles an acknowledgement. That of a probe request is its reply.
func (g *Gossip) receiveAck(from *roster.Node, a wire.Ack, now time.Time) wire.Message {
	switch m := g.post.Waiting(from, a.Seq).(type) {
	case nil, *request: // it has changed since
	case *lease.Lease:
		g.holders.receiveAck(from, m, a, now)
	default:
		g.post.Remove(from, m.Identity())
	}
	return nil
}

// send sends the messages that are due, and returns when one is due next, zero for never.
func (g *Gossip) send(now time.Time) time.Time {
	if len(g.post.packets) >= maxBacklog {
		return now.Add(batchEvery)
	}
	for _, d := range g.post.Due(now, maxBacklog) {
		if d.GaveUp {
			g.gaveUp(d.Message, now)
			continue
		}
		switch message := g.message(d, now); {
		case message == nil:
			g.post.Remove(d.To, d.Message.Identity())
		case d.To != g.roster.Self():
			g.post.add(d.To, message, now)
		default:
			g.toSelf(message, now)
		}
	}
	return g.post.Next()
}

// toSelf handles a message of this node to itself, which may be a keeper of its own addresses.
func (g *Gossip) toSelf(message wire.Message, now time.Time) {
	var back wire.Message
	switch m := message.(type) {
	case wire.Lease:
		back = g.holders.receiveLease(g.roster.Self(), m, now)
	case wire.Notice:
		back = g.holders.receiveNotice(g.roster.Self(), m, now)
	}
	if ack, ok := back.(wire.Ack); ok {
		g.receiveAck(g.roster.Self(), ack, now)
	}
}

// message returns what is sent for a message that waits, nil if that is not to be sent any more.
func (g *Gossip) message(d retry.Due, now time.Time) wire.Message {
	switch m := d.Message.(type) {
	case *lease.Lease:
		if m.Gone && g.holders.leases.Live(m.ID) {
			return nil // the holder has the address again
		}
		return wire.Lease{Seq: d.Seq, Key: m.Key, Gone: m.Gone, Binding: m.Binding}
	case notice:
		if n := g.holders.kept.Others(d.To, m.key); len(n.Others) > 0 {
			n.Seq = d.Seq
			return n
		}
		return nil
	case resend:
		return wire.Resend{Seq: d.Seq}
	case *request:
		return wire.ProbeRequest{ID: d.Seq, Key: m.probe.Key, Holder: m.probe.Holder, Others: m.own}
	case *report:
		if m.summary != nil {
			return wire.Report{Seq: d.Seq, Summary: m.summary}
		}
		conflict, err := m.encode(now, wire.MaxReport)
		if err != nil {
			g.log.Warn("a conflict cannot be reported; \"dupip conflicts\" has it", "ip", m.key.IP, "error", err)
			return nil
		}
		return wire.Report{Seq: d.Seq, Conflict: conflict}
	}
	panic("unknown message")
}

// gaveUp handles a message that nobody has acknowledged in time. Only a probe request has somebody who waits for it.
func (g *Gossip) gaveUp(m retry.Message, now time.Time) {
	if r, ok := m.(*request); ok {
		g.probes.unanswered(r, now)
	}
}

// receiveReport handles a report, if this member is a reporter.
func (g *Gossip) receiveReport(from *roster.Node, m wire.Report, now time.Time) wire.Message {
	if g.roster.Self().Role != cluster.Reporter {
		g.count.drop(dropReporter)
	} else if g.peers.deliverOf(from, cluster.Report{Node: from.ID, Epoch: from.Epoch, At: now, Conflict: m.Conflict, Summary: m.Summary}, now) {
		return wire.Ack{Seq: m.Seq}
	}
	return nil
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

const (
	// maxPackets bounds the datagrams that wait, and with it about 4 MB.
	maxPackets = 4096
	// maxCalls bounds the calls of the agent and the changes of members that wait: all leases and members can change
	// at once.
	maxCalls = lease.MaxLeases + 1<<15
	// maxTaken is how many of all one turn of the loop handles: others wait for the next.
	maxTaken = 512
)

// input is what waits for the loop, in the order in which it came. It must not know what that is. Its methods are safe for concurrent use
// and never wait.
type input struct {
	count *counters
	wake  chan struct{} // has one value when there is something to handle

	mu             sync.Mutex
	waiting        []task
	packets, calls int
}

type task struct {
	do func(now time.Time)
	of *int // packets or calls
}

// take returns what to do in one turn.
func (in *input) take() []task {
	in.mu.Lock()
	defer in.mu.Unlock()
	taken := in.waiting
	if in.waiting = nil; len(taken) > maxTaken {
		taken, in.waiting = taken[:maxTaken], taken[maxTaken:]
		in.signal()
	}
	for _, t := range taken {
		*t.of--
	}
	return taken
}

func (in *input) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// add has the loop do something, and reports whether there was room for it. Otherwise it counts a drop.
func (in *input) add(do func(now time.Time), of *int, most int, drop string) bool {
	defer in.signal()
	in.mu.Lock()
	defer in.mu.Unlock()
	if *of >= most {
		in.count.drop(drop)
		return false
	}
	*of++
	in.waiting = append(in.waiting, task{do, of})
	return true
}

// call has the loop do something of the agent or the membership.
func (in *input) call(f func(now time.Time)) bool { return in.add(f, &in.calls, maxCalls, dropCalls) }

// packet has the loop handle a datagram.
func (in *input) packet(f func(now time.Time)) bool {
	return in.add(f, &in.packets, maxPackets, dropInbox)
}
