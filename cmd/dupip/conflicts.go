package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

// exitFound is the exit code with --exit-code when a conflict is open, or there is a finding.
const exitFound = 3

var conflictList = list[api.Conflicts]{
	get:      (*api.Client).Conflicts,
	coverage: func(d api.Conflicts) api.Coverage { return d.Coverage },
	sort:     func(d api.Conflicts, by string) { cli.ConflictOrders.Sort(d.Conflicts, by) },
	text:     (*cli.Printer).Conflicts,
}

func newConflicts(g *globals) *cobra.Command {
	var flags queryFlags
	var watch, exitCode bool
	cmd := &cobra.Command{
		Use:   "conflicts",
		Short: "Show addresses with two or more live holders, and what to do",
		Long: `Show addresses with two or more live holders, and what to do about them: the gravest first, which are confirmed ` +
			`ones, of a node's own address, with most holders, for the longest time. Of more than ten open conflicts it prints a summary; -o wide has all.`,
		Example: `  dupip conflicts --cluster
  dupip conflicts --cluster -n shop --state confirmed
  dupip conflicts --cluster --watch
  dupip conflicts --all --sort-by since
  dupip conflicts -o name | xargs -n 1 dupip explain
  dupip conflicts --exit-code >/dev/null || echo "look"`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			if watch {
				return watchEvents(cmd, g, q, (*api.Client).WatchConflicts, (*cli.Printer).ConflictEventsHeader, (*cli.Printer).ConflictEvent)
			}
			document, err := conflictList.show(cmd, &flags, q)
			isOpen := func(c api.Conflict) bool { return c.State != "resolved" && !c.Drill }
			if err == nil && exitCode && slices.ContainsFunc(document.Conflicts, isOpen) {
				return exitError(exitFound)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&flags.query.All, "all", false, "also resolved conflicts, newest first")
	cmd.Flags().StringVar(&flags.query.State, "state", "", "only conflicts in this state: "+cli.Disjoin(api.ConflictStates))
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print events as they happen; with --cluster, --node, --namespace or --pod, a second or more later")
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 when any conflict is open that is no drill")
	complete(cmd, "state", api.ConflictStates...)
	flags.addTo(cmd, g, cli.ConflictOrders.Names())
	for _, other := range []string{"all", "exit-code", "state", "sort-by"} {
		exclude(cmd, "watch", other)
	}
	return cmd
}
