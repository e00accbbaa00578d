package vip

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/lab"
)

// vrrp is the IP protocol by which the nodes hear of each other.
const vrrp = 112

// keepalived is the real one on a node, in its netns, with files of its own.
type keepalived struct {
	*lab.T
	node    *lab.Node
	dir     string
	vmac    bool
	process *lab.Process
	pids    []int // of the process and its children
	log     string
}

func newKeepalived(t *lab.T, node *lab.Node, priority int, vmac bool) *keepalived {
	t.Helper()
	testneeds.Program(t, "keepalived", "keepalived")
	k := &keepalived{T: t, node: node, dir: t.TempDir(), vmac: vmac}
	k.configure(priority)
	t.OnClose(k.end)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := k.journalctl(nil, "")
			t.Logf("keepalived on %s:\n%s", node.ShortName(), log)
		}
	})
	return k
}

// configure writes a configuration with an instance for each family, which move together.
func (k *keepalived) configure(priority int) {
	k.Helper()
	var text strings.Builder
	fmt.Fprint(&text, "global_defs {\n  router_id ", k.node.ShortName(), "\n}\nvrrp_sync_group both {\n  group {\n    vip0\n    vip1\n  }\n}\n")
	for i, ip := range vips {
		own := ""
		if k.vmac {
			own = fmt.Sprintf("use_vmac vrrp.%d\n  vmac_xmit_base", 51+i)
		}
		fmt.Fprintf(&text, "vrrp_instance vip%d {\n  state BACKUP\n  interface %s\n  virtual_router_id %d\n  priority %d\n  advert_int 1\n  %s\n  virtual_ipaddress {\n    %v\n  }\n}\n",
			i, lab.UplinkName, 51+i, priority, own, ip)
	}
	k.Do(os.WriteFile(filepath.Join(k.dir, "keepalived.conf"), []byte(text.String()), 0o600))
}

// start starts it, and returns when it knows its state.
func (k *keepalived) start() {
	k.Helper()
	file := func(name string) string { return filepath.Join(k.dir, name) }
	p, err := k.node.Launch(exec.Command("keepalived", "--dont-fork", "--log-console", "--no-syslog", "--vrrp", "--use-file", file("keepalived.conf"),
		"--pid", file("pid"), "--vrrp_pid", file("vrrp.pid")))
	k.Do(err)
	k.process = p
	k.Eventually("keepalived on "+k.node.ShortName(), func() error {
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", p.PID()))
		switch {
		case !p.Running():
			return lab.Final(errors.New(p.Log()))
		case err != nil || len(children) == 0 || !strings.Contains(p.Log(), "Entering BACKUP STATE"):
			return errors.Join(err, errors.New(p.Log()))
		}
		k.pids = []int{p.PID()}
		for pid := range bytes.FieldsSeq(children) {
			n, err := strconv.Atoi(string(pid))
			k.Do(err)
			k.pids = append(k.pids, n)
		}
		return nil
	})
}

// signal sends a signal to all of its processes.
func (k *keepalived) signal(s unix.Signal) error {
	var errs []error
	for _, pid := range k.pids {
		errs = append(errs, unix.Kill(pid, s))
	}
	return errors.Join(errs...)
}

// stop does what systemd does: a process that is stopped is to continue, too. One that has ended is left alone.
func (k *keepalived) stop() error {
	if k.process == nil {
		return nil
	}
	defer k.ended()
	return errors.Join(k.process.Signal(unix.SIGTERM), k.signal(unix.SIGCONT), k.process.Stop())
}

// kill ends all of its processes at once: the addresses stay. Without the first signal the children would end in order when the first process is
// gone.
func (k *keepalived) kill() error {
	defer k.ended()
	return errors.Join(k.signal(unix.SIGSTOP), k.signal(unix.SIGKILL), k.process.Kill())
}

// ended keeps the log of a process that has ended.
func (k *keepalived) ended() {
	k.log += k.process.Log()
	k.process, k.pids = nil, nil
}

// end leaves no process.
func (k *keepalived) end() error {
	_ = k.signal(unix.SIGKILL)
	return nil
}

// reload gives it another priority.
func (k *keepalived) reload(priority int) {
	k.Helper()
	k.configure(priority)
	k.Do(k.process.Signal(unix.SIGHUP))
}

// systemctl takes the place of the command, on a node that has no systemd.
func (k *keepalived) systemctl(args []string, _ string) (string, error) {
	if strings.Join(args, " ") != "stop keepalived" {
		return "", fmt.Errorf("systemctl %v: only keepalived is stopped here", args)
	}
	return "", k.stop()
}

// journalctl takes the place of the command that prints the log.
func (k *keepalived) journalctl([]string, string) (string, error) {
	if k.process == nil {
		return k.log, nil
	}
	return k.log + k.process.Log(), nil
}
