package query

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/cmd/internal/cli"
	"github.com/dupip/dupip/document"
)

// ShowDoctor prints a report. The exit code is 1 if anything failed.
func (p *Program) ShowDoctor(cmd *cobra.Command, report document.DoctorReport) error {
	if err := cli.Show(p.Printer(cmd), p.Output, report, (*cli.Printer).Doctor); err != nil {
		return err
	}
	if report.Summary.Failures > 0 {
		return ExitError(1)
	}
	return nil
}
