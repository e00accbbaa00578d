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

// due returns when to probe a binding next that counts, and had evidence of that last at a time; zero for never. It is half the TTL after
// that and then three quarters, rounded up to full seconds, because waking the agent costs more than a probe.
func (r *refresh) due(counted time.Time) time.Time {
	if r.count >= 2 {
		return time.Time{}
	}
	after := bindingTTL / 2
	if r.count == 1 {
		after = bindingTTL / 4 * 3
	}
	at := schedule.Later(counted.Add(after+r.jitter), r.after)
	if past := at.Sub(at.Truncate(time.Second)); past > 0 {
		at = at.Add(time.Second - past)
	}
	return at
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
