package cri

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Container is a container in a pod.
type Container struct {
	Pod *Pod
	ID  string
	// LogFile is what it writes, in the runtime's format; see [Container.Log].
	LogFile string
}

// CreateContainer makes a container in a pod. It has the namespaces of the pod and a log;
// everything else is in config, whose metadata must differ from that of the pod's other
// containers.
func (r *Runtime) CreateContainer(ctx context.Context, p *Pod, config *runtimeapi.ContainerConfig) (*Container, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	config.LogPath = fmt.Sprintf("%s-%s-%d.log", p.ID, config.GetMetadata().GetName(), config.GetMetadata().GetAttempt())
	if config.Linux == nil {
		config.Linux = &runtimeapi.LinuxContainerConfig{}
	}
	if config.Linux.SecurityContext == nil {
		config.Linux.SecurityContext = &runtimeapi.LinuxContainerSecurityContext{}
	}
	config.Linux.SecurityContext.NamespaceOptions = p.namespaces()
	if err := r.noteBootID(); err != nil {
		return nil, err
	}
	created, err := r.client.CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: p.ID, Config: config, SandboxConfig: p.config,
	})
	if err != nil {
		return nil, fmt.Errorf("create container %s of pod %s/%s: %w", config.GetMetadata().GetName(), p.Namespace, p.Name, err)
	}
	return &Container{Pod: p, ID: created.ContainerId, LogFile: filepath.Join(r.logs(), config.LogPath)}, nil
}

// StartContainer starts a container that was created.
func (r *Runtime) StartContainer(ctx context.Context, c *Container) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.client.StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID}); err != nil {
		return fmt.Errorf("start a container of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return nil
}

// StopContainer ends a container with SIGTERM, and with SIGKILL when the grace (in whole
// seconds) is over; without any at once. It does nothing when the container has ended.
func (r *Runtime) StopContainer(ctx context.Context, c *Container, grace time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout+grace)
	defer cancel()
	if _, err := r.client.StopContainer(ctx, &runtimeapi.StopContainerRequest{
		ContainerId: c.ID, Timeout: int64(grace / time.Second),
	}); err != nil {
		return fmt.Errorf("stop a container of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return nil
}

// RemoveContainer removes a container, and kills it where it runs.
func (r *Runtime) RemoveContainer(ctx context.Context, c *Container) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := r.client.RemoveContainer(ctx, &runtimeapi.RemoveContainerRequest{ContainerId: c.ID}); err != nil {
		return fmt.Errorf("remove a container of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return nil
}

// Result is what a program came to.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program in a container, as `kubectl exec` does, and waits. The error is that
// of the runtime; a program that failed has a code.
func (r *Runtime) Exec(ctx context.Context, c *Container, argv ...string) (Result, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	done, err := r.client.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: c.ID, Cmd: argv, Timeout: int64(callTimeout / time.Second),
	})
	if err != nil {
		return Result{}, fmt.Errorf("run %v in pod %s/%s: %w", argv, c.Pod.Namespace, c.Pod.Name, err)
	}
	return Result{string(done.Stdout), string(done.Stderr), int(done.ExitCode)}, nil
}

// ContainerStatus is what the runtime says of a container: its state and exit code.
func (r *Runtime) ContainerStatus(ctx context.Context, c *Container) (*runtimeapi.ContainerStatus, error) {
	answer, err := r.containerStatus(ctx, c)
	return answer.GetStatus(), err
}

// PID is the process id of the program in a container, 0 if it does not run.
func (r *Runtime) PID(ctx context.Context, c *Container) (int, error) {
	answer, err := r.containerStatus(ctx, c)
	if err != nil {
		return 0, err
	}
	var info struct{ PID int }
	if err := json.Unmarshal([]byte(answer.GetInfo()["info"]), &info); err != nil {
		return 0, fmt.Errorf("read the status of a container of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return info.PID, nil
}

func (r *Runtime) containerStatus(ctx context.Context, c *Container) (*runtimeapi.ContainerStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	answer, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
	if err != nil {
		return nil, fmt.Errorf("ask for a container of pod %s/%s: %w", c.Pod.Namespace, c.Pod.Name, err)
	}
	return answer, nil
}

// Log is what the container has written so far, to both streams. A log that cannot be
// read is its error.
func (c *Container) Log() string {
	data, err := os.ReadFile(c.LogFile)
	if err != nil {
		return err.Error()
	}
	var b strings.Builder
	for line := range strings.Lines(string(data)) {
		// Time, stream, and P for a part of a line or F for its end.
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(fields) < 4 {
			continue
		}
		b.WriteString(fields[3])
		if fields[2] == "F" {
			b.WriteByte('\n')
		}
	}
	return b.String()
}
