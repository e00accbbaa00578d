package query

import (
	"github.com/spf13/cobra"

	"github.com/dupip/dupip/document"
)

// ShowDoctor prints a report. The exit code is 1 if anything failed.
func (p *Program) ShowDoctor(cmd *cobra.Command, report document.DoctorReport) error {
	if done, err := p.Output.Encode(cmd.OutOrStdout(), report, false); err != nil {
		return err
	} else if !done {
		p.Printer(cmd).Doctor(report)
	}
	if report.Summary.Failures > 0 {
		return ExitError(1)
	}
	return nil
}
