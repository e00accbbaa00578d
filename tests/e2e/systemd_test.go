package e2e

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
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
	systemd := l.Systemd(n, "../../deploy/systemd/dupip.service", program)
	l.Eventually("systemd says that the agent is ready", func() error {
		_, err := systemd.Run(t.Context(), "systemctl", "is-active", "dupip")
		return err
	})

	client := lab.NewClient(filepath.Join(systemd.Root, "run", "dupip", "dupip.sock"))
	later := l.Pod(n, "later", lab.PodOptions{Addrs: []netip.Addr{ip}}) // a mount below /run/netns
	l.Eventually("the duplicate is confirmed", func() error {
		open, err := client.Conflicts(t.Context(), false)
		if err == nil && (len(open) != 1 || open[0].State != "confirmed" ||
			!slices.ContainsFunc(open[0].Holders, func(b lab.Binding) bool { return b.Netns == later.Name })) {
			err = fmt.Errorf("conflicts %+v", open)
		}
		return err
	})
	tellsProgram(l, systemd)
	for _, command := range [][]string{{"dupip", "status"}, {"systemctl", "reload", "dupip"}, {"systemctl", "is-active", "dupip"}, {"systemctl", "stop", "dupip"}} {
		out, err := systemd.Run(t.Context(), command...)
		if err != nil || strings.Contains(out, "problem") {
			t.Errorf("%v: %s, %v", command, out, err)
		}
	}
	result, err := systemd.Run(t.Context(), "systemctl", "show", "dupip", "-p", "Result", "-p", "NRestarts", "-p", "ActiveState")
	if want := "NRestarts=0\nResult=success\nActiveState=inactive"; err != nil || !sameLines(result, want) {
		t.Errorf("after it was stopped: %q, %v", result, err)
	}
	if state, err := systemd.Run(t.Context(), "ls", "/var/lib/dupip"); err != nil || !strings.Contains(state, "state.json") {
		t.Errorf("the state directory has %q, %v", state, err)
	}
}

// tellsProgram adds the drop-in by which the agent runs a program: it has the user's rights, and none of the agent's.
func tellsProgram(l *lab.T, systemd *lab.Systemd) {
	l.Helper()
	folder := filepath.Join(systemd.Root, "etc/systemd/system/dupip.service.d")
	dropIn, err := os.ReadFile("../../deploy/systemd/on-conflict.conf")
	l.Do(err, os.Mkdir(folder, 0o755), os.WriteFile(filepath.Join(folder, "on-conflict.conf"), dropIn, 0o644))
	const own = "[Service]\nEnvironment=DUPIP_ON_CONFLICT=/usr/local/bin/tell DUPIP_ON_CONFLICT_USER=nobody\n"
	l.Do(os.WriteFile(filepath.Join(folder, "test.conf"), []byte(own), 0o644))
	const program = "#!/bin/sh\ngrep -E '^(Uid|Groups|CapPrm|NoNewPrivs):' /proc/self/status\njq -r .conflict.ip\n"
	l.Do(os.WriteFile(filepath.Join(systemd.Root, "usr/local/bin/tell"), []byte(program), 0o755))
	for _, command := range [][]string{{"systemctl", "daemon-reload"}, {"systemctl", "restart", "dupip"}} {
		_, err := systemd.Run(l.Context(), command...)
		l.Do(err)
	}
	l.Eventually("the program is told of the conflict, which is verified again", func() error {
		log, err := os.ReadFile(filepath.Join(systemd.Root, "run/agent.log"))
		for line := range strings.Lines(string(log)) {
			if strings.Contains(line, "told the program of a conflict") {
				for _, want := range []string{"type=confirmed", "Uid: 65534 65534 65534 65534", "Groups: / ", "CapPrm: 0000000000000000", "NoNewPrivs: 1", "10.244.1.7"} {
					if !strings.Contains(line, want) {
						return lab.Final(fmt.Errorf("%q does not have %q", line, want))
					}
				}
				return nil
			}
		}
		return errors.Join(err, errors.New("the log does not say so"))
	})
}

func sameLines(a, b string) bool {
	x, y := strings.Split(a, "\n"), strings.Split(b, "\n")
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}
