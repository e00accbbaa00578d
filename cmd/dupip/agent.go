package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

func newAgent() *cobra.Command {
	var f agentFlags
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Observe this node's pods and raise conflicts",
		Example: `  dupip agent
  dupip agent --join dupip.kube-system.svc \
    --gossip-key-file /etc/dupip/key
  dupip agent --config /etc/dupip.yaml --log-format json`,
		Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			defer func() {
				// A program that parses the log needs the error that ends the agent as a line of it.
				if err != nil && f.Log != nil && strings.EqualFold(f.logFormat, "json") {
					f.Log.Error("the agent ends", "error", err)
					err = query.ExitError(1)
				}
			}()
			if err := f.check(cmd.ErrOrStderr(), cmd.Flags()); err != nil {
				return err
			}
			// The collector works harder instead of exceeding the limit of the cgroup. Without a cgroup there is none.
			_, _ = memlimit.Set(memlimit.WithRatio(0.9))
			opts := f.Options
			opts.Version = buildVersion()
			if opts.Cluster, err = f.join(); err != nil {
				return err
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			opts.Reload = reload
			manager := systemd{f.Log}
			opts.Ready = manager.ready
			a, err := agent.New(opts)
			if err != nil {
				return err
			}
			manager.starting(cmd.Context())
			go manager.watch(cmd.Context(), a.Healthy)
			return a.Run(cmd.Context())
		},
	}
	f.addTo(cmd)
	return cmd
}

// join returns a function that joins the cluster; nil if the agent is to be alone.
func (f *agentFlags) join() (func(cluster.Member) (agent.Cluster, error), error) {
	m := f.members
	if m.Bind == "" && len(m.Join) == 0 {
		if m.KeyFile != "" || m.Label != "" || m.Advertise != "" {
			return nil, errors.New("the agent is alone without --join or --bind: give one of them, or leave out --cluster, --advertise and --gossip-key-file")
		}
		return nil, nil
	}
	if err := members.CheckKey(m); err != nil {
		return nil, err
	}
	return func(node cluster.Member) (agent.Cluster, error) {
		m.Log, m.Version = f.Log, node.Version
		m.Node, m.Boot, m.Epoch = node.Name, node.Boot, node.Epoch
		m.MembersFile = filepath.Join(f.StateDir, "members.json")
		return gossip.New(gossip.Options{Replicas: f.replicas, Members: m})
	}, nil
}

var _ agent.Cluster = (*gossip.Gossip)(nil)

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
