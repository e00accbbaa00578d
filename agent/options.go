package agent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/audit"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/peer"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector/cluster"
)

// Options configures an [Agent]. Zero values mean the defaults.
type Options struct {
	Log *slog.Logger
	// NodeName is the node's name in all output, by default the host name.
	NodeName string
	// Attach says how the observer attaches, by default [bpf.Auto].
	Attach bpf.Mode
	// MinOverlap is how long two holders must both have answered for a conflict to
	// be confirmed, by default 1 s.
	MinOverlap time.Duration
	// APISocket is the path of the Unix socket, by default [api.DefaultSocket].
	APISocket string
	// Config is the configuration file; empty for none. The agent reads it again on Reload and when it
	// changes.
	Config string
	Reload <-chan os.Signal
	// StateDir is the directory of the saved conflicts, by default [state.DefaultDir].
	StateDir string
	// CRISocket is the socket of the container runtime, for pod names. Empty means the usual paths,
	// "none" no runtime.
	CRISocket string
	// CNIConfDir is the folder of the node in which CNI's networks are configured, by default [books.ConfDir]; [Off] for none.
	CNIConfDir string
	// UnheldAfter is how long nobody must hold a reservation before that is a finding, by default [audit.DefaultGrace].
	UnheldAfter time.Duration
	// MetricsListen is the TCP address of /metrics, /healthz and /readyz, by default
	// [metrics.DefaultListen]; [Off] for none.
	MetricsListen string
	// Cluster joins the node to a cluster; nil for an agent alone. New calls it when the agent is the
	// only one on its node.
	Cluster func(Node) (Cluster, error)
	// Ready is called once, when the agent observes the interfaces that were there when it started. It must not block.
	Ready func()
	// Version is shown in the status.
	Version string
}

// Cluster is what the agent needs of the other nodes' agents. Its methods are safe for concurrent use
// and, except Run and Query, do not block.
type Cluster interface {
	peer.Cluster
	report.Cluster
	// Run takes part in the cluster until ctx ends, and then leaves it.
	Run(ctx context.Context) error
	// Messages has the messages of other nodes. Those that are not received in time are dropped and
	// counted.
	Messages() <-chan cluster.Message
}

// DefaultMinOverlap is the default of [Options.MinOverlap].
const DefaultMinOverlap = time.Second

// Off switches the metrics off.
const Off = "off"

func (o Options) complete() (Options, error) {
	o.MinOverlap = cmp.Or(o.MinOverlap, DefaultMinOverlap)
	if o.MinOverlap < 0 || o.MinOverlap > time.Minute {
		return o, fmt.Errorf("min overlap %s: must be more than 0 and at most 1m", o.MinOverlap)
	}
	o.UnheldAfter = cmp.Or(o.UnheldAfter, audit.DefaultGrace)
	if o.UnheldAfter < time.Second || o.UnheldAfter > 24*time.Hour {
		return o, fmt.Errorf("unheld after %s: must be 1s to 24h", o.UnheldAfter)
	}
	o.APISocket = cmp.Or(o.APISocket, api.DefaultSocket)
	o.StateDir = cmp.Or(o.StateDir, state.DefaultDir)
	if o.Ready == nil {
		o.Ready = func() {}
	}
	o.MetricsListen = cmp.Or(o.MetricsListen, metrics.DefaultListen)
	return o, nil
}
