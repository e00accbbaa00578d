package query

import (
	"testing"

	"github.com/spf13/cobra"
)

// Rows without headers are as wide as they are, in a terminal, too.
func TestWidthOfRows(t *testing.T) {
	t.Setenv("COLUMNS", "60")
	for noHeaders, want := range map[bool]int{false: 60, true: 0} {
		p := Program{noHeaders: noHeaders}
		if printer := p.Printer(new(cobra.Command)); printer.NoHeaders != noHeaders || printer.Width != want {
			t.Errorf("no headers %t: %+v", noHeaders, printer)
		}
	}
}
