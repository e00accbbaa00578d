package agent

import (
	"time"

	"github.com/dupip/dupip/detector"
)

// How long changes are gathered before the conflicts are saved. Most suspicions are over
// by then; they and names may be lost with the agent.
const (
	saveSoon  = time.Second
	saveLater = 10 * time.Second
)

// unsaved says that conflicts differ from what was saved last.
func (l *loop) unsaved(wait time.Duration) { l.saveAt = earliest(l.saveAt, time.Now().Add(wait)) }

// save hands the conflicts over to be written; it does not wait for the disk.
func (l *loop) save() {
	l.saveAt = time.Time{}
	l.store.Save(l.detector.Snapshot())
}

// restore takes over the conflicts of a former agent; the open ones are verified again.
func (l *loop) restore(snapshot detector.Snapshot) {
	effects, dropped := l.detector.Restore(snapshot, time.Now())
	if open, history := len(snapshot.Open), len(snapshot.History); open+history > 0 {
		l.log.Info("took over the conflicts of the former agent; open ones are verified again",
			"open", open, "resolved", history, "unusable", dropped)
	}
	l.apply(effects)
	l.unsaved(saveSoon) // now, so that a folder that cannot be written is known early
}
