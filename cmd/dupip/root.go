package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dupip/dupip/agent/api"
)

// globals are the flags that most commands share.
type globals struct {
	socket string
	output format
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "dupip",
		Short: "Finds duplicate pod IPs by looking at packets, whatever IPAM claims",
		Long: `dupip finds duplicate pod IPs by looking at packets, whatever IPAM claims.

Run "dupip agent" on a node; ask it with the other commands. Every flag can also
be given as an environment variable: --api-socket is DUPIP_API_SOCKET.`,
		SilenceUsage:  true,
		SilenceErrors: true,
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error {
			return fromEnvironment(cmd.Flags())
		},
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see \"%s --help\"", err, cmd.CommandPath())
	})
	root.SetUsageTemplate(strings.ReplaceAll(root.UsageTemplate(), ".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", screen)))
	g := &globals{output: formatTable}
	root.AddCommand(
		newAgent(),
		newBindings(g),
		newConflicts(g),
		newDoctor(g),
		newExplain(g),
		newNodes(g),
		newStatus(g),
		newVersion(g),
	)
	return root
}

// addTo adds the flags of commands that ask an agent.
func (g *globals) addTo(cmd *cobra.Command) {
	cmd.Flags().StringVar(&g.socket, "api-socket", api.DefaultSocket, "Unix socket of the agent to ask")
	g.addOutput(cmd)
}

func (g *globals) addOutput(cmd *cobra.Command) {
	cmd.Flags().VarP(&g.output, "output", "o", "output format: table, wide, json or yaml")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]string{"table", "wide", "json", "yaml"}, cobra.ShellCompDirectiveNoFileComp))
}

func (g *globals) client() *api.Client { return api.NewClient(g.socket) }

// noArguments refuses arguments of a command that takes none.
func noArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%q: %s takes no arguments; see \"%[2]s --help\"", args[0], cmd.CommandPath())
}

// apart makes flags exclude each other: cobra then completes one of them only. Its own check
// comes later, in words for programmers.
func apart(cmd *cobra.Command, flags ...string) {
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

// agentsVariable marks a flag of a query whose variable belongs to the flag of the same
// name of the agent, and means something else there.
const agentsVariable = "agents-variable"

// fromEnvironment sets every flag that was not given from DUPIP_<NAME>, where it is
// set and not empty.
func fromEnvironment(flags *pflag.FlagSet) error {
	var err error
	flags.VisitAll(func(flag *pflag.Flag) {
		if _, theirs := flag.Annotations[agentsVariable]; theirs || flag.Changed || flag.Name == "help" || err != nil {
			return
		}
		name := "DUPIP_" + strings.ToUpper(strings.ReplaceAll(flag.Name, "-", "_"))
		if value := os.Getenv(name); value != "" {
			if setErr := flags.Set(flag.Name, value); setErr != nil {
				err = fmt.Errorf("environment variable %s: %w", name, setErr)
			}
		}
	})
	return err
}
