package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
)

// globals are the flags that most commands share.
type globals struct {
	socket string
	output cli.Format
	// noHeaders is for commands that print tables.
	noHeaders bool
}

// printer returns a printer for a command's output.
func (g *globals) printer(cmd *cobra.Command) *cli.Printer {
	p := cli.NewPrinter(cmd.OutOrStdout())
	p.NoHeaders = g.noHeaders
	return p
}

func newRoot() *cobra.Command {
	g := new(globals)
	root := &cobra.Command{
		Use:   "dupip",
		Short: "Finds duplicate pod IPs by looking at packets, whatever IPAM claims",
		Long: `dupip finds duplicate pod IPs by looking at packets, whatever IPAM claims.

Run "dupip agent" on a node; the other commands query it. Every flag of "agent" and "doctor" can also be an environment variable, ` +
			`and --api-socket (DUPIP_API_SOCKET) and --output of the others. A variable that is no flag's is ignored, with a warning.

Exit codes: 0 done; 1 failed, or "doctor" has found a failure; 3 with --exit-code, if there is a conflict or a finding.`,
		Example: `  dupip conflicts --cluster
  dupip explain 10.0.0.1
  dupip bindings --pod shop/web-0
  dupip status`,
		Version:       buildVersion(),
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			warnUnknown(cmd.ErrOrStderr(), cmd.Root(), os.Environ())
			if err := fromEnvironment(cmd); err != nil {
				return err
			}
			formats := formatsOf(cmd)
			switch {
			case cmd.Flags().Lookup("output") == nil, slices.Contains(formats, string(g.output)):
				return nil
			case g.output == cli.Names:
				return errors.New("-o name is for lists; use table, wide, json or yaml")
			}
			return fmt.Errorf("-o %q: must be %s", g.output, cli.Disjoin(formats))
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath())
	})
	p := cli.NewPrinter(os.Stdout)
	root.SetUsageTemplate(strings.NewReplacer(
		".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", cmp.Or(p.Width, 80)),
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`, `"{{.CommandPath}} COMMAND --help" says more about a command.`,
		"  {{rpad .Name .NamePadding }} {{.Short}}", "{{entry .}}",
	).Replace(root.UsageTemplate()))
	cobra.AddTemplateFunc("wrapped", p.Wrap)
	cobra.AddTemplateFunc("entry", func(c *cobra.Command) string {
		return strings.TrimSuffix(p.EntryText(c.NamePadding()+3, "  "+c.Name(), c.Short), "\n")
	})
	root.SetHelpTemplate(strings.ReplaceAll(root.HelpTemplate(), "trimTrailingWhitespaces", "wrapped"))
	root.SetVersionTemplate("dupip {{.Version}}\n")
	root.AddCommand(
		newAgent(),
		findingList.command(g),
		bindingList.command(g),
		newConfig(g),
		conflictList.command(g),
		newDoctor(g),
		newDrill(g),
		newExplain(g),
		nodeList.command(g),
		newStatus(g),
		newUI(g),
		newVersion(g),
	)
	return root
}

// addTo adds the flags of commands that query an agent.
func (g *globals) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.socket, "api-socket", api.DefaultSocket, "Unix socket of the agent to ask")
	g.addOutput(cmd)
}

func (g *globals) addOutput(cmd *cobra.Command) {
	if isList(cmd) {
		cmd.Flags().BoolVar(&g.noHeaders, "no-headers", false, "no header above tables")
	}
	cmd.Flags().StringVarP((*string)(&g.output), "output", "o", string(cli.Table), "output `format`: "+cli.Disjoin(formatsOf(cmd)))
	complete(cmd, "output", formatsOf(cmd)...)
}

func isList(cmd *cobra.Command) bool { return cmd.Flags().Lookup("sort-by") != nil }

// formatsOf returns the values of --output.
func formatsOf(cmd *cobra.Command) []string {
	formats := []string{string(cli.Table), string(cli.Wide), string(cli.JSON), string(cli.YAML)}
	if isList(cmd) {
		formats = append(formats, string(cli.Names))
	}
	return formats
}

// complete makes a shell complete the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func (g *globals) client() *api.Client { return api.NewClient(g.socket) }

// noArguments is [cobra.NoArgs] with a better error.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%q: %s has no such command; see \"%[2]s --help\"", args[0], cmd.CommandPath())
	}
	return fmt.Errorf("%q: %s takes no arguments; see \"%[2]s --help\"", args[0], cmd.CommandPath())
}

// exclude makes flags exclude each other. Cobra then completes only one of them; its own check runs
// later, and its error is for programmers.
func exclude(cmd *cobra.Command, flags ...string) {
	cmd.MarkFlagsMutuallyExclusive(flags...)
	before := cmd.PreRunE
	cmd.PreRunE = func(cmd *cobra.Command, args []string) error {
		var given []string
		for _, name := range flags {
			if cmd.Flags().Changed(name) {
				given = append(given, "--"+name)
			}
		}
		if len(given) > 1 {
			return fmt.Errorf("%s exclude each other: give one of them", strings.Join(given, " and "))
		}
		if before != nil {
			return before(cmd, args)
		}
		return nil
	}
}
