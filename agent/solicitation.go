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

// The node's limits on solicitations. Verification has its own, so that keeping
// silent bindings alive never delays it.
const (
	verifyPerSecond  = 500
	verifyBurst      = 500
	refreshPerSecond = 100
	refreshBurst     = 200
)

const rateReason = "the node's rate limit"

// probeGuard is how long an address that a pod probes is left alone: RFC 5227
// takes up to 9 s, and our question within that time would look like a rival's.
const probeGuard = 10 * time.Second

// maxWanted bounds the silent addresses asked for on one interface.
const maxWanted = 64

// wantPauses are the waits between attempts to hear from a configured address; it
// may not be up yet. After the last, one attempt is made at every resync.
var wantPauses = []time.Duration{
	100 * time.Millisecond, 200 * time.Millisecond, 700 * time.Millisecond, 2 * time.Second, 5 * time.Second,
}

// want is a configured address that has not been heard of.
type want struct {
	tries int
	next  time.Time // zero: wait for the next look
}

// wantConfigured asks for every address of the peer device that has no binding
// yet: a silent pod is found by its answer, not by its configuration.
func (l *loop) wantConfigured(i *podInterface, now time.Time) {
	if !i.Seen {
		return
	}
	for _, a := range i.View.Addresses {
		if a.Where != netns.OnPeer || !a.Settled {
			continue
		}
		vlan := bpf.VLAN{Outer: a.OuterVLAN, Inner: a.InnerVLAN}
		where := segmentAddress{a.IP, vlan}
		name := network(i.Interface, vlan)
		if w := i.wanted[where]; w != nil {
			if w.next.IsZero() {
				w.next = now
			}
			continue
		}
		if l.detector.Heard(detector.Key{Network: name, IP: a.IP}, i.holder) {
			continue
		}
		if len(i.wanted) >= maxWanted {
			l.dropped["too many addresses"]++
			return
		}
		i.addSegment(name, vlan)
		i.wanted[where] = &want{next: now}
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
			if w.next.IsZero() || w.next.After(now) {
				continue
			}
			if l.detector.Heard(detector.Key{Network: network(i.Interface, where.vlan), IP: where.ip}, i.holder) {
				delete(i.wanted, where)
				continue
			}
			if _, until := l.guard(i, where, now); !until.IsZero() {
				w.next = until
				continue
			}
			if !l.refreshRate.AllowN(now, 1) {
				w.next = now.Add(50 * time.Millisecond)
				continue
			}
			// A device that is down or gone says so by its own events.
			_ = l.sender.Send(target(i, where))
			w.next = time.Time{}
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
	if s.Holder == l.host {
		l.solicitHost(s, now)
		return
	}
	refuse := func(reason string, notBefore time.Time) {
		l.apply(l.detector.NotSolicited(s, reason, notBefore, now))
	}
	i := l.interfaces[s.Interface]
	if i == nil {
		refuse("the interface is gone", time.Time{})
		return
	}
	vlan, ok := i.segments[s.Key.Network]
	if !ok {
		refuse("the interface has left the network", time.Time{})
		return
	}
	where := segmentAddress{s.Key.IP, vlan}
	if reason, until := l.guard(i, where, now); !until.IsZero() {
		refuse(reason, until)
		return
	}
	limiter := l.refreshRate
	if s.Purpose == detector.Verify {
		limiter = l.verifyRate
	}
	if !limiter.AllowN(now, 1) {
		l.dropped["solicitation rate"]++
		refuse(rateReason, now.Add(100*time.Millisecond))
		return
	}
	// Told first: the answer must not be older than the question.
	l.detector.Solicited(s, now)
	switch err := l.sender.Send(target(i, where)); {
	case err == nil:
	case errors.Is(err, unix.ENETDOWN), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		// Going away or down: no answer is the right answer.
	default:
		l.log.Debug("solicitation failed", "interface", i.Name, "ip", s.Key.IP, "error", err)
		refuse(err.Error(), now.Add(time.Second))
	}
}

// solicitHost answers for the node itself by a look at its addresses.
func (l *loop) solicitHost(s detector.Solicitation, now time.Time) {
	if !l.verifyRate.AllowN(now, 1) {
		l.dropped["solicitation rate"]++
		l.apply(l.detector.NotSolicited(s, rateReason, now.Add(100*time.Millisecond), now))
		return
	}
	host, err := links.ListHostAddresses(func(int) bool { return false })
	if err != nil {
		l.apply(l.detector.NotSolicited(s, err.Error(), now.Add(time.Second), now))
		return
	}
	l.detector.Solicited(s, now)
	for _, address := range host {
		if address.IP == s.Key.IP {
			l.apply(l.detector.Observe(l.hostSighting(address, time.Now()), time.Now()))
			return
		}
	}
}
