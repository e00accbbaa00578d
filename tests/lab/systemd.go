package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Systemd is a real systemd as the first process of a machine with a node's network. Its files are the
// machine's; what it writes, or what is installed, goes with it.
type Systemd struct {
	Root string // its root directory as other processes see it
	pid  string
}

// Systemd boots one. It has the unit in a file, for which program becomes /usr/local/bin/dupip, or no unit.
func (t *T) Systemd(n *Node, unitAndProgram ...string) *Systemd {
	t.Helper()
	args := append([]string{fmt.Sprintf("dupip-unit-%d-%s", os.Getpid(), n.Name)}, unitAndProgram...)
	p, err := n.Launch(exec.Command("../lab/testdata/systemd.sh", args...))
	t.Do(err)
	s := new(Systemd)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(s.Root, "run/agent.log"))
			t.Logf("%s\nlog of the agent:\n%s", p.Log(), log)
		}
	})
	t.Eventually("systemd has booted", func() error {
		if s.pid, err = onlyChild(strconv.Itoa(p.PID())); err == nil {
			s.pid, err = onlyChild(s.pid)
		}
		if err == nil {
			_, err = s.Run(t.Context(), "systemctl", "is-active", "sysinit.target")
		}
		return err
	})
	s.Root = filepath.Join("/proc", s.pid, "root")
	return s
}

// Run runs a command beside systemd and returns its output, errors included.
func (s *Systemd) Run(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, "nsenter", append([]string{"-t", s.pid, "-m", "-p", "-C", "-u", "-n", "--"}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w: %s", args, err, out)
	}
	return strings.TrimSpace(string(out)), err
}

// onlyChild returns the process id of the first child of a process.
func onlyChild(pid string) (string, error) {
	children, err := os.ReadFile("/proc/" + pid + "/task/" + pid + "/children")
	if err != nil {
		return "", err
	}
	child, _, _ := strings.Cut(string(children), " ")
	if child == "" {
		return "", fmt.Errorf("process %s has no child", pid)
	}
	return child, nil
}
