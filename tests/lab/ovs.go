package lab

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// ovs is one node's Open vSwitch: its database, its daemon, and the bridges that were made.
type ovs struct {
	dir     string
	bridges map[string]bool
}

// AddOVSBridge makes a bridge of Open vSwitch, with addresses on its own port. Pods whose [PodOptions.Bridge] it is are its ports.
func (n *Node) AddOVSBridge(name string, addrs ...netip.Prefix) error {
	if n.ovs == nil {
		started, err := n.startOVS()
		if err != nil {
			return fmt.Errorf("start Open vSwitch (tests/install.sh vm installs it): %w", err)
		}
		n.ovs = started
	}
	if err := n.ovs.change("add-br", name); err != nil {
		return err
	}
	n.ovs.bridges[name] = true
	errs := []error{n.up(name)}
	for _, a := range addrs {
		errs = append(errs, n.addAddr(name, a))
	}
	return errors.Join(errs...)
}

// startOVS starts the daemons of Open vSwitch in the node. They end with the lab.
func (n *Node) startOVS() (*ovs, error) {
	dir, err := os.MkdirTemp("", n.lab.Prefix()+"ovs-")
	if err != nil {
		return nil, err
	}
	n.lab.OnClose(func() error { return os.RemoveAll(dir) })
	o := &ovs{dir, map[string]bool{}}
	database := filepath.Join(dir, "conf.db")
	if err := output(o.command("ovsdb-tool", "create", database, "/usr/share/openvswitch/vswitch.ovsschema")); err != nil {
		return nil, err
	}
	for _, daemon := range []*exec.Cmd{
		o.command("ovsdb-server", database, "--remote=p"+o.socket(), "--unixctl="+filepath.Join(dir, "server.ctl")),
		o.command("ovs-vswitchd", o.socket(), "--unixctl="+filepath.Join(dir, "switch.ctl")),
	} {
		if _, err := n.Launch(daemon); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// change has the daemon change its bridges, and waits until it has.
func (o *ovs) change(args ...string) error {
	seconds := int(Patience(10 * time.Second).Seconds())
	return output(o.command("ovs-vsctl", append([]string{"--db=" + o.socket(), "--retry", fmt.Sprint("--timeout=", seconds)}, args...)...))
}

func (o *ovs) socket() string { return "unix:" + filepath.Join(o.dir, "db") }

// command is one of Open vSwitch's, which keeps its files in a folder of its own.
func (o *ovs) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), "OVS_RUNDIR="+o.dir, "OVS_LOGDIR="+o.dir, "OVS_DBDIR="+o.dir, "OVS_SYSCONFDIR="+o.dir)
	return cmd
}

// output runs a command, and fails with what it printed.
func output(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, out)
	}
	return nil
}
