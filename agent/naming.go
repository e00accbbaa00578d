package agent

import (
	"time"

	"github.com/dupip/dupip/agent/pods"
	"github.com/dupip/dupip/detector"
)

// name takes the name of the pod behind an interface where the runtime has told it, and
// asks for it otherwise. It never waits.
func (l *loop) name(i *podInterface) {
	if !i.Seen {
		return
	}
	told, ok := l.pods.Pod(i.View.Cookie)
	if !ok {
		l.pods.Want(i.View.Cookie)
		return
	}
	i.follow(told)
}

// named follows a name that came late.
func (l *loop) named(change pods.Change) {
	id := detector.HolderID{Node: l.node.ID(), Netns: change.Cookie}
	for _, i := range l.interfaces {
		if i.holder == id {
			i.follow(change)
			l.wantConfigured(i, time.Now())
		}
	}
	l.detector.Describe(id, func(h *detector.Holder) {
		h.Pod, h.CreatedAt, h.Sandbox = change.Pod, change.CreatedAt, change.Sandbox
	})
	l.unsaved(saveLater) // an open conflict is saved with the names of its holders
}

func (i *podInterface) follow(told pods.Change) {
	i.pod, i.createdAt, i.sandbox, i.sandboxIPs = told.Pod, told.CreatedAt, told.Sandbox, told.IPs
}
