package query

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

var bindingList = list[api.Bindings, api.Binding]{
	use: "bindings", short: "Show which address was seen behind which interface",
	example: `  dupip bindings --ip 10.0.0.0/24 --sort-by last-seen
  dupip bindings --cluster --pod shop/web-0
  dupip bindings --node worker-7 -o wide
  dupip bindings --watch`,
	get:      (*api.Client).Bindings,
	coverage: func(d api.Bindings) api.Coverage { return d.Coverage },
	elements: func(d api.Bindings) []api.Binding { return d.Bindings },
	orders:   cli.BindingOrders,
	text:     (*cli.Printer).Bindings,
	name:     func(b api.Binding) string { return b.IP },
	holders:  func(d api.Bindings) []api.Binding { return d.Bindings },
	flags:    (*queryFlags).addTo,
	watch: &watching{
		print: events[api.BindingEvent]{
			(*api.Client).WatchBindings, (*cli.Printer).BindingEventsHeader, (*cli.Printer).BindingEvent,
			func(e api.BindingEvent) string { return e.Binding.IP },
		}.print,
		usage: "print changes on this node as they happen",
		local: true,
		alone: []string{"cluster", "node", "sort-by"},
	},
}

var conflictList = list[api.Conflicts, api.Conflict]{
	use: "conflicts", short: "Show addresses with two or more live holders, and what to do",
	long: `Show addresses with two or more live holders, and what to do about them. Confirmed conflicts come first, and among them those of ` +
		`a node's own address, then those with most holders, then the oldest. Of more than ten open conflicts it prints a summary; -o wide has all.

A watch prints events of other nodes, or of selected pods, a second or more after they happened.`,
	example: `  dupip conflicts --cluster
  dupip conflicts --cluster -n shop --state confirmed
  dupip conflicts --cluster --watch
  dupip conflicts --all --sort-by since
  dupip conflicts -o name | xargs -n 1 dupip explain
  dupip conflicts --exit-code >/dev/null || echo "look"`,
	get:      (*api.Client).Conflicts,
	coverage: func(d api.Conflicts) api.Coverage { return d.Coverage },
	elements: func(d api.Conflicts) []api.Conflict { return d.Conflicts },
	orders:   cli.ConflictOrders,
	text:     (*cli.Printer).Conflicts,
	name:     func(c api.Conflict) string { return c.IP },
	holders: func(d api.Conflicts) (all []api.Binding) {
		for _, c := range d.Conflicts {
			for _, b := range append(c.Holders, api.Binding{}) { // a resolved one may have none
				all = append(all, api.Binding{Network: c.Network, IP: c.IP, Pod: b.Pod})
			}
		}
		return all
	},
	flags: func(q *queryFlags, cmd *cobra.Command) {
		cmd.Flags().BoolVar(&q.query.All, "all", false, "also resolved conflicts, newest first")
		q.addTo(cmd)
	},
	states:   api.ConflictStates,
	exitCode: "a conflict is open that is not a drill, with 4 when there is none and not all nodes answered",
	exit: func(d api.Conflicts) int {
		switch {
		case slices.ContainsFunc(d.Conflicts, func(c api.Conflict) bool { return c.State != "resolved" && !c.Drill }):
			return exitFound
		case d.Partial:
			return exitPartial
		}
		return 0
	},
	watch: &watching{
		print: events[api.ConflictEvent]{
			(*api.Client).WatchConflicts, (*cli.Printer).ConflictEventsHeader, (*cli.Printer).ConflictEvent,
			func(e api.ConflictEvent) string { return e.Conflict.IP },
		}.print,
		usage: "print events as they come",
		alone: []string{"all", "exit-code", "state", "sort-by"},
	},
}

var findingList = list[api.Audit, api.Finding]{
	use: "audit", short: "Show where IPAM's books and the wire differ",
	example: `  dupip audit
  dupip audit --cluster --namespace shop
  dupip audit --exit-code -o json`,
	get:      (*api.Client).Audit,
	coverage: func(d api.Audit) api.Coverage { return d.Coverage },
	elements: func(d api.Audit) []api.Finding { return d.Findings },
	gaps:     (*cli.Printer).AuditGaps,
	orders:   cli.FindingOrders,
	text:     (*cli.Printer).Audit,
	name:     func(f api.Finding) string { return f.IP },
	holders: func(d api.Audit) (all []api.Binding) {
		for _, f := range d.Findings {
			all = append(all, api.Binding{Network: f.Network, IP: f.IP, Pod: f.Pod}, api.Binding{Pod: f.ReservedPod})
		}
		for _, network := range d.Checked { // it is worth asking for, without findings, too
			all = append(all, api.Binding{Network: network})
		}
		return all
	},
	flags: func(q *queryFlags, cmd *cobra.Command) {
		q.addTo(cmd)
		cmd.Flags().Lookup("network").Usage = "only this network of CNI's configuration"
	},
	exitCode: "there is any finding, with 4 when there is none and not all was checked",
	exit: func(d api.Audit) int {
		switch d.Verdict {
		case api.AuditFindings:
			return exitFound
		case api.AuditAgrees:
			return 0
		}
		return exitPartial
	},
}

var nodeList = list[api.Nodes, api.Node]{
	use: "nodes", short: "Show the agents of the cluster, and their state",
	example: `  dupip nodes
  dupip nodes --state dead
  dupip nodes --sort-by heard -o wide`,
	get:      (*api.Client).Nodes,
	coverage: func(api.Nodes) api.Coverage { return api.Coverage{} },
	elements: func(d api.Nodes) []api.Node { return d.Nodes },
	orders:   cli.NodeOrders,
	text:     (*cli.Printer).Nodes,
	name:     func(n api.Node) string { return n.Name },
	states:   api.NodeStates,
}
