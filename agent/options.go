package agent

import (
	"cmp"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/agent/metrics"
	"github.com/dupip/dupip/agent/state"
	"github.com/dupip/dupip/bpf"
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
	// Config is the configuration file; empty for none. It is read again on Reload and
	// when it changes.
	Config string
	Reload <-chan os.Signal
	// StateDir is where conflicts outlive the agent, by default [state.DefaultDir].
	StateDir string
	// CRISocket is the socket of the container runtime, which names the pods. Empty
	// means the usual paths, "none" no runtime.
	CRISocket string
	// MetricsListen is the TCP address of /metrics, /healthz and /readyz, by default
	// [metrics.DefaultListen]; [Off] for none.
	MetricsListen string
	// Cluster joins the node to a cluster; nil leaves the agent alone. It is called once
	// the agent is the only one of its node.
	Cluster func(Node) (Cluster, error)
	// Version is shown in the status.
	Version string
}

// DefaultMinOverlap is the default of [Options.MinOverlap].
const DefaultMinOverlap = time.Second

// Off switches the metrics off.
const Off = "off"

// complete fills in the defaults.
func (o Options) complete() (Options, error) {
	o.MinOverlap = cmp.Or(o.MinOverlap, DefaultMinOverlap)
	if o.MinOverlap < 0 || o.MinOverlap > time.Minute {
		return o, fmt.Errorf("min overlap %s: must be more than 0 and at most 1m", o.MinOverlap)
	}
	o.APISocket = cmp.Or(o.APISocket, api.DefaultSocket)
	o.StateDir = cmp.Or(o.StateDir, state.DefaultDir)
	o.MetricsListen = cmp.Or(o.MetricsListen, metrics.DefaultListen)
	return o, nil
}
