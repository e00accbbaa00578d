// Command dupip-reporter writes Events of the conflicts that dupip's agents report. It is a member of their gossip, needs no
// rights on a node, and is the only part that talks to the API server.
package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/logging"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/cmd/reporter/books"
	"github.com/dupip/dupip/cmd/reporter/events"
	"github.com/dupip/dupip/detector/cluster"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

// version is set at build time by -ldflags "-X main.version=…".
var version string

func main() { os.Exit(query.Run(newRoot())) }

// settings are the flags.
type settings struct {
	members         members.Options
	namespace, name string
	acks            string
	metrics         string
	config, books   string
	level, format   string
	renew           time.Duration
}

func newRoot() *cobra.Command {
	var s settings
	cmd := &cobra.Command{
		Use:   "dupip-reporter",
		Short: "Writes Events of the conflicts that dupip's agents report",
		Long: `dupip-reporter writes Events of the conflicts that dupip's agents report, for
"kubectl describe pod".

It runs in a pod, as the chart installs it (reporter.enabled): it needs its
account's token, and reaches the agents by gossip. Of several replicas, the one
that holds a Lease writes.`,
		Example: `  dupip-reporter --join dupip.kube-system.svc \
    --gossip-key-file /etc/dupip/key --namespace "$NAMESPACE" \
    --pod-name "$POD_NAME" --pod-uid "$POD_UID"`,
		Version: query.BuildVersion(version), Args: cobra.NoArgs, SilenceUsage: true, SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&s.members.Join, "join", nil, "an agent to join: host, host:port or a DNS name for all its addresses; repeatable")
	flags.IntVar(&s.members.Port, "gossip-port", members.DefaultPort, "UDP and TCP port for the agents")
	flags.StringVar(&s.members.Bind, "bind", "", "address to listen on for the agents (default: all)")
	flags.StringVar(&s.members.Advertise, "advertise", "", "address at which agents reach this pod (default: --bind, or the address of the default route)")
	flags.StringVar(&s.members.Label, "cluster", "", "name of the cluster, as the agents have it")
	flags.StringVar(&s.members.KeyFile, "gossip-key-file", "", "file with the agents' keys; read again when it changes")
	flags.StringVar(&s.namespace, "namespace", "", "namespace of this pod, which has the Lease")
	flags.StringVar(&s.name, "lease", "dupip-reporter", "name of the Lease")
	flags.StringVar(&s.acks, "acknowledgements", "", "name of the ConfigMap that says who works on conflicts; empty for none")
	flags.StringVar(&s.members.Node, "pod-name", "", "name of this pod")
	flags.StringVar(&s.members.Boot, "pod-uid", "", "UID of this pod")
	flags.StringVar(&s.metrics, "metrics-listen", ":9952", "address of /metrics, /healthz and /readyz")
	flags.StringVar(&s.config, "config", "", "configuration file of the agents, which says what networks there are; read at the start")
	flags.StringVar(&s.books, "books", books.Auto, "what is read of the API server to foresee duplicates: auto, off, or some of "+strings.Join(books.Names(), ","))
	flags.DurationVar(&s.renew, "renew-every", events.DefaultRenew, "how often the Event of an open conflict is renewed; less than the time that the API server keeps Events")
	flags.StringVar(&s.level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&s.format, "log-format", "text", "text or json")
	cmd.SetUsageTemplate(strings.ReplaceAll(cmd.UsageTemplate(), ".FlagUsages ", ".FlagUsagesWrapped 80 "))
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return fmt.Errorf("%w; see \"dupip-reporter --help\"", query.FlagError(err))
	})
	return cmd
}

// check refuses what cannot work, and makes the log.
func (s *settings) check() (*slog.Logger, error) {
	for flag, value := range map[string]string{"--namespace": s.namespace, "--pod-name": s.members.Node, "--pod-uid": s.members.Boot, "--lease": s.name} {
		if value == "" {
			return nil, fmt.Errorf("%s is empty: give it a value, from the Downward API", flag)
		}
	}
	if len(s.members.Join) == 0 {
		return nil, errors.New("--join is missing: name the agents' Service")
	}
	if s.members.Port < 1 || s.members.Port > 65535 {
		return nil, fmt.Errorf("--gossip-port %d: a port is 1 to 65535", s.members.Port)
	}
	if s.renew < time.Second || s.renew > 24*time.Hour {
		return nil, fmt.Errorf("--renew-every %v: must be 1s to 24h", s.renew)
	}
	if err := errors.Join(members.CheckKey(s.members), s.members.Check()); err != nil {
		return nil, err
	}
	return logging.New(os.Stderr, s.level, s.format)
}

// join starts gossip. The pod's UID takes the place of a boot id: a pod that is made again is another member.
func (s *settings) join(log *slog.Logger) (*gossip.Gossip, error) {
	m := s.members
	m.Log, m.Version, m.Role = log, query.BuildVersion(version), cluster.Reporter
	// Only later runs of this pod have the same identity; the clock of the boot starts again with the node.
	m.Epoch = time.Now().UnixNano()
	return gossip.New(gossip.Options{Members: m})
}
