package main

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/cmd/internal/query"
	"github.com/dupip/dupip/document"
)

func newConfig(p *program) *cobra.Command {
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file, and print what it says",
		Long: `Check a configuration file as "dupip agent --config FILE" reads it, and print what it says. No agent and no rights are ` +
			`needed. "-" is the standard input. Each mistake is a line with its place, at most ten; the exit code is then 1.`,
		Example: `  dupip config check dupip.yaml
  dupip config check - -o json <dupip.yaml`,
		Args: query.OneArgument("config check needs one file, or - for the standard input", "dupip.yaml"),
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := loadConfig(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			return cli.Show(p.Printer(cmd), p.Output, configuration(c, name), (*cli.Printer).Configuration)
		},
		ValidArgsFunction: query.OnlyArgument(cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)),
	}
	p.AddOutput(check)
	cmd := &cobra.Command{
		Use: "config", Short: "Check a configuration file before an agent reads it", Example: "  dupip config check dupip.yaml", Args: query.NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(check)
	return cmd
}

func loadConfig(stdin io.Reader, path string) (*config.Config, string, error) {
	if path == "-" {
		c, err := config.Read(stdin, "standard input")
		return c, "standard input", err
	}
	c, err := config.Load(path)
	return c, path, err
}

// texts are addresses and CIDRs as the file may have them.
func texts(ranges []netip.Prefix) []string {
	all := []string{}
	for _, p := range ranges {
		all = append(all, strings.TrimSuffix(p.String(), fmt.Sprintf("/%d", p.Addr().BitLen())))
	}
	return all
}

func configuration(c *config.Config, name string) document.Configuration {
	doc := document.Configuration{File: name, Networks: []document.NetworkStatus{}, Limits: document.Limits(c.Limits())}
	for _, n := range c.Networks() {
		doc.Networks = append(doc.Networks, document.NetworkStatus{Name: n.Name, Scope: string(n.Scope), Solicit: n.Solicit})
	}
	doc.Shared, doc.Exclusive = texts(c.SharedRanges()), texts(c.ExclusiveRanges())
	doc.Segments = document.SegmentRules{Ask: c.Asks(), Infer: c.Infers(config.SegmentNetwork(""))}
	doc.Ignored = append([]string{}, c.IgnoredPatterns()...)
	return doc
}
