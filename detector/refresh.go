package detector

import (
	"encoding/binary"
	"hash/fnv"
	"time"

	"github.com/dupip/dupip/internal/schedule"
)

// refresh is the state of the probes that keep a silent local binding.
type refresh struct {
	count  int       // number of probes since the last evidence
	after  time.Time // no probe before this time
	jitter time.Duration
}

// refreshDue returns when to probe a silent binding next; zero for never. It is half the TTL after
// the last evidence and then three quarters, rounded up to full seconds, because waking the agent costs
// more than a probe.
func (b *binding) refreshDue() time.Time {
	if !b.counts() || b.remote || b.refresh.count >= 2 {
		return time.Time{}
	}
	after := bindingTTL / 2
	if b.refresh.count == 1 {
		after = bindingTTL / 4 * 3
	}
	var counted time.Time
	for ev := Claimed; ev <= Host; ev++ {
		counted = schedule.Later(counted, b.lastOf(ev))
	}
	at := schedule.Later(counted.Add(after+b.refresh.jitter), b.refresh.after)
	if past := at.Sub(at.Truncate(time.Second)); past > 0 {
		at = at.Add(time.Second - past)
	}
	return at
}

// refresh probes a silent binding that is due.
func (v *verifier) refresh(b *binding, now time.Time) {
	due := b.refreshDue()
	if b.entry.conflict != nil || due.IsZero() || due.After(now) {
		return
	}
	b.refresh.count++
	b.refresh.after = now.Add(bindingTTL / 8) // after a suspicion, both probes may be overdue
	v.probes = append(v.probes, Probe{
		Key: b.entry.key, Holder: b.holder.ID, Interface: b.latestSource().iface, Purpose: Refresh,
	})
}

// jitterOf returns a share of -1 to 1 of span that is always the same for a binding.
func jitterOf(key Key, id HolderID, span time.Duration) time.Duration {
	h := fnv.New64a()
	b := append(key.IP.AsSlice(), key.Network+id.Node...)
	b = binary.LittleEndian.AppendUint64(b, id.Netns)
	b = binary.LittleEndian.AppendUint32(b, id.Ifindex)
	h.Write(binary.LittleEndian.AppendUint32(b, id.Generation))
	// The middle bits: the low bits of FNV depend too much on the last bytes.
	share := float64(h.Sum64()>>16&0xffffff)/0x800000 - 1
	return time.Duration(share * float64(span))
}
