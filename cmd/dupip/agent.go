package main

import (
	"errors"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
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
