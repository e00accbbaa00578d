package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dupip/dupip/tests/lab"
)

// TestListens: the ports on which an agent of a cluster listens are those that SECURITY.md names, and no others.
func TestListens(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	agents := l.Cluster(2)
	want := []string{"tcp 7951", "tcp 9951", "udp 7951"}
	l.Eventually(fmt.Sprint("it listens to ", want), func() error {
		var out strings.Builder
		cmd := exec.Command("ss", "-Hlntu") // TCP that listens, and UDP
		cmd.Stdout = &out
		if err := agents[0].Node.Exec(cmd.Start); err != nil {
			return err
		}
		if err := cmd.Wait(); err != nil {
			return err
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			fields := strings.Fields(line)
			got = append(got, fields[0]+" "+fields[4][strings.LastIndexByte(fields[4], ':')+1:])
		}
		slices.Sort(got)
		if diff := cmp.Diff(want, slices.Compact(got)); diff != "" {
			return fmt.Errorf("ports (-want +got):\n%s", diff)
		}
		return nil
	})
}
