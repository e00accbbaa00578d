package document

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Ack says that somebody works on a conflict. It changes neither the conflict, nor who is told of it.
type Ack struct {
	By  string    `json:"by,omitzero"` // who, as they say themselves
	Why string    `json:"why,omitzero" text:"sentence"`
	At  time.Time `json:"at"` // when this node learned of it
	// Seconds is how long it holds from then on: until then, or until the conflict is over.
	Seconds int `json:"seconds"`
}

// The shortest and the longest time for which an [Ack] may hold.
const (
	MinAck = time.Minute
	MaxAck = 7 * 24 * time.Hour
	// MaxWhy is the longest reason, in bytes.
	MaxWhy = maxSentence
)

// Until is when it ends.
func (a *Ack) Until() time.Time { return a.At.Add(time.Duration(a.Seconds) * time.Second) }

// Holds reports whether it holds at a time; one that is nil does not.
func (a *Ack) Holds(now time.Time) bool { return a != nil && now.Before(a.Until()) }

// ackJitter is by how much the time of one acknowledgement may differ when it is said once more: it travels as an age in seconds.
const ackJitter = 5 * time.Second

// Replaces reports whether it is another one than what is known, and not an earlier one: a reporter says it again and again, for nodes that were away.
func (a *Ack) Replaces(known *Ack) bool {
	later := a.At.Sub(known.At)
	if a.By == known.By && a.Why == known.Why && a.Seconds == known.Seconds {
		return later > ackJitter
	}
	return later > -ackJitter
}

// Check returns an error if somebody must not have said it.
func (a *Ack) Check() error {
	switch lasts := time.Duration(a.Seconds) * time.Second; {
	case a.Seconds != 0 && (a.Seconds < int(MinAck/time.Second) || a.Seconds > int(MaxAck/time.Second)):
		return errors.New("an acknowledgement holds for 1m to 168h, and not for " + lasts.String())
	case a.By == "" || len(a.By) > MaxName || len(a.Why) > MaxWhy:
		return errors.New("an acknowledgement needs a name of at most 253 bytes, and a reason of at most 512")
	}
	return nil
}

// SharedAck is what a ConfigMap has of an [Ack], for the reporter to tell all agents. The right to write that is the right to acknowledge.
type SharedAck struct {
	IP      netip.Addr `json:"ip"`
	Network string     `json:"network,omitzero"` // empty for all
	Ack
}

const (
	maxSharedAcks = 256
	// endedAck is how long an end stays there: so long agents that are away are told of it.
	endedAck = 24 * time.Hour
)

// PatchOfAcks returns what a ConfigMap with this data needs to have an acknowledgement, too, by names of its data: nil for what is
// over. at is now.
func PatchOfAcks(data map[string]string, ip netip.Addr, network string, ack Ack) (map[string]any, error) {
	patch := make(map[string]any)
	kept := 0
	for name, text := range data {
		if a, err := readShared(text); err != nil || a.isOver(ack.At) {
			patch[name] = nil
		} else {
			kept++
		}
	}
	if kept >= maxSharedAcks {
		return nil, fmt.Errorf("%d acknowledgements are there, and no more fit: end some", kept)
	}
	text, err := json.Marshal(SharedAck{ip, network, ack})
	if err != nil {
		return nil, err
	}
	name := strings.ReplaceAll(ip.String(), ":", "-")
	if network != "" {
		sum := fnv.New32a()
		sum.Write([]byte(network))
		name = fmt.Sprintf("%s.%08x", name, sum.Sum32())
	}
	patch[name] = string(text)
	return patch, nil
}

// SharedAcks reads the data of a ConfigMap, and counts what is invalid or too much. Those that are over are left out.
func SharedAcks(data map[string]string, now time.Time) (list []SharedAck, invalid int) {
	for _, name := range slices.Sorted(maps.Keys(data)) {
		a, err := readShared(data[name])
		switch {
		case err != nil || len(list) == maxSharedAcks:
			invalid++
		case !a.isOver(now):
			list = append(list, a)
		}
	}
	return list, invalid
}

func readShared(text string) (a SharedAck, err error) {
	if err = json.Unmarshal([]byte(text), &a); err != nil {
		return a, err
	}
	if !a.IP.IsValid() || a.At.IsZero() {
		return a, errors.New("an acknowledgement needs an address and a time")
	}
	Clean(&a, 0, time.Time{})
	a.IP = a.IP.Unmap().WithZone("")
	return a, a.Check()
}

func (a *SharedAck) isOver(now time.Time) bool {
	until := a.Until()
	if a.Seconds == 0 {
		until = a.At.Add(endedAck)
	}
	return !now.Before(until)
}
