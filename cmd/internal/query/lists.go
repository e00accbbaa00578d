package query

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
	"github.com/dupip/dupip/document/say"
)

var bindingList = list[document.Bindings, document.Binding]{
	use: "bindings", key: "bindings", short: "Show which address was seen behind which interface",
	example: `  dupip bindings --ip 10.0.0.0/24 --sort-by last-seen
  dupip bindings --cluster --pod shop/web-0
  dupip bindings --node worker-7 -o wide
  dupip bindings --watch`,
	get:      (*api.Client).Bindings,
	coverage: func(d document.Bindings) document.Coverage { return d.Coverage },
	elements: func(d document.Bindings) []document.Binding { return d.Bindings },
	orders:   cli.BindingOrders,
	text:     (*cli.Printer).Bindings,
	name:     func(b document.Binding) string { return b.IP.String() },
	holders:  func(d document.Bindings) []document.Binding { return d.Bindings },
	flags:    (*queryFlags).addTo,
	watch: &watching{
		print: events((*api.Client).WatchBindings, cli.BindingEventsHeader, (*cli.Printer).BindingEvent,
			func(e document.BindingEvent) string { return e.Binding.IP.String() }),
		usage: "print changes on this node as they happen",
		local: true,
		alone: []string{"cluster", "node", "sort-by"},
	},
}

var conflictList = list[document.Conflicts, document.Conflict]{
	use: "conflicts", key: "conflicts", short: "Show addresses with two or more live holders, and what to do",
	long: `Show addresses with two or more live holders, and what to do about them. Confirmed conflicts come first, and among them those of ` +
		`a node's own address, then those with most holders, then the oldest. Of more than ten open conflicts it prints a summary; -o wide has all.

A watch prints events of other nodes, or of selected pods, a second or more after they happened.`,
	example: `  dupip conflicts --cluster
  dupip conflicts --cluster -n shop --state confirmed
  dupip conflicts --cluster --watch
  dupip conflicts --cluster --since 12h
  dupip conflicts --all --sort-by since
  dupip conflicts -o name | xargs -n 1 dupip explain
  dupip conflicts --exit-code >/dev/null || echo "look"`,
	get:      (*api.Client).Conflicts,
	coverage: func(d document.Conflicts) document.Coverage { return d.Coverage },
	elements: func(d document.Conflicts) []document.Conflict { return d.Conflicts },
	orders:   cli.ConflictOrders,
	text:     (*cli.Printer).Conflicts,
	name:     func(c document.Conflict) string { return c.IP.String() },
	holders: func(d document.Conflicts) (all []document.Binding) {
		for _, c := range d.Conflicts {
			for _, b := range append(c.Holders, document.Binding{}) { // a resolved one may have none
				all = append(all, document.Binding{Network: c.Network, IP: c.IP, Holder: document.Holder{Pod: b.Pod}})
			}
		}
		return all
	},
	flags: func(q *queryFlags, cmd *cobra.Command) {
		cmd.Flags().BoolVar(&q.query.All, "all", false, "also resolved conflicts, newest first")
		cmd.Flags().Func("since", "also resolved conflicts that were open within this `duration` before now: 12h", func(text string) (err error) {
			q.query.Since, err = document.ParseSince(text)
			q.query.All = true
			return err
		})
		Complete(cmd, "since", "1h", "12h", "24h", "168h")
		q.addTo(cmd)
	},
	states:   document.ConflictStates,
	exitCode: "a conflict is open that is not a drill, with 4 when there is none and not all nodes answered",
	exit: func(d document.Conflicts) int {
		switch {
		case slices.ContainsFunc(d.Conflicts, func(c document.Conflict) bool { return c.State != detector.Resolved && !c.Drill }):
			return exitFound
		case d.Partial:
			return exitPartial
		}
		return 0
	},
	watch: &watching{
		print: events((*api.Client).WatchConflicts, cli.ConflictEventsHeader, (*cli.Printer).ConflictEvent,
			func(e document.ConflictEvent) string { return e.Conflict.IP.String() }),
		usage: "print events as they come",
		alone: []string{"all", "since", "exit-code", "state", "sort-by"},
	},
}

var findingList = list[document.Audit, document.Finding]{
	use: "audit", key: "findings", short: "Show where IPAM's books and the wire differ",
	example: `  dupip audit
  dupip audit --cluster --namespace shop
  dupip audit --exit-code -o json`,
	get:      (*api.Client).Audit,
	coverage: func(d document.Audit) document.Coverage { return d.Coverage },
	elements: func(d document.Audit) []document.Finding { return d.Findings },
	gaps:     (*cli.Printer).AuditGaps,
	orders:   cli.FindingOrders,
	text:     (*cli.Printer).Audit,
	name:     say.What,
	holders: func(d document.Audit) (all []document.Binding) {
		for _, f := range d.Findings {
			all = append(all, document.Binding{Network: f.CNINetwork, IP: f.IP, Holder: document.Holder{Pod: f.Pod}}, document.Binding{Holder: document.Holder{Pod: f.ReservedPod}})
		}
		for _, network := range d.Checked { // it is worth asking for, without findings, too
			all = append(all, document.Binding{Network: network})
		}
		return all
	},
	flags: func(q *queryFlags, cmd *cobra.Command) {
		q.addTo(cmd)
		cmd.Flags().Lookup("network").Usage = "only this network of CNI's configuration"
	},
	exitCode: "there is any finding, with 4 when there is none and not all was checked",
	exit: func(d document.Audit) int {
		switch d.Verdict {
		case document.AuditFindings:
			return exitFound
		case document.AuditAgrees:
			return 0
		}
		return exitPartial
	},
}

var nodeList = list[document.Nodes, document.Node]{
	use: "nodes", key: "nodes", short: "Show the agents of the cluster, and their state",
	example: `  dupip nodes
  dupip nodes --state dead
  dupip nodes --sort-by heard -o wide`,
	get:      (*api.Client).Nodes,
	coverage: func(document.Nodes) document.Coverage { return document.Coverage{} },
	elements: func(d document.Nodes) []document.Node { return d.Nodes },
	orders:   cli.NodeOrders,
	text:     (*cli.Printer).Nodes,
	name:     func(n document.Node) string { return n.Name },
	gaps:     (*cli.Printer).NodeProblems,
	states:   document.NodeStates,
}
