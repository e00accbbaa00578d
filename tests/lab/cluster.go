package lab

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// GossipPort is the default of --gossip-port; every node has a netns of its own.
const GossipPort = 7951

// joinNodes is how many nodes an agent joins.
const joinNodes = 3

// clusterTimeout is how long agents may take to see each other. A member whose broadcasts were lost is
// found by one or two push/pull exchanges, which take half a minute and more each.
const clusterTimeout = 120 * time.Second

// Member is another agent as one agent sees it, or itself.
type Member struct {
	Name     string    `json:"name"`
	Boot     string    `json:"boot"`
	Epoch    int64     `json:"epoch"`
	Address  string    `json:"address"`
	Version  string    `json:"version"`
	Self     bool      `json:"self"`
	State    string    `json:"state"`
	Since    time.Time `json:"since"`
	Heard    time.Time `json:"heard"`
	Unacked  int       `json:"unacked"`
	Namesake bool      `json:"namesake"`
}

// Members are the agents that this one knows, itself included.
func (c *Client) Members(ctx context.Context) ([]Member, error) {
	var doc struct{ Nodes []Member }
	err := c.decode(ctx, "/v1/nodes", "", &doc)
	return doc.Nodes, err
}

// makeKey makes the key of the lab's cluster, and its file.
func (l *Lab) makeKey() error {
	dir, err := TempDir()
	if err != nil {
		return err
	}
	l.key, l.keyFile = NewKey(), filepath.Join(dir, l.prefix+"gossip.key")
	return os.WriteFile(l.keyFile, []byte(l.key+"\n"), 0o600)
}

// Key returns the gossip key of the lab's cluster, which [Node.ClusterFlags] give to agents.
func (l *Lab) Key() string { return l.key }

// NewKey returns a random gossip key as key files have it on a line.
func NewKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:])
	return base64.StdEncoding.EncodeToString(key[:])
}

// ClusterFlags are the flags with which an agent of the node joins the lab's cluster, over the switch.
// All nodes of the lab have one key.
func (n *Node) ClusterFlags() []string {
	flags := []string{"--bind", n.Address().String(), "--cluster", strings.TrimSuffix(n.lab.prefix, "-"), "--gossip-key-file", n.lab.keyFile}
	n.lab.mu.Lock()
	others := slices.DeleteFunc(slices.Clone(n.lab.nodes), func(m *Node) bool { return m == n })
	n.lab.mu.Unlock()
	for _, m := range others[:min(joinNodes, len(others))] {
		flags = append(flags, "--join", m.Address().String())
	}
	return flags
}

// WaitMembers polls until the agent sees exactly this many agents alive, itself included.
func (a *Agent) WaitMembers(ctx context.Context, alive int) error {
	return a.WaitNodes(ctx, fmt.Sprintf("%d alive", alive), func(all []Member) bool {
		n := 0
		for _, m := range all {
			if m.State == "alive" {
				n++
			}
		}
		return n == alive
	})
}

// WaitNodes polls until the members that the agent knows satisfy ok; what describes that for errors.
func (a *Agent) WaitNodes(ctx context.Context, what string, ok func([]Member) bool) error {
	return a.poll(ctx, func() error {
		members, err := a.Client.Members(ctx)
		if err == nil && !ok(members) {
			err = fmt.Errorf("want %s, there are %s", what, states(members))
		}
		return err
	})
}

func states(members []Member) string {
	var all []string
	for _, m := range members {
		all = append(all, fmt.Sprintf("%s %s (%s)", m.Name, m.State, m.Boot))
	}
	return fmt.Sprintf("%d nodes: %s", len(all), strings.Join(all, ", "))
}

// Cluster adds nodes with agents and waits until they see each other; more flags win. It prints their
// logs if the test fails.
func (t *T) Cluster(nodes int, flags ...string) []*Agent {
	t.Helper()
	var all []*Node
	for range nodes {
		all = append(all, t.Node(""))
	}
	return t.Agents(all, flags...)
}

// Agents is Cluster for existing nodes.
func (t *T) Agents(nodes []*Node, flags ...string) []*Agent {
	t.Helper()
	var agents []*Agent
	for _, n := range nodes {
		a, err := n.StartAgent(slices.Concat(n.ClusterFlags(), flags)...)
		t.Do(err)
		agents = append(agents, a)
	}
	for _, a := range agents {
		t.ready(a)
	}
	t.WaitCluster(agents...)
	return agents
}

// WaitCluster waits until each of the agents sees exactly these alive.
func (t *T) WaitCluster(agents ...*Agent) {
	t.Helper()
	ctx, cancel := WithTimeout(t.Context(), Patience(clusterTimeout))
	defer cancel()
	for _, a := range agents {
		t.Do(a.WaitMembers(ctx, len(agents)))
	}
}
