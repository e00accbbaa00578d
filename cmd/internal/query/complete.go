package query

import (
	"maps"
	"slices"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/detector"
	"github.com/dupip/dupip/document"
)

// Complete makes a shell complete the values of a flag.
func Complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// CompletePaths makes a shell complete the values of flags as names of files and folders, which it does for no other flag.
func CompletePaths(cmd *cobra.Command, flags ...string) {
	for _, flag := range flags {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault))
	}
}

// selectors are the flags that select elements of a list, with what they compare.
var selectors = map[string]func(b document.Binding) string{
	"ip": func(b document.Binding) string {
		if !b.IP.IsValid() { // of no address: its String is not empty
			return ""
		}
		return b.IP.String()
	},
	"network": func(b document.Binding) string { return b.Network },
	"namespace": func(b document.Binding) string {
		return b.Pod.Detector().Namespace
	},
	"pod": func(b document.Binding) string {
		if b.Pod.IsContainer() {
			return b.Pod.Name
		}
		return b.Pod.String()
	},
}

// completeAddress completes the only argument of a command: an address that is seen.
func completeAddress(p *Program) cobra.CompletionFunc {
	return OnlyArgument(completion(p, p.all, (*api.Client).Bindings, bindingList.elements, selectors["ip"]))
}

// OnlyArgument completes the only argument of a command.
func OnlyArgument(complete cobra.CompletionFunc) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
		if len(args) > 0 {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return complete(cmd, args, begun)
	}
}

// completeNodes completes the name of a node that answers.
func completeNodes(p *Program) cobra.CompletionFunc {
	return completion(p, p.all, (*api.Client).Nodes, nodeList.elements, func(n document.Node) string {
		if n.Role != "" || n.State == "dead" || n.State == "left" {
			return "" // reporters are not asked
		}
		return n.Name
	})
}

// all is the query for all that the program is about.
func (p *Program) all() (document.Query, error) { return document.Query{Cluster: p.Cluster}, nil }

// completion completes a value that elements of a document have.
func completion[T, E any](
	p *Program, query func() (document.Query, error), ask asking[T], elements func(T) []E, value func(E) string,
) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		var doc T
		q, err := query()
		if err == nil {
			doc, err = get(cmd, p, ask, q)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveError
		}
		values := make(map[string]bool)
		for _, e := range elements(doc) {
			if text := detector.Printable(value(e)); text != "" {
				values[text] = true
			}
		}
		return slices.Sorted(maps.Keys(values)), cobra.ShellCompDirectiveNoFileComp
	}
}
