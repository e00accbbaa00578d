package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/cmd/internal/logging"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

var attachModes = []string{string(bpf.Auto), string(bpf.TCX), string(bpf.TC), string(bpf.XDP)}

// agentFlags are the settings of an agent: "dupip agent" starts one with them, "dupip doctor" finds out why one does not
// start with them.
type agentFlags struct {
	agent.Options
	members          members.Options
	replicas         int
	attach           string
	level, logFormat string
}

func (f *agentFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.NodeName, "node-name", "", "name of this node (default: the host name)")
	flags.StringVar(&f.attach, "attach", string(bpf.Auto), "how to attach: auto, tcx, tc or xdp, with which TCP through a veth is several times slower")
	flags.DurationVar(&f.MinOverlap, "min-overlap", agent.DefaultMinOverlap,
		"how long two holders must both answer before a conflict is confirmed; 10ms to 1m")
	flags.DurationVar(&f.VIPOverlap, "vip-overlap", agent.DefaultVIPOverlap,
		"the same for an address that two nodes have for themselves: a virtual address that moves is on both for a while; 1s to 5m")
	flags.StringVar(&f.APISocket, "api-socket", api.DefaultSocket, "Unix socket of the agent's local API")
	flags.StringVar(&f.Config, "config", "", "YAML file with networks, shared addresses and limits; read again when it changes and on SIGHUP")
	flags.StringVar(&f.StateDir, "state-dir", state.DefaultDir, "folder where conflicts are saved")
	flags.StringVar(&f.CRISocket, "cri-socket", "", "socket of the container runtime, for the names of pods; \"none\" for none (default: the usual paths)")
	flags.StringVar(&f.EngineSocket, "engine-socket", "",
		"socket of a container engine without CRI (Docker, Podman), for the names of containers; \"none\" for none (default: the usual paths)")
	flags.StringVar(&f.CNIConfDir, "cni-conf-dir", agent.Auto, "folder of the node in which CNI's networks are configured, to find what IPAM has reserved; \"auto\": the container runtime says it; \"off\" for none")
	flags.DurationVar(&f.UnheldAfter, "unheld-after", audit.DefaultGrace,
		"how long a reservation must be without a sandbox before it is a finding of \"dupip audit\"; 1s to 24h")
	flags.StringVar(&f.Capture, "capture", agent.On,
		"capture the headers of up to 64 packets of each holder of a suspected address, for \"dupip capture\"; on or off")
	flags.StringVar(&f.ConfiguredEvidence, "configured-evidence", agent.On,
		"where nothing answers (netkit in L3 mode, macvlan, ipvlan), take what a pod's kernel has configured for an answer, or off: duplicates there stay suspected")
	flags.StringVar(&f.MetricsListen, "metrics-listen", metrics.DefaultListen, "address of /metrics, /healthz and /readyz; \"off\" for none")
	flags.StringVar(&f.MetricsHolders, "metrics-holders", agent.Off,
		"series with the namespace and the pod of each holder of a confirmed conflict, to route alerts to teams; on or off")
	flags.StringVar(&f.members.Bind, "bind", "", "address to listen on for other nodes' agents (default: all, if --join is given)")
	flags.IntVar(&f.members.Port, "gossip-port", members.DefaultPort, "UDP and TCP port for other nodes' agents")
	flags.StringVar(&f.members.Advertise, "advertise", "", "address at which other nodes reach this one (default: --bind, or the address of the default route)")
	flags.StringSliceVar(&f.members.Join, "join", nil,
		"an agent to join: host, host:port or a DNS name for all its addresses; repeatable. Without --join and --bind the agent is alone")
	flags.StringVar(&f.members.Label, "cluster", "", "name of the cluster; agents of other clusters are ignored")
	flags.StringVar(&f.members.KeyFile, "gossip-key-file", "",
		"file with base64 keys for gossip, one per line: the first encrypts, all decrypt; read again when it changes. Required unless --bind is a loopback address")
	flags.IntVar(&f.replicas, "replicas", gossip.DefaultReplicas, fmt.Sprintf("how many nodes keep each address; 1 to %d", gossip.MaxReplicas))
	flags.StringSliceVar(&f.Notify.Alertmanagers, "alertmanager", nil,
		"URL of an Alertmanager to which the agent sends its confirmed conflicts; repeatable. For hosts without Prometheus")
	flags.StringVar(&f.Notify.HTTPConfig, "alertmanager-http-config", "",
		"file with Prometheus's HTTP client configuration for --alertmanager: TLS, passwords; read again when it changes")
	flags.StringVar(&f.Notify.Program, "on-conflict", "",
		"program to run, without arguments, when a conflict of this node is confirmed or has ended: its standard input has that as JSON")
	flags.StringVar(&f.Notify.User, "on-conflict-user", "", "ordinary user as whom --on-conflict runs (default: root, without capabilities)")
	flags.StringVar(&f.level, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	query.Complete(cmd, "attach", attachModes...)
	query.Complete(cmd, "capture", agent.On, agent.Off)
	query.Complete(cmd, "configured-evidence", agent.On, agent.Off)
	query.Complete(cmd, "metrics-holders", agent.On, agent.Off)
	query.CompletePaths(cmd, "api-socket", "config", "state-dir", "cri-socket", "engine-socket", "cni-conf-dir", "gossip-key-file", "alertmanager-http-config", "on-conflict")
	query.Complete(cmd, "log-level", logging.Levels...)
	query.Complete(cmd, "log-format", logging.Formats...)
}

// check refuses values that no agent can work with, and makes the logger. What depends on the node, such as a port that
// is in use, is found when the agent starts.
func (f *agentFlags) check(stderr io.Writer, flags *pflag.FlagSet) (err error) {
	if f.Log, err = logging.New(stderr, f.level, f.logFormat); err != nil {
		return err
	}
	// An empty value is nearly always a variable of a script that is not set. The default would hide that: without
	// --join an agent is alone. An empty --gossip-key-file overrides a variable, and hides nothing: a key is then missing.
	flags.Visit(func(flag *pflag.Flag) {
		if value := flag.Value.String(); err == nil && flag.Name != "gossip-key-file" && (value == "" || value == "[]") {
			err = fmt.Errorf("--%s is empty: give it a value, or leave it out", flag.Name)
		}
	})
	if err != nil {
		return err
	}
	if f.Attach, err = bpf.ParseMode(f.attach); err != nil {
		return fmt.Errorf("--attach: %w", err)
	}
	if f.members.Port < 1 || f.members.Port > 65535 {
		return fmt.Errorf("--gossip-port %d: a port is 1 to 65535", f.members.Port)
	}
	if f.replicas < 1 || f.replicas > gossip.MaxReplicas {
		return fmt.Errorf("--replicas %d: must be 1 to %d", f.replicas, gossip.MaxReplicas)
	}
	f.Notify.Cluster = f.members.Label
	if err := f.Check(); err != nil {
		return err
	}
	return f.members.Check()
}
