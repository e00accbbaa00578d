package e2e

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// The agent works under the restrictions of its unit: a real systemd starts, reloads and stops it.
func TestUnit(t *testing.T) {
	t.Parallel()
	testneeds.Program(t, "/lib/systemd/systemd", "systemd")
	l := lab.NewT(t)
	n := l.Node("")
	ip := netip.MustParseAddr("10.244.1.7")
	l.Pod(n, "earlier", lab.PodOptions{Addrs: []netip.Addr{ip}})
	program, err := lab.Binary()
	l.Do(err)
	program, err = filepath.Abs(program)
	l.Do(err)
	p, err := n.Launch(exec.Command("testdata/systemd.sh", fmt.Sprintf("dupip-unit-%d", os.Getpid()), "../../deploy/systemd/dupip.service", program))
	l.Do(err)

	var systemd string // its process id
	inside := func(args ...string) (string, error) {
		out, err := exec.CommandContext(t.Context(), "nsenter", append([]string{"-t", systemd, "-m", "-p", "-C", "--"}, args...)...).CombinedOutput()
		if err != nil {
			err = fmt.Errorf("%v: %w: %s", args, err, out)
		}
		return strings.TrimSpace(string(out)), err
	}
	t.Cleanup(func() {
		if t.Failed() && systemd != "" {
			log, _ := os.ReadFile(filepath.Join("/proc", systemd, "root", "run", "agent.log"))
			t.Logf("%s\nlog of the agent:\n%s", p.Log(), log)
		}
	})
	l.Eventually("systemd says that the agent is ready", func() error {
		if systemd, err = onlyChild(strconv.Itoa(p.PID())); err == nil {
			systemd, err = onlyChild(systemd)
		}
		if err == nil {
			_, err = inside("systemctl", "is-active", "dupip")
		}
		return err
	})

	client := lab.NewClient(filepath.Join("/proc", systemd, "root", "run", "dupip", "dupip.sock"))
	later := l.Pod(n, "later", lab.PodOptions{Addrs: []netip.Addr{ip}}) // a mount below /run/netns
	l.Eventually("the duplicate is confirmed", func() error {
		open, err := client.Conflicts(t.Context(), false)
		if err == nil && (len(open) != 1 || open[0].State != "confirmed" ||
			!slices.ContainsFunc(open[0].Holders, func(b lab.Binding) bool { return b.Netns == later.Name })) {
			err = fmt.Errorf("conflicts %+v", open)
		}
		return err
	})
	for _, command := range [][]string{{"dupip", "status"}, {"systemctl", "reload", "dupip"}, {"systemctl", "is-active", "dupip"}, {"systemctl", "stop", "dupip"}} {
		out, err := inside(command...)
		if err != nil || strings.Contains(out, "problem") {
			t.Errorf("%v: %s, %v", command, out, err)
		}
	}
	result, err := inside("systemctl", "show", "dupip", "-p", "Result", "-p", "NRestarts", "-p", "ActiveState")
	if want := "NRestarts=0\nResult=success\nActiveState=inactive"; err != nil || !sameLines(result, want) {
		t.Errorf("after it was stopped: %q, %v", result, err)
	}
	if state, err := inside("ls", "/var/lib/dupip"); err != nil || !strings.Contains(state, "state.json") {
		t.Errorf("the state directory has %q, %v", state, err)
	}
}

func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
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
