package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Agent is a real `dupip agent` process in the netns of a node.
type Agent struct {
	// Node is where the agent runs and Socket is its API.
	Node   *Node
	Socket string
	// Client speaks to the API.
	Client *Client

	args   []string
	cmd    *exec.Cmd
	log    Buffer
	exited chan struct{}
	err    error
}

// readyTimeout is how long an agent may take to attach on a busy machine.
const readyTimeout = 10 * time.Second

// stopTimeout is how long an agent may take to end: it says goodbye for up to five seconds
// and then writes its state for up to three.
const stopTimeout = 15 * time.Second

var agents atomic.Uint32

// StartAgent starts an agent on the node, with a node name, an API socket and a state
// folder of its own, and without a container runtime; flags come after those and win.
// It does not wait; see [Agent.WaitReady]. The lab stops the agent.
func (n *Node) StartAgent(flags ...string) (*Agent, error) {
	dir, err := tempDir()
	if err != nil {
		return nil, err
	}
	own := filepath.Join(dir, fmt.Sprintf("agent%d", agents.Add(1)))
	return n.startAgent(own+".sock", append([]string{
		"agent", "--node-name", n.ShortName(), "--api-socket", own + ".sock", "--state-dir", own,
		"--cri-socket", "none", "--log-level", "debug",
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
	a := &Agent{Node: n, Socket: socket, Client: NewClient(socket), args: args, exited: make(chan struct{})}
	a.cmd = exec.Command(program, args...)
	a.cmd.Stdout, a.cmd.Stderr = &a.log, &a.log
	if err := launch(a.cmd, func() error {
		// The child inherits the thread's namespaces.
		if err := errors.Join(n.boot.enter(), netns.Set(n.fd)); err != nil {
			return err
		}
		return a.cmd.Start()
	}, func(err error) {
		a.err = err
		close(a.exited)
	}); err != nil {
		return nil, fmt.Errorf("start agent in netns %s: %w", n.Name, err)
	}
	n.lab.OnClose(a.Stop)
	return a, nil
}

// Log is what the agent has written so far.
func (a *Agent) Log() string { return a.log.String() }

// PID is the agent's process id.
func (a *Agent) PID() int { return a.cmd.Process.Pid }

// WaitReady polls the API until the agent answers and has attached to its interfaces.
func (a *Agent) WaitReady(ctx context.Context) error {
	for {
		status, err := a.Client.Status(ctx)
		if err == nil {
			if status["ready"] == true {
				return nil
			}
			err = errors.New("it is not ready")
		}
		select {
		case <-a.exited:
			return fmt.Errorf("agent ended before it was ready: %w\n%s", a.err, a.Log())
		case <-ctx.Done():
			return fmt.Errorf("wait for the agent: %w (%w)", err, ctx.Err())
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// Stop ends the agent with SIGTERM and waits. It returns an error if the exit code is
// not 0, or if the agent had to be killed because it took too long. It may be called
// more than once, and after Kill, when it does nothing.
func (a *Agent) Stop() error {
	select {
	case <-a.exited:
		return nil
	default:
	}
	if err := a.signal(unix.SIGTERM); err != nil {
		return err
	}
	select {
	case <-a.exited:
		if a.err != nil {
			return fmt.Errorf("stop agent: %w", a.err)
		}
		return nil
	case <-time.After(Patience(stopTimeout)):
		return errors.Join(fmt.Errorf("stop agent: it did not end within %v of SIGTERM", Patience(stopTimeout)), a.Kill())
	}
}

// Kill ends the agent with SIGKILL and waits.
func (a *Agent) Kill() error {
	if err := a.signal(unix.SIGKILL); err != nil {
		return err
	}
	<-a.exited
	return nil
}

func (a *Agent) signal(s unix.Signal) error {
	if err := a.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal agent: %w", err)
	}
	return nil
}

// StateDir is the folder in which the agent's conflicts outlive it, unless a flag gave it
// another.
func (a *Agent) StateDir() string { return strings.TrimSuffix(a.Socket, ".sock") }

// Wait waits until the agent has ended by itself and returns its exit error.
func (a *Agent) Wait(ctx context.Context) error {
	select {
	case <-a.exited:
		return a.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

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
