package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/dupip/dupip/agent/api"
)

// version is set at build time by -ldflags "-X main.version=…".
var version string

// buildVersion is the version that was set, else the module's version as Go recorded it.
func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

func newVersion(g *globals) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  dupip version
  dupip version -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			document := api.Version{Version: buildVersion(), Go: runtime.Version(), Arch: runtime.GOARCH}
			if done, err := g.output.Encode(cmd.OutOrStdout(), document, false); done {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "dupip %s (%s, linux/%s)\n", document.Version, document.Go, document.Arch)
			return err
		},
	}
	g.addOutput(cmd)
	return cmd
}
