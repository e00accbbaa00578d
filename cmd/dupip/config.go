package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/config"
	"github.com/dupip/dupip/cmd/internal/cli"
)

// configSummary is the document of "dupip config check": what a configuration file says.
type configSummary struct {
	File     string           `json:"file"`
	Networks []networkSummary `json:"networks"`
	Shared   []string         `json:"shared"`
	Ignored  []string         `json:"ignoredInterfaces"`
	Limits   limitsSummary    `json:"limits"`
}

type networkSummary struct {
	Name    string       `json:"name"`
	Scope   config.Scope `json:"scope"`
	Solicit bool         `json:"solicit"`
}

// limitsSummary is [config.Limits] with the keys of the file.
type limitsSummary struct {
	Bindings             int `json:"bindings"`
	BindingsPerInterface int `json:"bindingsPerInterface"`
	History              int `json:"history"`
	VerifyPerSecond      int `json:"verifyPerSecond"`
	RefreshPerSecond     int `json:"refreshPerSecond"`
}

func newConfig(g *globals) *cobra.Command {
	check := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a configuration file, and print what it says",
		Long: `Check a configuration file as "dupip agent --config FILE" reads it, and print
what it says. No agent and no rights are needed. "-" is the standard input.
Each mistake is a line with its place, at most ten; the exit code is then 1.`,
		Example: `  dupip config check dupip.yaml
  dupip config check - -o json <dupip.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 || args[0] == "" {
				return fmt.Errorf("config check needs one file, or - for the standard input: %s dupip.yaml", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			c, name, err := loadConfig(cmd.InOrStdin(), args[0])
			if err != nil {
				return err
			}
			return cli.Show(g.printer(cmd), g.output, summarize(c, name), printConfig)
		},
	}
	g.addOutput(check)
	cmd := &cobra.Command{
		Use: "config", Short: "Check a configuration file before an agent reads it", Example: "  dupip config check dupip.yaml", Args: noArguments,
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

func summarize(c *config.Config, name string) configSummary {
	s := configSummary{File: name, Networks: []networkSummary{}, Shared: []string{}, Limits: limitsSummary(c.Limits())}
	for _, n := range c.Networks() {
		s.Networks = append(s.Networks, networkSummary(n))
	}
	for _, p := range c.SharedRanges() {
		s.Shared = append(s.Shared, strings.TrimSuffix(p.String(), fmt.Sprintf("/%d", p.Addr().BitLen())))
	}
	s.Ignored = append([]string{}, c.IgnoredPatterns()...)
	return s
}

func printConfig(p *cli.Printer, s configSummary) {
	var networks []string
	for _, n := range s.Networks {
		text := fmt.Sprintf("%s (%s", n.Name, map[config.Scope]string{config.Cluster: "one in the cluster", config.Node: "one on each node"}[n.Scope])
		if !n.Solicit {
			text += ", not probed"
		}
		networks = append(networks, text+")")
	}
	l := s.Limits
	fmt.Fprintf(p.Out, "%s: OK\n", s.File)
	for _, line := range []struct{ what, text string }{
		{"networks", strings.Join(networks, ", ")},
		{"shared", strings.Join(s.Shared, ", ")},
		{"ignored interfaces", strings.Join(s.Ignored, ", ")},
		{"limits", fmt.Sprintf("%s, %d for one interface; %s; %d verifying and %d refreshing probes a second",
			cli.Plural(l.Bindings, "binding", "bindings"), l.BindingsPerInterface,
			cli.Plural(l.History, "resolved conflict", "resolved conflicts"), l.VerifyPerSecond, l.RefreshPerSecond)},
	} {
		if line.text == "" {
			line.text = "none"
		}
		p.Entry(20, line.what, line.text)
	}
}
