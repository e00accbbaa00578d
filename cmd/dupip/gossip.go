package main

import (
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/spf13/pflag"

	"github.com/dupip/dupip/agent"
	"github.com/dupip/dupip/gossip"
	"github.com/dupip/dupip/gossip/members"
)

// peersFile is where the members outlive the agent, in the state folder.
const peersFile = "peers.json"

// clusterFlags say how the agent joins the others.
type clusterFlags struct {
	members.Options
	replicas int
}

func (f *clusterFlags) addTo(flags *pflag.FlagSet) {
	flags.StringVar(&f.Bind, "bind", "", "address on which other nodes' agents are heard (default: all, once --join is given)")
	flags.IntVar(&f.Port, "gossip-port", members.DefaultPort, "UDP and TCP port for other nodes' agents")
	flags.StringVar(&f.Advertise, "advertise", "", "address at which other nodes reach this one (default: --bind, or the address of the default route)")
	flags.StringSliceVar(&f.Join, "join", nil, "an agent to begin with: host, host:port or a DNS name for all its addresses; repeatable. Without --join and --bind the agent is alone")
	flags.StringVar(&f.Label, "cluster", "", "the cluster's name; agents of another are not heard")
	flags.StringVar(&f.KeyFile, "gossip-key-file", "", "file with the base64 keys that encrypt gossip, one in a line, the first to encrypt; read again when it changes")
	flags.IntVar(&f.replicas, "replicas", gossip.DefaultReplicas, "how many nodes keep each address")
}

// join returns how the agent joins the cluster, nil if it is to be alone.
func (f *clusterFlags) join(log *slog.Logger, stateDir, version string) (func(agent.Node) (agent.Cluster, error), error) {
	if f.Bind == "" && len(f.Join) == 0 {
		if f.KeyFile != "" || f.Label != "" || f.Advertise != "" {
			return nil, errors.New("the agent is alone without --join or --bind: give one of them, or leave out --cluster, --advertise and --gossip-key-file")
		}
		return nil, nil
	}
	if f.Port < 1 || f.Port > 65535 {
		return nil, fmt.Errorf("--gossip-port %d: a port is 1 to 65535", f.Port)
	}
	return func(node agent.Node) (agent.Cluster, error) {
		opts := f.Options
		opts.Log, opts.Version = log, version
		opts.Node, opts.Boot, opts.Epoch = node.Name, node.BootID, node.Epoch
		opts.PeersFile = filepath.Join(stateDir, peersFile)
		return gossip.New(gossip.Options{Log: log, Replicas: f.replicas, Members: opts})
	}, nil
}

var _ agent.Cluster = (*gossip.Gossip)(nil)
