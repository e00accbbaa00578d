// Package query has the commands that ask an agent, or a reporter: those of dupip, which asks the agent of its node, and of
// kubectl-dupip, which asks about all nodes. It knows documents and printers, and nothing of Linux.
package query

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/dupip/dupip/agent/api"
	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

// Program is the program that has the commands.
type Program struct {
	Name    string // as people call it
	Version string
	// Commands is how those begin that are in what it prints; empty: by its name.
	Commands string
	// Client returns what a command asks.
	Client func(*cobra.Command) (*api.Client, error)
	// Flags adds the flags that Client has for each command.
	Flags func(*cobra.Command)
	// Cluster: documents are always of all nodes, unless one is named. Those of one agent have flags to choose.
	Cluster bool

	// Output is the value of --output.
	Output cli.Format
	// noHeaders is for commands that print tables.
	noHeaders bool
}

// Printer returns a printer for a command's output.
func (p *Program) Printer(cmd *cobra.Command) *cli.Printer {
	printer := p.printer(cmd.OutOrStdout())
	if printer.NoHeaders = p.noHeaders; p.noHeaders {
		printer.Width = 0 // in a terminal, too, people see what their script will
	}
	return printer
}

func (p *Program) printer(out io.Writer) *cli.Printer {
	printer := cli.NewPrinter(out)
	printer.Program = cmp.Or(p.Commands, p.Name)
	return printer
}

// asking is a method of a client that gets a document.
type asking[T any] func(*api.Client, context.Context, document.Query) (T, error)

// get makes a program's client get a document.
func get[T any](cmd *cobra.Command, p *Program, ask asking[T], q document.Query) (doc T, err error) {
	client, err := p.Client(cmd)
	if err != nil {
		return doc, err
	}
	return ask(client, cmd.Context(), q)
}

// Root completes the program's first command: with help that fits the terminal, with errors that say what to do, and with all
// commands of this package.
func (p *Program) Root(root *cobra.Command) *cobra.Command {
	root.Version, root.SilenceUsage, root.SilenceErrors = p.Version, true, true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error {
		if cmd.Flags().Lookup("output") == nil {
			return nil
		}
		return p.Output.Check(formatsOf(cmd))
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w; see \"%s --help\"", FlagError(err), cmd.CommandPath())
	})
	root.Args, root.RunE = NoArguments, func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	root.SuggestionsMinimumDistance = 2
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	printer := cli.NewPrinter(os.Stdout)
	root.SetUsageTemplate(strings.NewReplacer(
		".FlagUsages ", fmt.Sprintf(".FlagUsagesWrapped %d ", cmp.Or(printer.Width, 80)),
		`Use "{{.CommandPath}} [command] --help" for more information about a command.`, `"{{.CommandPath}} COMMAND --help" says more about a command.`,
		"  {{rpad .Name .NamePadding }} {{.Short}}", "{{entry .}}",
		"{{if .Runnable}}", "{{if not .HasAvailableSubCommands}}",
	).Replace(root.UsageTemplate()))
	cobra.AddTemplateFunc("wrapped", printer.Wrap)
	cobra.AddTemplateFunc("entry", func(c *cobra.Command) string {
		return strings.TrimSuffix(printer.EntryText(c.NamePadding()+3, "  "+c.Name(), c.Short), "\n")
	})
	root.SetHelpTemplate(strings.ReplaceAll(root.HelpTemplate(), "trimTrailingWhitespaces", "wrapped"))
	root.SetVersionTemplate(p.Name + " {{.Version}}\n")
	root.AddCommand(findingList.command(p), bindingList.command(p), conflictList.command(p), nodeList.command(p),
		newExplain(p), newCapture(p), newStatus(p), newVersion(p))
	root.InitDefaultCompletionCmd()
	if completion, _, err := root.Find([]string{"completion"}); err == nil && completion != root { // Cobra's shows its help for a shell that it does not know
		completion.Args, completion.RunE, completion.Example = NoArguments, root.RunE, p.examples("  source <(dupip completion bash)")
		for _, shell := range completion.Commands() {
			shell.Args = NoArguments
		}
	}
	return root
}

// examples turns examples of dupip into those of the program.
func (p *Program) examples(text string) string {
	lines := strings.Split(text, "\n")
	if p.Cluster {
		lines = slices.DeleteFunc(lines, func(line string) bool {
			return strings.Contains(line, "--local") || strings.Contains(line, "bindings --watch")
		})
	}
	text = strings.ReplaceAll(strings.Join(lines, "\n"), "dupip ", p.Name+" ")
	if p.Cluster {
		text = strings.ReplaceAll(text, " --cluster", "")
	}
	return text
}

// addTo adds the flags of commands that ask.
func (p *Program) addTo(cmd *cobra.Command) {
	p.Flags(cmd)
	p.AddOutput(cmd)
}

// AddOutput adds the flags of commands that print documents.
func (p *Program) AddOutput(cmd *cobra.Command) {
	if isList(cmd) {
		cmd.Flags().BoolVar(&p.noHeaders, "no-headers", false, "only the rows of a table, without header and advice")
	}
	cmd.Flags().StringVarP((*string)(&p.Output), "output", "o", string(cli.Table), "output `format`: "+cli.Disjoin(formatsOf(cmd)))
	Complete(cmd, "output", slices.DeleteFunc(formatsOf(cmd), func(f string) bool { return strings.HasSuffix(f, "=") })...) // a shell would end the word there
}

func isList(cmd *cobra.Command) bool { return cmd.Flags().Lookup("sort-by") != nil }

// formatsOf returns the values of --output.
func formatsOf(cmd *cobra.Command) []string {
	formats := []string{string(cli.Table), string(cli.Wide), string(cli.JSON), string(cli.YAML)}
	if isList(cmd) {
		formats = append(formats, string(cli.Names))
	}
	return append(formats, cli.Paths, cli.Columns)
}

// NoArguments is [cobra.NoArgs] with a better error.
func NoArguments(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		meant := ""
		if similar := cmd.SuggestionsFor(args[0]); len(similar) > 0 {
			meant = "did you mean " + cli.Disjoin(similar) + "? "
		}
		return fmt.Errorf("%q: %s has no such command; %ssee \"%[2]s --help\"", args[0], cmd.CommandPath(), meant)
	}
	return fmt.Errorf("%q: %s takes no arguments; see \"%[2]s --help\"", args[0], cmd.CommandPath())
}

// OneArgument is [cobra.ExactArgs] of one with an error that says what a command needs, with an example.
func OneArgument(needs, example string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) != 1 || args[0] == "" {
			return fmt.Errorf("%s: %s %s", needs, cmd.CommandPath(), example)
		}
		return nil
	}
}

// FlagError is the error of a flag in the words of people: it says what the value must be, not how it was parsed.
func FlagError(err error) error {
	invalid, ok := errors.AsType[*pflag.InvalidValueError](err)
	if !ok {
		return err
	}
	must, ok := map[string]string{"int": "a whole number", "uint16": "0 to 65535", "duration": "a time such as 500ms, 30s or 2m", "bool": "true or false"}[invalid.GetFlag().Value.Type()]
	if !ok {
		return err
	}
	return fmt.Errorf("--%s %q: must be %s", invalid.GetFlag().Name, invalid.GetValue(), must)
}

// exclude makes those of some flags that a command has exclude each other. Cobra then completes only one of them; its own check runs
// later, and its error is for programmers.
func exclude(cmd *cobra.Command, flags ...string) {
	flags = slices.DeleteFunc(flags, func(name string) bool { return cmd.Flags().Lookup(name) == nil })
	if len(flags) < 2 {
		return
	}
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
