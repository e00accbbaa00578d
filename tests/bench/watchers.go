package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/dupip/dupip/tests/lab"
)

// patience is how long anything may take that takes a moment.
const patience = 15 * time.Second

// watcher is a process that watches the traffic of two pods.
type watcher struct {
	pid  int
	stop func() error
	// counts are the frames it saw and those it lost; nil where nobody tells.
	counts func() (readerCounts, error)
}

// stage is a node with two pods.
type stage struct {
	lab      *lab.Lab
	node     *lab.Node
	from, to *lab.Pod
}

// watching is one way to watch the stage: none, if begin is nil.
type watching struct {
	what  string
	begin func(context.Context, *stage) (*watcher, error)
}

var watchings = []watching{
	{"unobserved", nil},
	{"dupip, tcx", agentIn("tcx")},
	{"dupip, tc", agentIn("tc")},
	{"dupip, xdp", agentIn("xdp")},
	{"unobserved", nil},
	{"arpwatch", arpwatch},
	{"packet reader", reader},
}

// agentIn starts an agent and waits until it has attached to both pods.
func agentIn(mode string) func(context.Context, *stage) (*watcher, error) {
	return func(ctx context.Context, s *stage) (w *watcher, err error) {
		tidy := func() error { return nil }
		if mode == "tc" {
			// The agent would wait three quiet seconds before it makes a qdisc.
			if tidy, err = s.addClsact(); err != nil {
				return nil, err
			}
		}
		a, err := s.node.StartAgent("--attach", mode, "--log-level", "info")
		if err != nil {
			return nil, errors.Join(err, tidy())
		}
		stop := func() error { return errors.Join(a.Stop(), tidy()) }
		if err := waitAttached(ctx, a, s.from, s.to); err != nil {
			return nil, errors.Join(err, stop())
		}
		return &watcher{pid: a.PID(), stop: stop}, nil
	}
}

// waitAttached waits until an agent has attached to the interfaces of these pods and has
// heard of their addresses.
func waitAttached(ctx context.Context, a *lab.Agent, pods ...*lab.Pod) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := a.WaitReady(ctx); err != nil {
		return err
	}
	for _, p := range pods {
		for _, ip := range p.Addrs() {
			if _, err := a.Client.WaitBinding(ctx, ip, func(b lab.Binding) bool { return b.Interface == p.HostInterface }); err != nil {
				return fmt.Errorf("the agent does not see %s: %w\n%s", p.ShortName(), err, lastWords(a))
			}
		}
	}
	return nil
}

// addClsact gives both pods' interfaces a clsact qdisc; tidy takes them away again.
func (s *stage) addClsact() (tidy func() error, err error) {
	var qdiscs []netlink.Qdisc
	for _, p := range []*lab.Pod{s.from, s.to} {
		index, err := s.node.Ifindex(p.HostInterface)
		if err != nil {
			return nil, err
		}
		qdiscs = append(qdiscs, &netlink.GenericQdisc{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: index, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT},
			QdiscType:  "clsact",
		})
	}
	each := func(do func(netlink.Qdisc) error) error {
		return s.node.Exec(func() error {
			var errs []error
			for _, q := range qdiscs {
				errs = append(errs, do(q))
			}
			return errors.Join(errs...)
		})
	}
	tidy = func() error { return each(netlink.QdiscDel) }
	if err := each(netlink.QdiscAdd); err != nil {
		return nil, errors.Join(fmt.Errorf("add clsact: %w", err), tidy())
	}
	return tidy, nil
}

// arpwatch starts Debian's arpwatch on the bridge, where one would put it: one for all pods.
func arpwatch(ctx context.Context, s *stage) (*watcher, error) {
	path, err := exec.LookPath("arpwatch")
	if err != nil {
		// Where Debian has it and not every PATH.
		path, err = exec.LookPath("/usr/sbin/arpwatch")
	}
	if err != nil {
		return nil, fmt.Errorf("find arpwatch (tests/install.sh bench installs it): %w", err)
	}
	// With the lab's prefix, a later lab removes it should we be killed.
	dir, err := os.MkdirTemp("", s.lab.Prefix()+"arpwatch-")
	if err != nil {
		return nil, err
	}
	tidy := func() error { return os.RemoveAll(dir) }
	s.lab.OnClose(tidy)
	table := filepath.Join(dir, "arp.dat")
	if err := os.WriteFile(table, nil, 0o600); err != nil {
		return nil, err
	}
	// In the foreground, without mail, without complaints about foreign subnets.
	c, err := startChild(s.lab, s.node, exec.Command(path, "-d", "-Q", "-N", "-i", lab.Bridge, "-f", table))
	if err != nil {
		return nil, err
	}
	stop := func() error { return errors.Join(c.stop(), tidy()) }
	if err := s.waitPacketSocket(ctx, c); err != nil {
		return nil, errors.Join(err, stop())
	}
	return &watcher{pid: c.pid(), stop: stop}, nil
}

// waitPacketSocket waits until somebody listens on the bridge, which arpwatch does not tell.
func (s *stage) waitPacketSocket(ctx context.Context, c *child) error {
	index, err := s.node.Ifindex(lab.Bridge)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		var text []byte
		if err := s.node.Exec(func() (err error) {
			text, err = os.ReadFile("/proc/thread-self/net/packet")
			return err
		}); err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) > 4 && fields[4] == strconv.Itoa(index) {
				return nil
			}
		}
		select {
		case <-c.exited:
			return fmt.Errorf("arpwatch ended: %w", c.err)
		case <-ctx.Done():
			return fmt.Errorf("wait for arpwatch to listen: %w", ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// reader starts this program as the packet reader, on the interfaces that dupip observes.
func reader(_ context.Context, s *stage) (*watcher, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, readerCommand, s.from.HostInterface, s.to.HostInterface)
	cmd.Stderr = os.Stderr
	// Not StdinPipe and StdoutPipe: those are closed by Wait, which runs all the time.
	theirs, questions, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	answers, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, theirs.Close(), questions.Close())
	}
	cmd.Stdin, cmd.Stdout = theirs, theirOut
	c, err := startChild(s.lab, s.node, cmd)
	err = errors.Join(err, theirs.Close(), theirOut.Close())
	hangUp := func() error { return errors.Join(questions.Close(), answers.Close()) }
	if err != nil {
		return nil, errors.Join(err, hangUp())
	}
	decoder := json.NewDecoder(bufio.NewReader(answers))
	w := &watcher{
		pid:  c.pid(),
		stop: func() error { return errors.Join(c.stop(), hangUp()) },
		counts: func() (counts readerCounts, err error) {
			if _, err = io.WriteString(questions, "\n"); err == nil {
				err = decoder.Decode(&counts)
			}
			if err != nil {
				return counts, fmt.Errorf("ask the packet reader: %w", err)
			}
			return counts, nil
		},
	}
	// It answers once all its sockets are open.
	if _, err := w.counts(); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}
