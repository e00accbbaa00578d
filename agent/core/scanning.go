package core

import (
	"slices"
	"time"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/detector"
)

// scanTime is how long a probe waits for a scan. Then the exchange has probed again.
const scanTime = 5 * time.Second

// scanning has the probes in whose place a pod's kernel is scanned ([links.Interface.Mute]). They count as sent when a scan
// has come that began later: the watcher may be late, and that must not look like silence.
type scanning map[detector.Interface][]scan

type scan struct {
	exchange.Probe
	requested time.Time
}

func (s scanning) add(a exchange.Probe, now time.Time) {
	waiting := slices.DeleteFunc(s[a.Interface], func(o scan) bool { return now.Sub(o.requested) > scanTime })
	s[a.Interface] = append(waiting, scan{a, now})
}

// take returns the probes of an interface that were requested before a scan of its netns began, and removes them.
func (s scanning) take(ref detector.Interface, taken time.Time) (all []exchange.Probe) {
	s[ref] = slices.DeleteFunc(s[ref], func(o scan) bool {
		done := o.requested.Before(taken)
		if done {
			all = append(all, o.Probe)
		}
		return done
	})
	if len(s[ref]) == 0 {
		delete(s, ref)
	}
	return all
}
