package main

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

var bindingList = list[api.Bindings]{
	get:      (*api.Client).Bindings,
	coverage: func(d api.Bindings) api.Coverage { return d.Coverage },
	sort:     func(d api.Bindings, by string) { cli.BindingOrders.Sort(d.Bindings, by) },
	text:     (*cli.Printer).Bindings,
}

func newBindings(g *globals) *cobra.Command {
	var flags queryFlags
	var watch bool
	cmd := &cobra.Command{
		Use:   "bindings",
		Short: "Show which address was seen behind which interface",
		Example: `  dupip bindings --ip 10.0.0.0/24 --sort-by last-seen
  dupip bindings --cluster --pod shop/web-0
  dupip bindings --node worker-7 -o wide
  dupip bindings --watch`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			q, err := flags.parse()
			if err != nil {
				return err
			}
			if !watch {
				_, err = bindingList.show(cmd, &flags, q)
				return err
			}
			return watchEvents(cmd, g, q, (*api.Client).WatchBindings, (*cli.Printer).BindingEventsHeader, (*cli.Printer).BindingEvent)
		},
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "print changes on this node as they happen")
	flags.addTo(cmd, g, cli.BindingOrders.Names())
	exclude(cmd, "watch", "cluster")
	exclude(cmd, "watch", "node")
	exclude(cmd, "watch", "sort-by")
	return cmd
}
