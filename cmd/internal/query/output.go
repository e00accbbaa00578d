package query

import (
	"bytes"
	"os"

	"github.com/spf13/cobra"
)

// output is the standard output. Its first error ends the command, whatever that makes of it: what was written is no whole
// document.
type output struct {
	file *os.File
	fail func(error)
}

// Write implements [io.Writer].
func (o output) Write(data []byte) (int, error) {
	n, err := o.file.Write(data)
	if err != nil {
		o.fail(err)
	}
	return n, err
}

// Fd is the descriptor, for who wants to know whether it is a terminal.
func (o output) Fd() uintptr { return o.file.Fd() }

// wholeHelp prints the help of a command and its subcommands at once: Cobra has a line of its own for an error of the output.
func wholeHelp(root *cobra.Command) {
	help := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		out := cmd.OutOrStdout()
		var text bytes.Buffer
		cmd.SetOut(&text)
		help(cmd, args)
		cmd.SetOut(out)
		_, _ = out.Write(text.Bytes()) // [Run] has the error
	})
}
