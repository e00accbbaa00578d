package agent

import (
	"maps"
	"slices"
	"time"

	"golang.org/x/time/rate"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector"
)

// configure puts a configuration into force: at the start, and after every reload.
func (l *loop) configure(c *config.Config) {
	now := time.Now()
	before := l.config
	reload := before != nil
	l.config = c
	limits := c.Limits()
	l.detector.SetLimits(limits.Bindings, limits.BindingsPerInterface, limits.History)
	if reload {
		setRate(l.verifyRate, limits.VerifyPerSecond)
		setRate(l.refreshRate, limits.RefreshPerSecond)
	} else {
		l.verifyRate, l.refreshRate = perSecond(limits.VerifyPerSecond), perSecond(limits.RefreshPerSecond)
	}
	l.watcher.SetIgnore(c.Ignored)
	l.apply(l.detector.SetShared(func(key detector.Key) bool { return c.Shared(key.IP) }, now))
	if reload {
		l.followHost(l.hostAddresses, now)
		l.moveBindings(now, slices.Collect(maps.Values(l.interfaces))...)
		l.rescope(before, now)
		l.solicitWanted()
	}
}

// perSecond makes a limiter that lets a second's worth through at once.
func perSecond(n int) *rate.Limiter { return rate.NewLimiter(rate.Limit(n), n) }

func setRate(limiter *rate.Limiter, perSecond int) {
	limiter.SetLimit(rate.Limit(perSecond))
	limiter.SetBurst(perSecond)
}

// moveBindings puts the bindings that were seen on these interfaces into the networks that
// their addresses belong to now. What was seen stays true, it only belongs elsewhere; the
// kernel's table would not tell it again for a while.
func (l *loop) moveBindings(now time.Time, interfaces ...*podInterface) {
	segments := make(map[detector.Interface]map[string]bpf.VLAN, len(interfaces))
	for _, i := range interfaces {
		segments[i.ref], i.segments = i.segments, make(map[string]bpf.VLAN)
		clear(i.wanted)
	}
	for _, b := range l.detector.Bindings(func(b *detector.Binding) bool { return segments[b.Holder.Interface] != nil }) {
		i := l.interfaces[b.Holder.Interface]
		vlan, here := segments[i.ref][b.Key.Network]
		if !here || b.Holder.ID != i.holder {
			continue
		}
		name := network(l.config, i.Interface, vlan, b.Key.IP)
		i.addSegment(name, vlan)
		if name == b.Key.Network {
			continue
		}
		l.apply(l.detector.Withdraw(b.Key, b.Holder.ID, "it belongs to network "+name+" now", now))
		l.apply(l.detector.Observe(detector.Sighting{
			Key:      detector.Key{Network: name, IP: b.Key.IP},
			Holder:   b.Holder,
			Evidence: b.Evidence,
			At:       b.LastSeen,
		}, now))
	}
	for _, i := range interfaces {
		l.wantConfigured(i, now)
	}
}
