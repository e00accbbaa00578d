package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

const (
	program = "dupip"
	// socket is the agent's API, as seen in the container.
	socket = "/run/dupip/dupip.sock"
	// stateDir is where it stores its conflicts, as seen in the container.
	stateDir = "/var/lib/dupip"
	// killTimeout is how long the runtime may take to notice that a container has ended.
	killTimeout = 10 * time.Second
	// noTimeout leaves the limit to a context.
	noTimeout = time.Hour
)

// Agent is the DaemonSet's pod on one node.
type Agent struct {
	// Node is where it runs.
	Node *lab.Node
	// Client speaks to the API.
	Client *lab.Client
	// Sandbox is the pod and Container its container, another one after each Restart.
	Sandbox   *cri.Pod
	Container *cri.Container

	kubelet                      *Kubelet
	pod                          *pod
	config                       *runtimeapi.ContainerConfig
	startup, liveness, readiness probe
	grace                        time.Duration
	pid                          int
	started                      time.Time
	logs                         []*cri.Container
	removed                      bool
}

// start makes a container of the pod and starts it.
func (a *Agent) start(ctx context.Context) error {
	r := a.kubelet.Runtime
	path, err := a.HostPath(socket)
	if err != nil {
		return err
	}
	a.Client = lab.NewClient(path)
	if a.Container, err = r.CreateContainer(ctx, a.Sandbox, a.config); err != nil {
		return err
	}
	a.logs = append(a.logs, a.Container)
	a.started = time.Now()
	if _, err := r.Client().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: a.Container.ID}); err != nil {
		return err
	}
	a.pid, err = r.PID(ctx, a.Container)
	return err
}

// HostPath is where a mounted path of the container is on the machine.
func (a *Agent) HostPath(path string) (string, error) {
	for _, m := range a.config.Mounts {
		if rest, ok := strings.CutPrefix(path, m.ContainerPath); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(m.HostPath, rest), nil
		}
	}
	return "", fmt.Errorf("nothing is mounted into the container at %s", path)
}

// StateDir is the folder on the machine in which the agent stores its conflicts.
func (a *Agent) StateDir() string {
	path, err := a.HostPath(stateDir)
	if err != nil {
		return err.Error()
	}
	return path
}

// PID is the agent's process id, 0 if it ended at once.
func (a *Agent) PID() int { return a.pid }

// running returns whether the process exists. A signal to 0 would go to the caller's group.
func (a *Agent) running() bool { return a.pid > 0 && unix.Kill(a.pid, 0) == nil }

// Started is when the container's start was requested.
func (a *Agent) Started() time.Time { return a.started }

// Log is what the containers of the pod have written.
func (a *Agent) Log() string {
	var b strings.Builder
	for _, c := range a.logs {
		b.WriteString(c.Log())
	}
	return b.String()
}

// WaitReady runs the probes of the manifest, only more often, until the pod is ready. It returns an
// error if the container ends, or does not start in the time of the startup probe.
func (a *Agent) WaitReady(ctx context.Context) error {
	if a.startup.path != "" {
		limited, cancel := lab.WithTimeout(ctx, lab.Patience(a.startup.total))
		defer cancel()
		if err := a.until(limited, a.startup); err != nil {
			return fmt.Errorf("the agent does not start: %w\n%s", err, a.Log())
		}
	}
	if err := a.until(ctx, a.readiness); err != nil {
		return fmt.Errorf("wait for the agent: %w\n%s", err, a.Log())
	}
	return nil
}

func (a *Agent) until(ctx context.Context, p probe) error {
	return lab.Poll(ctx, noTimeout, func() error {
		err := a.runProbe(ctx, p)
		if err != nil && !a.running() {
			code, failed := a.exitCode()
			return lab.Final(errors.Join(fmt.Errorf("the container ended with code %d", code), failed))
		}
		return err
	})
}

// Live runs the liveness probe once.
func (a *Agent) Live(ctx context.Context) error { return a.runProbe(ctx, a.liveness) }

// Exec runs a program in the container, as `kubectl exec` does.
func (a *Agent) Exec(ctx context.Context, argv ...string) (cri.Result, error) {
	return a.kubelet.Runtime.Exec(ctx, a.Container, argv...)
}

// CLI runs another command of the binary in the container, for example `conflicts -o
// wide`, and returns what it printed. A code other than 0 is an error.
func (a *Agent) CLI(ctx context.Context, args ...string) (string, error) {
	done, err := a.Exec(ctx, append([]string{program}, args...)...)
	if err == nil && done.Code != 0 {
		err = fmt.Errorf("run dupip %v: code %d\n%s%s", args, done.Code, done.Stdout, done.Stderr)
	}
	return done.Stdout + done.Stderr, err
}

// Stop deletes the pod with its volumes; the container ends with SIGTERM. It returns an error if the
// exit code is not 0, unless the container had ended before. It may be called more than once.
func (a *Agent) Stop() error {
	if a.removed {
		return nil
	}
	ended := a.end()
	if err := a.kubelet.Runtime.RemovePod(context.Background(), a.Sandbox); err != nil {
		return errors.Join(ended, err)
	}
	a.kubelet.cluster.withdraw(a.pod)
	a.removed = true
	return errors.Join(ended, os.RemoveAll(a.pod.dir))
}

// end ends the container with SIGTERM. It returns an error if it ran and the exit code is not 0.
func (a *Agent) end() error {
	running := a.running()
	if _, err := a.kubelet.Runtime.Client().StopContainer(context.Background(), &runtimeapi.StopContainerRequest{
		ContainerId: a.Container.ID, Timeout: int64(a.grace.Seconds()),
	}); err != nil {
		return err
	}
	code, err := a.exitCode()
	if err == nil && running && code != 0 {
		err = fmt.Errorf("the agent ended with code %d", code)
	}
	return err
}

// Kill ends the container with SIGKILL and waits until the runtime has noticed. The pod stays.
func (a *Agent) Kill() error {
	if a.running() {
		if err := unix.Kill(a.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("kill agent: %w", err)
		}
	}
	_, err := a.exitCode()
	return err
}

// Restart ends the container if it runs, and starts another one, as a kubelet does. It returns an
// error if it ended one and the exit code is not 0.
func (a *Agent) Restart(ctx context.Context) error {
	if err := a.end(); err != nil {
		return err
	}
	a.config.Metadata.Attempt++
	return a.start(ctx)
}

// ExitCode waits until the container has ended and returns its code.
func (a *Agent) ExitCode(ctx context.Context) (int, error) {
	if err := lab.Poll(ctx, noTimeout, func() error {
		if a.running() {
			return errors.New("the agent still runs")
		}
		return nil
	}); err != nil {
		return 0, err
	}
	return a.exitCode()
}

// exitCode waits until the runtime knows that the container has ended, and returns its exit code.
func (a *Agent) exitCode() (code int, err error) {
	ctx := context.Background()
	err = lab.Poll(ctx, killTimeout, func() error {
		answer, err := a.kubelet.Runtime.Client().ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: a.Container.ID})
		status := answer.GetStatus()
		if err == nil && status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED {
			err = fmt.Errorf("the container is %v", status.GetState())
		}
		code = int(status.GetExitCode())
		return err
	})
	return code, err
}

// close ends the agent with its lab, unless the runtime has ended: its removal kills the agent, too.
func (a *Agent) close() error {
	if !a.kubelet.Runtime.Running() {
		return nil
	}
	return a.Stop()
}
