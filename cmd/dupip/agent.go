package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
)

func newAgent() *cobra.Command {
	var opts agent.Options
	var gossip clusterFlags
	var attach, level, logFormat string
	cmd := &cobra.Command{
		Use:   "agent",
		Short: "Observe this node's pods and raise conflicts",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			mode, err := bpf.ParseMode(attach)
			if err != nil {
				return fmt.Errorf("--attach: %w", err)
			}
			log, err := newLogger(level, logFormat)
			if err != nil {
				return err
			}
			opts.Attach, opts.Log, opts.Version = mode, log, buildVersion()
			if opts.Cluster, err = gossip.join(log, opts.StateDir, opts.Version); err != nil {
				return err
			}
			reload := make(chan os.Signal, 1)
			signal.Notify(reload, syscall.SIGHUP)
			defer signal.Stop(reload)
			opts.Reload = reload
			a, err := agent.New(opts)
			if err != nil {
				return err
			}
			return a.Run(cmd.Context())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.NodeName, "node-name", "", "name of this node (default: the host name)")
	flags.StringVar(&attach, "attach", string(bpf.Auto), "how to attach: auto, tcx, tc or xdp")
	flags.DurationVar(&opts.MinOverlap, "min-overlap", agent.DefaultMinOverlap,
		"how long two holders must both answer before a conflict is confirmed")
	flags.StringVar(&opts.APISocket, "api-socket", api.DefaultSocket, "Unix socket of the local API")
	flags.StringVar(&opts.Config, "config", "", "YAML file with networks, shared addresses and limits, read again when it changes and on SIGHUP")
	flags.StringVar(&opts.StateDir, "state-dir", state.DefaultDir, "folder in which conflicts outlive the agent")
	flags.StringVar(&opts.CRISocket, "cri-socket", "", "socket of the container runtime, for the names of pods; \"none\" for none (default: the usual paths)")
	flags.StringVar(&opts.MetricsListen, "metrics-listen", metrics.DefaultListen, "address of /metrics, /healthz and /readyz, \"off\" for none")
	gossip.addTo(flags)
	flags.StringVar(&level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&logFormat, "log-format", "text", "text or json")
	for flag, values := range map[string][]string{
		"attach":     {"auto", "tcx", "tc", "xdp"},
		"log-level":  {"debug", "info", "warn", "error"},
		"log-format": {"text", "json"},
	} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

func newLogger(level, format string) (*slog.Logger, error) {
	var opts slog.HandlerOptions
	var parsed slog.Level
	if err := parsed.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: must be debug, info, warn or error", level)
	}
	opts.Level = parsed
	switch strings.ToLower(format) {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, &opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, &opts)), nil
	}
	return nil, fmt.Errorf("--log-format %q: must be text or json", format)
}
