package query

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

// BuildVersion returns the version that a build has set in a program's main.version (-ldflags "-X main.version=…"), else the module's
// version as Go recorded it.
func BuildVersion(set string) string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return cmp.Or(set, info.Main.Version, "(devel)")
	}
	return cmp.Or(set, "(devel)")
}

func newVersion(p *Program) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: p.examples(`  dupip version
  dupip version -o json`),
		Args: NoArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			doc := document.Version{Version: p.Version, Go: runtime.Version(), Arch: runtime.GOARCH}
			return cli.Show(p.Printer(cmd), p.Output, doc, func(printer *cli.Printer, doc document.Version) {
				fmt.Fprintf(printer.Out, "%s %s (%s, %s/%s)\n", p.Name, doc.Version, doc.Go, runtime.GOOS, doc.Arch)
			})
		},
	}
	p.AddOutput(cmd)
	return cmd
}
