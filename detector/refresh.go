package detector

import (
	"encoding/binary"
	"hash/fnv"
	"time"
)

// refresh is the state of the probes that keep a silent local binding.
type refresh struct {
	count  int       // number of probes since the last evidence
	after  time.Time // no probe before this time
	jitter time.Duration
}

// refreshDue returns when to probe a silent binding next; zero for never. It is half the TTL after
// the last evidence and then three quarters, rounded up to full seconds (with the default TTL),
// because waking the agent costs more than a probe.
func (d *Detector) refreshDue(b *binding) time.Time {
	ttl := d.opts.TTL
	if !b.counts() || b.remote || b.refresh.count >= 2 {
		return time.Time{}
	}
	after := ttl / 2
	if b.refresh.count == 1 {
		after = ttl / 4 * 3
	}
	counted := later(later(b.lastOf(Claimed), b.lastOf(Data)), later(b.lastOf(Announced), b.lastOf(Host)))
	at := later(counted.Add(after+b.refresh.jitter), b.refresh.after)
	grid := max(ttl/300, 1)
	if past := at.Sub(at.Truncate(grid)); past > 0 {
		at = at.Add(grid - past)
	}
	return at
}

// probeSilent probes a silent binding that is due.
func (d *Detector) probeSilent(b *binding, now time.Time, fx *Effects) {
	due := d.refreshDue(b)
	if b.entry.conflict != nil || due.IsZero() || due.After(now) {
		return
	}
	b.refresh.count++
	b.refresh.after = now.Add(d.opts.TTL / 8) // after a suspicion, both probes may be overdue
	fx.Probes = append(fx.Probes, Probe{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.latestSource().iface, Purpose: Refresh,
	})
}

// jitterOf returns a share of -1 to 1 of span that is always the same for a binding.
func jitterOf(key Key, id HolderID, span time.Duration) time.Duration {
	h := fnv.New64a()
	ip := key.IP.As16()
	h.Write([]byte(key.Network))
	h.Write(ip[:])
	h.Write([]byte(id.Node))
	var n [16]byte
	binary.LittleEndian.PutUint64(n[:], id.Netns)
	binary.LittleEndian.PutUint32(n[8:], id.Ifindex)
	binary.LittleEndian.PutUint32(n[12:], id.Generation)
	h.Write(n[:])
	// The middle bits: the low bits of FNV depend too much on the last bytes.
	share := float64(h.Sum64()>>16&0xffffff)/0x800000 - 1
	return time.Duration(share * float64(span))
}
