package othertools

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// A tool that ended before the lab has missed packets: that must be an error.
func TestEndsByItself(t *testing.T) {
	testneeds.Root(t)
	for script, want := range map[string]string{
		"exit 0":                    "ended by itself",
		"echo ready; exit 0":        "ended by itself",
		"echo ready; exec sleep 60": "",
	} {
		l, err := lab.New(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		n, err := l.AddNode("")
		if err != nil {
			t.Fatal(err)
		}
		dir, err := tempDir(n)
		if err != nil {
			t.Fatal(err)
		}
		var ready atomic.Bool
		p, err := start(t.Context(), n, dir, exec.Command("/bin/sh", "-c", script), func(string) { ready.Store(true) }, func() error {
			if !ready.Load() {
				return errors.New("not ready")
			}
			return nil
		}, func() bool { return false })
		if script == "echo ready; exit 0" && p != nil {
			<-p.Exited()
		}
		if err = errors.Join(err, l.Close()); want == "" && err != nil || want != "" && !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("%s: %v, want %q", script, err, want)
		}
	}
}
