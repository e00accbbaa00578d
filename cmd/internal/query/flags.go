package query

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

// queryFlags are the flags of commands that print a list of one agent or of all.
type queryFlags struct {
	program    *Program
	query      document.Query
	ip, sortBy string
	orders     []string
}

// addTo adds the flags of lists that can be about less to a command.
func (q *queryFlags) addTo(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&q.ip, "ip", "", "only this address, or those of a prefix: 10.0.0.0/24")
	flags.StringVarP(&q.query.Namespace, "namespace", "n", "", "only pods of this namespace")
	flags.StringVar(&q.query.Pod, "pod", "", "only this pod: NAME or NAMESPACE/NAME")
	flags.StringVar(&q.query.Network, "network", "", "only this network")
	flags.StringVar(&q.query.Node, "node", "", "ask the agent of this node")
	if !q.program.Cluster {
		flags.BoolVar(&q.query.Cluster, "cluster", false, "ask the agents of all nodes, not only this one")
		exclude(cmd, "cluster", "node")
	}
	_ = cmd.RegisterFlagCompletionFunc("node", completeNodes(q.program))
}

// parse reads --ip.
func (q *queryFlags) parse() (document.Query, error) {
	query := q.query
	query.Cluster = query.Cluster || q.program.Cluster && query.Node == ""
	var err error
	switch {
	case q.ip == "":
	case strings.Contains(q.ip, "/"):
		if query.Prefix, err = netip.ParsePrefix(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not a prefix such as 10.0.0.0/24", q.ip)
		}
	default:
		if query.IP, err = netip.ParseAddr(q.ip); err != nil {
			return query, fmt.Errorf("--ip %q: not an IP address or a prefix", q.ip)
		}
	}
	if q.sortBy != "" && !slices.Contains(q.orders, q.sortBy) {
		return query, fmt.Errorf("--sort-by %q: must be %s", q.sortBy, cli.Disjoin(q.orders))
	}
	return query, nil
}
