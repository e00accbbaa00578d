package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

var attachModes = []string{"auto", "tcx", "tc", "xdp"}

func newAgent() *cobra.Command {
	var opts agent.Options
	var cluster clusterFlags
	var attach, level, logFormat string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Observe this node's pods and raise conflicts",
		Example: `  dupip agent
  dupip agent --join dupip.kube-system.svc \
    --gossip-key-file /etc/dupip/key
  dupip agent --config /etc/dupip.yaml --log-format json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			mode, err := bpf.ParseMode(attach)
			if err != nil {
				return fmt.Errorf("--attach: %w", err)
			}
			log, err := newLogger(cmd.ErrOrStderr(), level, logFormat)
			if err != nil {
				return err
			}
			if strings.EqualFold(logFormat, "json") {
				// Whoever parses the log gets the error that ends the agent, too.
				defer func() {
					if err != nil {
						log.Error("the agent ends", "error", err)
						err = exitError(1)
					}
				}()
			}
			// The collector works harder instead of exceeding the limit of the cgroup. Without a cgroup there is none.
			_, _ = memlimit.Set(memlimit.WithRatio(0.9))
			opts.Attach, opts.Log, opts.Version = mode, log, buildVersion()
			if opts.Cluster, err = cluster.join(log, opts.StateDir, opts.Version); err != nil {
				return err
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			opts.Reload = reload
			manager := systemd{log}
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
	flags := cmd.Flags()
	flags.StringVar(&opts.NodeName, "node-name", "", "name of this node (default: the host name)")
	flags.StringVar(&attach, "attach", string(bpf.Auto), "how to attach: auto, tcx, tc or xdp")
	flags.DurationVar(&opts.MinOverlap, "min-overlap", agent.DefaultMinOverlap,
		"how long two holders must both answer before a conflict is confirmed")
	flags.StringVar(&opts.APISocket, "api-socket", api.DefaultSocket, "Unix socket of the local API")
	flags.StringVar(&opts.Config, "config", "", "YAML file with networks, shared addresses and limits; read again when it changes and on SIGHUP")
	flags.StringVar(&opts.StateDir, "state-dir", state.DefaultDir, "folder where conflicts are saved")
	flags.StringVar(&opts.CRISocket, "cri-socket", "", "socket of the container runtime, for the names of pods; \"none\" for none (default: the usual paths)")
	flags.StringVar(&opts.CNIConfDir, "cni-conf-dir", books.ConfDir, "folder of the node in which CNI's networks are configured, to find what IPAM has reserved; \"off\" for none")
	flags.DurationVar(&opts.UnheldAfter, "unheld-after", audit.DefaultGrace, "how long no sandbox must have a reservation before it is a finding of \"dupip audit\"")
	flags.StringVar(&opts.MetricsListen, "metrics-listen", metrics.DefaultListen, "address of /metrics, /healthz and /readyz; \"off\" for none")
	cluster.addTo(flags)
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	complete(cmd, "attach", attachModes...)
	complete(cmd, "log-level", "debug", "info", "warn", "error")
	complete(cmd, "log-format", "text", "json")
	return cmd
}

// clusterFlags are the flags about other agents.
type clusterFlags struct {
	members.Options
	replicas int
}

func (f *clusterFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&f.Bind, "bind", "", "address to listen on for other nodes' agents (default: all, if --join is given)")
	flags.IntVar(&f.Port, "gossip-port", members.DefaultPort, "UDP and TCP port for other nodes' agents")
	flags.StringVar(&f.Advertise, "advertise", "", "address at which other nodes reach this one (default: --bind, or the address of the default route)")
	flags.StringSliceVar(&f.Join, "join", nil, "an agent to join: host, host:port or a DNS name for all its addresses; repeatable. Without --join and --bind the agent is alone")
	flags.StringVar(&f.Label, "cluster", "", "name of the cluster; agents of other clusters are ignored")
	flags.StringVar(&f.KeyFile, "gossip-key-file", "", "file with base64 keys for gossip, one per line: the first encrypts, all decrypt; read again when it changes. Required unless --bind is a loopback address")
	flags.BoolVar(&f.Insecure, "insecure-gossip", false, "do without --gossip-key-file: anybody who reaches the port can read and forge gossip")
	flags.IntVar(&f.replicas, "replicas", gossip.DefaultReplicas, "how many nodes keep each address")
}

// join returns a function that joins the cluster; nil if the agent is to be alone.
func (f *clusterFlags) join(log *slog.Logger, stateDir, version string) (func(agent.Node) (agent.Cluster, error), error) {
	if f.Bind == "" && len(f.Join) == 0 {
		if f.KeyFile != "" || f.Insecure || f.Label != "" || f.Advertise != "" {
			return nil, errors.New("the agent is alone without --join or --bind: give one of them, or leave out --cluster, --advertise, --gossip-key-file and --insecure-gossip")
		}
		return nil, nil
	}
	if f.KeyFile != "" && f.Insecure {
		return nil, errors.New("--gossip-key-file and --insecure-gossip exclude each other: give one of them")
	}
	if err := members.CheckKey(f.Options); err != nil {
		return nil, err
	}
	if f.Port < 1 || f.Port > 65535 {
		return nil, fmt.Errorf("--gossip-port %d: a port is 1 to 65535", f.Port)
	}
	return func(node agent.Node) (agent.Cluster, error) {
		opts := f.Options
		opts.Log, opts.Version = log, version
		opts.Node, opts.Boot, opts.Epoch = node.Name, node.BootID, node.Epoch
		opts.PeersFile = filepath.Join(stateDir, "peers.json")
		return gossip.New(gossip.Options{Replicas: f.replicas, Members: opts})
	}, nil
}

var _ agent.Cluster = (*gossip.Gossip)(nil)
