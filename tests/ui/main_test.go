// Package ui tests the page in Chromium: with agents in the lab, which find real duplicates, and with documents of a large cluster.
package ui

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/tests/lab"
)

func TestMain(m *testing.M) { os.Exit(lab.Main(m)) }

// program is a running `dupip ui`.
type program struct {
	url, port string
	cmd       *exec.Cmd
}

var announced = regexp.MustCompile(`^The page is at (http://127\.0\.0\.1:(\d+)/) \(Ctrl-C ends it\)\n`)

// start starts `dupip ui` for the agent at a socket, and stops it when the test ends.
func start(t testing.TB, socket string, flags ...string) *program {
	t.Helper()
	binary, err := lab.Binary()
	if err != nil {
		t.Fatal(err)
	}
	out := new(lab.Buffer)
	p := &program{cmd: exec.Command(binary, append([]string{"ui", "--api-socket", socket}, flags...)...)}
	p.cmd.Stdout, p.cmd.Stderr = out, out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.stop(t) })
	eventually(t, "the address of the page", func() error {
		match := announced.FindStringSubmatch(out.String())
		if match == nil {
			return fmt.Errorf("it printed %q", out.String())
		}
		p.url, p.port = match[1], match[2]
		return nil
	})
	return p
}

// stop ends the program as Ctrl-C does.
func (p *program) stop(t testing.TB) {
	t.Helper()
	if p.cmd.ProcessState != nil {
		return
	}
	if err := errors.Join(p.cmd.Process.Signal(unix.SIGINT), p.cmd.Wait()); err != nil {
		t.Errorf("dupip ui: %v", err)
	}
}

// eventually polls until ok returns nil.
func eventually(t testing.TB, what string, ok func() error) {
	t.Helper()
	(&lab.T{TB: t}).Eventually(what, ok)
}
