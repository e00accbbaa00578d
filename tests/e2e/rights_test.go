package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/dupip/dupip/tests/lab"
)

// Every right that the agent needs is named when it is missing.
func TestEveryMissingRight(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	setpriv, err := exec.LookPath("setpriv")
	l.Do(err)
	for _, tt := range []struct{ drop, word string }{
		{"-all", "CAP_"},
		{"-net_admin", "CAP_NET_ADMIN"},
		{"-net_raw", "CAP_NET_RAW"},
		{"-net_broadcast", "CAP_NET_BROADCAST"},
		{"-sys_admin", "CAP_SYS_ADMIN"},
		{"-sys_admin,-bpf", "CAP_"},
		{"-sys_admin,-perfmon", "CAP_"},
	} {
		t.Run(tt.drop, func(t *testing.T) {
			var got outcome
			l.Do(n.Exec(func() error {
				got = dupip(t, func(cmd *exec.Cmd) {
					cmd.Args = append([]string{setpriv, "--bounding-set", tt.drop, "--inh-caps", tt.drop, cmd.Path}, cmd.Args[1:]...)
					cmd.Path = setpriv
				}, "agent", "--api-socket", filepath.Join(t.TempDir(), "a.sock"))
				return nil
			}))
			wantOneLine(t, got, tt.word)
		})
	}
}

// A user without rights on the socket gets an error that says so.
func TestUnprivilegedClient(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	n := l.Node("")
	socket := filepath.Join(t.TempDir(), "a.sock")
	l.Do(os.Chmod(filepath.Dir(filepath.Dir(socket)), 0o755))
	a, err := n.StartAgent("--api-socket", socket)
	l.Do(err)
	l.Eventually("the agent answers", func() error {
		_, err := lab.NewClient(socket).Status(t.Context())
		return err
	})
	wantOneLine(t, dupip(t, asNobody, "conflicts", "--api-socket", socket), "not allowed", "root")
	l.Do(a.Stop())
}
