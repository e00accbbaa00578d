package agent

import (
	"context"
	"log/slog"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/detector/cluster"
)

// publish tells watches and the log of a conflict's step, and has it saved.
func (l *loop) publish(event detector.Event) {
	wait := saveSoon
	if event.Conflict.State == detector.Suspected {
		wait = saveLater
	}
	l.unsaved(wait)
	if l.cluster != nil && event.Kind != detector.EventSuspected && event.Kind != detector.EventFaded {
		l.pairsAt = earliest(l.pairsAt, time.Now().Add(pairsEvery))
	}
	if c := event.Conflict; event.Kind == detector.EventConfirmed && !event.Restored {
		l.confirmed(c.ConfirmedAt.Sub(c.SecondSeen))
	}
	if event.Kind == detector.EventConfirmed {
		l.pods.Again() // a sandbox that has stopped is the one to remove
	}
	if len(l.watches) > 0 {
		l.send(api.ConflictEvent{
			Type:     event.Kind.String(),
			At:       event.At.Round(0),
			Reason:   event.Reason,
			Conflict: api.NewConflict(event.Conflict),
		})
	}
	level, limit := slog.LevelInfo, l.otherLog
	switch event.Kind {
	case detector.EventConfirmed:
		level, limit = slog.LevelWarn, l.confirmedLog
	case detector.EventSuspected, detector.EventFaded:
		level = slog.LevelDebug
	case detector.EventChanged:
		if event.Conflict.State == detector.Suspected {
			level = slog.LevelDebug
		}
	}
	if !l.log.Enabled(context.Background(), level) {
		return
	}
	if !limit.Allow() {
		l.unlogged++
		return
	}
	if l.unlogged > 0 {
		l.log.Warn("left out log lines about conflicts, see \"dupip conflicts\"", "count", l.unlogged)
		l.unlogged = 0
	}
	l.log.Log(context.Background(), level, "conflict "+event.Kind.String(), conflictAttributes(event, l.node.ID())...)
}

func conflictAttributes(event detector.Event, self string) []any {
	c := event.Conflict
	attributes := []any{"id", c.ID, "ip", c.Key.IP, "network", c.Key.Network, "scope", c.Scope}
	if event.Reason != "" {
		attributes = append(attributes, "reason", event.Reason)
	}
	const maxLogged = 8
	for n, holder := range c.Holders {
		if n == maxLogged {
			attributes = append(attributes, "moreHolders", len(c.Holders)-n)
			break
		}
		who := []any{
			"pod", holder.Holder.Pod.String(), "interface", holder.Holder.InterfaceName,
			"netns", holder.Holder.NetnsName, "mac", holder.Holder.MAC.String(), "since", holder.FirstSeen.Round(0),
		}
		if node := holder.Holder.ID.Node; node != self {
			who = append([]any{"node", cluster.NodeName(node)}, who...)
		}
		attributes = append(attributes, slog.Group("holder"+string(rune('1'+n)), who...))
	}
	return attributes
}
