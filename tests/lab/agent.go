package lab

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Agent is a real `dupip agent` process in the netns of a node.
type Agent struct {
	// Node is where the agent runs and Socket is its API.
	Node   *Node
	Socket string
	// Client speaks to the API.
	Client *Client

	*Process
	args []string
}

// readyTimeout is how long an agent may take to attach on a busy machine.
const readyTimeout = 30 * time.Second

var agents atomic.Uint32

// StartAgent starts an agent on the node, with a node name, an API socket and a state
// folder of its own, and without a container runtime or engine; flags come after those and win.
// It does not wait; see [Agent.WaitReady]. The lab stops the agent.
func (n *Node) StartAgent(flags ...string) (*Agent, error) {
	dir, err := TempDir()
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, fmt.Sprintf("agent%d", agents.Add(1)))
	return n.startAgent(own+".sock", append([]string{
		"agent", "--node-name", n.ShortName(), "--api-socket", own + ".sock", "--state-dir", own,
		"--cri-socket", "none", "--engine-socket", "none", "--cni-conf-dir", "off", "--log-level", "debug",
	}, flags...))
}

// Successor starts another agent with the flags, the state and the socket of one that
// has ended; more flags win.
func (a *Agent) Successor(flags ...string) (*Agent, error) {
	return a.Node.startAgent(a.Socket, slices.Concat(a.args, flags))
}

func (n *Node) startAgent(socket string, args []string) (*Agent, error) {
	program := n.Program
	if program == "" {
		var err error
		if program, err = Binary(); err != nil {
			return nil, err
		}
	}
	a := &Agent{Node: n, Socket: socket, Client: NewClient(socket), args: args}
	var err error
	if a.Process, err = n.launch(exec.Command(program, args...), append([]Mount{{n.BootIDFile(), bootIDFile}}, n.Mounts...)); err != nil {
		return nil, err
	}
	n.lab.OnClose(a.Stop)
	return a, nil
}

// WaitReady polls the API until the agent answers and has attached to its interfaces.
func (a *Agent) WaitReady(ctx context.Context) error {
	return a.poll(ctx, func() error {
		status, err := a.Client.Status(ctx)
		if err == nil && status["ready"] != true {
			err = errors.New("it is not ready")
		}
		return err
	})
}

// poll polls until ok returns nil or the agent has ended.
func (a *Agent) poll(ctx context.Context, ok func() error) error {
	err := Poll(ctx, noTimeout, func() error {
		err := ok()
		if err != nil && !a.Running() {
			return Final(fmt.Errorf("it ended: %w\n%s", a.err, a.Log()))
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("wait for the agent on %s: %w", a.Node.ShortName(), err)
	}
	return nil
}

// Stop is [Process.Stop], and returns an error if the exit code is not 0, unless the agent had ended
// before.
func (a *Agent) Stop() error {
	if !a.Running() {
		return nil
	}
	if err := a.Process.Stop(); err != nil {
		return err
	}
	if a.err != nil {
		return fmt.Errorf("stop agent: %w", a.err)
	}
	return nil
}

// StateDir is the folder in which the agent stores its conflicts, unless a flag gave it another.
func (a *Agent) StateDir() string { return strings.TrimSuffix(a.Socket, ".sock") }

// CLI runs another command of the binary, for example `conflicts -o wide`, against
// this agent and returns what it printed.
func (a *Agent) CLI(ctx context.Context, args ...string) (string, error) {
	binary, err := Binary()
	if err != nil {
		return "", err
	}
	out, err := exec.CommandContext(ctx, binary, append(args, "--api-socket", a.Socket)...).CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("run dupip %v: %w\n%s", args, err, out)
	}
	return string(out), nil
}
