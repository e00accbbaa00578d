package agent

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/links"
	"github.com/dupip/dupip/agent/netns"
	"github.com/dupip/dupip/agent/solicit"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

const (
	rateReason = "the node's rate limit"
	// rateWait is when one that the rate limit stopped is tried again.
	rateWait = 100 * time.Millisecond
)

// probeGuard is how long an address that a pod probes is left alone: RFC 5227
// takes up to 9 s, and our question within that time would look like a rival's.
const probeGuard = 10 * time.Second

// maxWanted bounds the silent addresses asked for on one interface.
const maxWanted = 64

// wantPauses are the waits between attempts to hear from a configured address; it
// may not be up yet. After the last there is one every wantedLater.
var wantPauses = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

const wantedLater = 30 * time.Second

// want is a configured address that has not been heard of.
type want struct {
	tries int
	next  time.Time
	// left: it is not configured any more, and asked for a few times only.
	left bool
}

// wantConfigured asks for every address of the peer device, or of an unnumbered pod, that
// has no binding yet: a silent pod is found by its answer, not by its configuration.
func (l *loop) wantConfigured(i *podInterface, now time.Time) {
	for _, where := range i.configured() {
		l.want(i, where, now)
	}
}

// wantAgain asks for an address whose binding has ended, where it is still configured: frames
// may have been lost, or the pod was frozen, and it may say nothing by itself. One that again
// and again answers this question only is asked as late as the detector wants to hear of it.
func (l *loop) wantAgain(key detector.Key, id detector.HolderID, now time.Time) {
	for _, i := range l.interfaces {
		if i.holder != id {
			continue
		}
		for _, where := range i.configured() {
			if where.ip == key.IP && network(l.config, i.Interface, where.vlan, where.ip) == key.Network {
				l.want(i, where, later(now, l.detector.DeafUntil(key, id)))
			}
		}
	}
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// configured are the addresses to ask for, as far as they are known.
func (i *podInterface) configured() (all []segmentAddress) {
	if !i.Seen {
		return nil
	}
	// Addresses on lo are asked for only where there is nothing else: many pods lawfully
	// have a service's there and keep silent about it.
	unnumbered := i.View.Peer == links.PrimaryPeer && i.View.Unnumbered()
	for _, a := range i.View.Addresses {
		if a.Settled && (a.Where == netns.OnPeer || unnumbered) {
			all = append(all, segmentAddress{a.IP, bpf.VLAN{Outer: a.OuterVLAN, Inner: a.InnerVLAN}})
		}
	}
	if i.View.Peer != links.PrimaryPeer || i.View.Explains(0, 0) {
		return all
	}
	// In the sandbox of a virtual machine the guest has the addresses and the netns has
	// none; the runtime may know them. They are those of eth0.
	for _, ip := range i.sandboxIPs {
		if ip.IsGlobalUnicast() && !i.View.Lists(ip) {
			all = append(all, segmentAddress{ip: ip})
		}
	}
	return all
}

// wantLeft asks for addresses that have left the netns where it has no others: a process may
// have taken them over from the kernel (gVisor does), and the observer told of them already.
func (l *loop) wantLeft(i *podInterface, left []segmentAddress, now time.Time) {
	for _, where := range left {
		if i.View.Explains(where.vlan.Outer, where.vlan.Inner) || i.wanted[where] != nil {
			continue
		}
		l.want(i, where, now)
		if w := i.wanted[where]; w != nil {
			w.left = true
		}
	}
}

// want begins to ask for an address at some time, or goes on, unless it was heard of.
func (l *loop) want(i *podInterface, where segmentAddress, at time.Time) {
	if i.wanted[where] != nil {
		return
	}
	name := network(l.config, i.Interface, where.vlan, where.ip)
	switch {
	case !l.config.Solicits(name) || l.detector.Heard(detector.Key{Network: name, IP: where.ip}, i.holder):
	case len(i.wanted) >= maxWanted:
		l.dropped[dropAddresses]++
	default:
		i.addSegment(name, where.vlan)
		i.wanted[where] = &want{next: at}
	}
}

// nextWanted returns when solicitWanted has work, zero for never.
func (l *loop) nextWanted() time.Time {
	var next time.Time
	for _, i := range l.interfaces {
		for _, w := range i.wanted {
			next = earliest(next, w.next)
		}
	}
	return next
}

// solicitWanted sends what is due of the attempts to hear from silent addresses.
func (l *loop) solicitWanted() {
	now := time.Now()
	for _, i := range l.interfaces {
		for where, w := range i.wanted {
			if w.next.After(now) {
				continue
			}
			name := network(l.config, i.Interface, where.vlan, where.ip)
			if !l.config.Solicits(name) || l.detector.Heard(detector.Key{Network: name, IP: where.ip}, i.holder) {
				delete(i.wanted, where)
				continue
			}
			if _, until := l.guard(i, where, now); !until.IsZero() {
				w.next = until
				continue
			}
			if until := l.vanishing(i, now); !until.IsZero() {
				w.next = until
				continue
			}
			if !l.refreshRate.AllowN(now, 1) {
				w.next = now.Add(50 * time.Millisecond)
				continue
			}
			// A device that is down or gone says so by its own events.
			if l.sender.Send(target(i, where)) == nil {
				i.asked(where.ip, now)
				l.solicited[detector.Refresh]++
			}
			w.next = now.Add(wantedLater)
			if w.left && w.tries == len(wantPauses) {
				delete(i.wanted, where)
			}
			if w.tries < len(wantPauses) {
				w.next = now.Add(wantPauses[w.tries])
				w.tries++
			}
		}
	}
}

func target(i *podInterface, where segmentAddress) solicit.Target {
	return solicit.Target{Ifindex: i.Index, IP: where.ip, OuterVLAN: where.vlan.Outer, InnerVLAN: where.vlan.Inner}
}

// guard says why an address must not be solicited now, and until when.
func (l *loop) guard(i *podInterface, where segmentAddress, now time.Time) (string, time.Time) {
	for _, a := range i.View.Addresses {
		switch {
		case a.IP != where.ip:
		case !a.Settled:
			return "duplicate address detection runs in the pod", now.Add(time.Second)
		case i.View.Taken.After(i.probes[where]):
			delete(i.probes, where) // the pod's own kernel is through with it
		}
	}
	if probed, ok := i.probes[where]; ok {
		if until := probed.Add(probeGuard); until.After(now) {
			return "the pod is probing the address itself", until
		}
		delete(i.probes, where)
	}
	return "", time.Time{}
}

// dyingFor is how long a netns that nothing leads to any more is taken for a dead pod's:
// the kernel takes such down one after the other, and on a busy node that takes seconds,
// in which the former holder of an address still answers beside the next.
const dyingFor = 30 * time.Second

// vanishing says until when the holder behind an interface is not to be verified, because
// its netns is about to go; zero for at once.
func (l *loop) vanishing(i *podInterface, now time.Time) time.Time {
	switch {
	case i.Seen && !i.Place.Exists():
		// It may have got another name, or process; the look will tell.
		l.watcher.Refresh(i.Generation)
		return now.Add(200 * time.Millisecond)
	case !i.lost.IsZero() && now.Sub(i.lost) < dyingFor:
		return i.lost.Add(dyingFor)
	}
	return time.Time{}
}

func (l *loop) forgetProbes(i *podInterface) {
	limit := time.Now().Add(-probeGuard)
	for where, at := range i.probes {
		if at.Before(limit) {
			delete(i.probes, where)
		}
	}
}

// solicit does what the detector asked for, or tells it why not.
func (l *loop) solicit(s detector.Solicitation) {
	now := time.Now()
	if s.Holder.Node != l.node.ID() {
		l.askNode(s, now)
		return
	}
	if refusal, until := l.put(s, now); refusal != "" {
		l.apply(l.detector.NotSolicited(s, refusal, until, now))
	}
}

// put puts a question to a holder of this node, and tells the detector of it. A safeguard
// that forbids it is returned: for how long, or with zero until something changes.
func (l *loop) put(s detector.Solicitation, now time.Time) (refusal string, until time.Time) {
	if s.Holder == l.host {
		return l.lookAtHost(s, now)
	}
	if !l.config.Solicits(s.Key.Network) {
		return "solicitation is off in network " + s.Key.Network, time.Time{}
	}
	i := l.interfaces[s.Interface]
	if i == nil {
		return "the interface is gone", time.Time{}
	}
	vlan, ok := i.segments[s.Key.Network]
	if !ok {
		return "the interface has left the network", time.Time{}
	}
	where := segmentAddress{s.Key.IP, vlan}
	if reason, until := l.guard(i, where, now); !until.IsZero() {
		return reason, until
	}
	limiter := l.refreshRate
	if s.Purpose == detector.Verify {
		limiter = l.verifyRate
		if until := l.vanishing(i, now); !until.IsZero() {
			return "its netns has neither a name nor a process any more", until
		}
	}
	if !limiter.AllowN(now, 1) {
		l.dropped[dropRate]++
		return rateReason, now.Add(rateWait)
	}
	// Told first: the answer must not be older than the question.
	l.detector.Solicited(s, now)
	switch err := l.sender.Send(target(i, where)); {
	case err == nil:
		i.asked(where.ip, now)
		l.solicited[s.Purpose]++
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		// Going away or down: no answer is the right answer.
	default:
		l.log.Debug("solicitation failed", "interface", i.Name, "ip", s.Key.IP, "error", err)
		return err.Error(), now.Add(time.Second)
	}
	return "", time.Time{}
}
