package query

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/document"
)

func newVersion(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: p.examples(`  dupip version
  dupip version -o json`),
		Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc := document.Version{Version: p.Version, Go: runtime.Version(), Arch: runtime.GOARCH}
			if done, err := p.Output.Encode(cmd.OutOrStdout(), doc, false); done {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s/%s)\n", p.Name, doc.Version, doc.Go, runtime.GOOS, doc.Arch)
			return err
		},
	}
	p.AddOutput(cmd)
	return cmd
}
