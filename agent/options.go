package agent

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/agent/exchange"
	"github.com/dupip/dupip/agent/notify"
	"github.com/dupip/dupip/agent/report"
	"github.com/dupip/dupip/bpf"
	"github.com/dupip/dupip/detector/cluster"
)

// Options configures an [Agent]. [Options.Check] says what is allowed. Only texts that may be empty have a default.
type Options struct {
	Log *slog.Logger
	// NodeName is the node's name in all output; empty for the host name.
	NodeName string
	// Attach says how the observer attaches.
	Attach bpf.Mode
	// MinOverlap is how long two holders must both have answered for a conflict to
	// be confirmed.
	MinOverlap time.Duration
	// VIPOverlap is the same for an address that two nodes have for themselves: a virtual address that moves is on both for a while.
	VIPOverlap time.Duration
	// APISocket is the path of the Unix socket.
	APISocket string
	// Config is the configuration file; empty for none. The agent reads it again on Reload and when it
	// changes.
	Config string
	Reload <-chan os.Signal
	// StateDir is the directory of the saved conflicts.
	StateDir string
	// CRISocket is the socket of the container runtime, for pod names. Empty means the usual paths,
	// "none" no runtime.
	CRISocket string
	// EngineSocket is the socket of a container engine without CRI, for names of containers. Empty means the usual paths, "none" ids instead of names.
	EngineSocket string
	// CNIConfDir is the folder of the node in which CNI's networks are configured; [Auto] for the one that the container runtime says,
	// [Off] for none.
	CNIConfDir string
	// UnheldAfter is how long nobody must hold a reservation before that is a finding.
	UnheldAfter time.Duration
	// Capture is "on", or [Off]: then no packets of suspected addresses are captured.
	Capture string
	// ConfiguredEvidence is "on": where nothing answers, what the kernel of a pod has configured takes the place of an answer; or [Off].
	ConfiguredEvidence string
	// MetricsListen is the TCP address of /metrics, /healthz and /readyz; [Off] for none.
	MetricsListen string
	// MetricsHolders is "on": the pods of confirmed conflicts have series of their own; or [Off].
	MetricsHolders string
	// Cluster joins the node to a cluster; nil for an agent alone. New calls it when the agent is the
	// only one on its node.
	Cluster func(node cluster.Member) (Cluster, error)
	// Ready is called once, when the agent observes the interfaces that were there when it started. It must not block.
	Ready func()
	// Version is shown in the status.
	Version string
	// Notify says whom the agent itself tells of conflicts; New fills in Log and Self.
	Notify notify.Options
}

// Cluster is what the agent needs of the other nodes' agents. Its methods are safe for concurrent use
// and, except Run and Query, do not block.
type Cluster interface {
	exchange.Cluster
	report.Cluster
	// Run takes part in the cluster until ctx ends, and then leaves it.
	Run(ctx context.Context) error
	// LeaveSoon tells the other nodes that this one leaves soon, in a second at most, so that its leave takes less time.
	LeaveSoon()
	// Messages has the messages of other nodes. Those that are not received in time are dropped and
	// counted.
	Messages() <-chan cluster.Message
}

// DefaultMinOverlap is the default of --min-overlap.
const DefaultMinOverlap = time.Second

// DefaultVIPOverlap is the default of --vip-overlap.
const DefaultVIPOverlap = 10 * time.Second

// The values of settings that can be switched. Off switches off the metrics, those of holders, the reading of CNI's networks, or the captures.
const (
	On  = "on"
	Off = "off"
	// Auto is the folder of CNI's networks that the container runtime says.
	Auto = "auto"
)

// Check refuses what no agent can work with. It opens nothing, so that it needs neither rights nor the node. Errors are
// for users and name flags.
func (o Options) Check() error {
	if o.NodeName != "" && !validNodeName.MatchString(o.NodeName) {
		return fmt.Errorf("--node-name %.300q: must be %s", o.NodeName, nodeNameRule)
	}
	for _, d := range []struct {
		flag               string
		value, least, most time.Duration
		allowed            string
	}{
		{"min-overlap", o.MinOverlap, 10 * time.Millisecond, time.Minute, "10ms to 1m"},
		{"vip-overlap", o.VIPOverlap, time.Second, 5 * time.Minute, "1s to 5m"},
		{"unheld-after", o.UnheldAfter, time.Second, 24 * time.Hour, "1s to 24h"},
	} {
		if d.value < d.least || d.value > d.most {
			return fmt.Errorf("--%s %s: must be %s", d.flag, d.value, d.allowed)
		}
	}
	for _, p := range []struct {
		flag, path string
		otherwise  []string
	}{
		{"api-socket", o.APISocket, nil},
		{"state-dir", o.StateDir, nil},
		{"cni-conf-dir", o.CNIConfDir, []string{Auto, Off}},
	} {
		// Commands in another folder, and the next agent, would look elsewhere.
		if !filepath.IsAbs(p.path) && !slices.Contains(p.otherwise, p.path) {
			return fmt.Errorf("--%s %q: must be %s", p.flag, p.path, strings.Join(append([]string{"an absolute path"}, p.otherwise...), ", or "))
		}
	}
	for _, s := range []struct{ flag, value string }{{"capture", o.Capture}, {"configured-evidence", o.ConfiguredEvidence}, {"metrics-holders", o.MetricsHolders}} {
		if s.value != On && s.value != Off {
			return fmt.Errorf("--%s %q: must be on or off", s.flag, s.value)
		}
	}
	return o.Notify.Check()
}

// validNodeName admits the names of Kubernetes' nodes and of hosts. Commands that dupip prints have them.
var validNodeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?$`)

const nodeNameRule = "1 to 253 letters, digits and . _ -, the first and the last a letter or a digit"

// ThisNode identifies this run of an agent by the node's name, one that [Options.Check] allows; an empty one means the host name. The name
// alone is not enough: a node may be replaced by one of the same name while the old one is still up. Nothing here comes from a
// file that a disk image can copy to another machine.
func ThisNode(name, version string) (cluster.Member, error) {
	self := cluster.Member{Name: name, Version: version, Self: true, State: cluster.Alive, Since: time.Now()}
	if name == "" {
		var err error
		if self.Name, err = os.Hostname(); err != nil {
			return self, fmt.Errorf("reading the host name (set --node-name): %w", err)
		}
		if !validNodeName.MatchString(self.Name) { // Linux's is "(none)" until somebody sets it
			return self, fmt.Errorf("the host name %.300q cannot name this node: give --node-name, %s", self.Name, nodeNameRule)
		}
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return self, fmt.Errorf("reading the boot id (is /proc mounted?): %w", err)
	}
	self.Boot = strings.TrimSpace(string(boot))
	var clock unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &clock); err != nil {
		return self, fmt.Errorf("reading the boot-time clock: %w", err)
	}
	self.Epoch = clock.Nano()
	return self, nil
}
