package main

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// systemd tells the service manager about the agent (sd_notify(3)). Without systemd its methods do nothing.
type systemd struct{ log *slog.Logger }

// starting says that the agent is not ready yet, and that it is stopping as soon as ctx ends.
func (s systemd) starting(ctx context.Context) {
	s.notify("STATUS=starting: attaching to the interfaces of pods")
	context.AfterFunc(ctx, func() { s.notify(daemon.SdNotifyStopping, "STATUS=stopping: detaching from the interfaces of pods") })
}

func (s systemd) ready() {
	s.notify(daemon.SdNotifyReady, `STATUS=observing this node's pods; "dupip status" has the details`)
}

// watch reports until ctx ends that the agent is healthy. If it is not for WatchdogSec, systemd restarts it.
func (s systemd) watch(ctx context.Context, healthy func(context.Context) error) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn("systemd's watchdog is not used", "error", err)
	}
	if limit <= 0 {
		return
	}
	for tick := time.Tick(limit / 3); ; {
		select {
		case <-tick:
			if healthy(ctx) == nil {
				s.notify(daemon.SdNotifyWatchdog)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (s systemd) notify(lines ...string) {
	if _, err := daemon.SdNotify(false, strings.Join(lines, "\n")); err != nil {
		s.log.Warn("systemd was not notified", "error", err)
	}
}
