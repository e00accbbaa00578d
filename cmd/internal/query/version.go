package query

import (
	"fmt"
	"runtime"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

func newVersion(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: p.examples(`  dupip version
  dupip version -o json`),
		Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document := api.Version{Version: p.Version, Go: runtime.Version(), Arch: runtime.GOARCH}
			if done, err := p.Output.Encode(cmd.OutOrStdout(), document, false); done {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s %s (%s, %s/%s)\n", p.Name, document.Version, document.Go, runtime.GOOS, document.Arch)
			return err
		},
	}
	p.AddOutput(cmd)
	return cmd
}
