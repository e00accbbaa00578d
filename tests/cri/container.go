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
	// LogFile is its log in the runtime's format; see [Container.Log].
	LogFile string
}

// CreateContainer makes a container with the pod's namespaces and a log. config has everything else;
// its metadata must differ from that of the pod's other containers.
func (r *Runtime) CreateContainer(ctx context.Context, p *Pod, config *runtimeapi.ContainerConfig) (*Container, error) {
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
	c := &Container{Pod: p, ID: created.GetContainerId(), LogFile: filepath.Join(r.logs(), config.LogPath)}
	return c, p.failed("create a container", err)
}

// Result is the result of a program.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program in a container, as `kubectl exec` does, and waits. The error is that
// of the runtime; a program that failed has a code.
func (r *Runtime) Exec(ctx context.Context, c *Container, argv ...string) (Result, error) {
	done, err := r.client.ExecSync(ctx, &runtimeapi.ExecSyncRequest{
		ContainerId: c.ID, Cmd: argv, Timeout: int64(callTimeout / time.Second),
	})
	return Result{string(done.GetStdout()), string(done.GetStderr()), int(done.GetExitCode())},
		c.Pod.failed(fmt.Sprintf("run %v", argv), err)
}

// PID is the process id of the program in a container, 0 if it does not run.
func (r *Runtime) PID(ctx context.Context, c *Container) (int, error) {
	answer, err := r.client.ContainerStatus(ctx, &runtimeapi.ContainerStatusRequest{ContainerId: c.ID, Verbose: true})
	var info struct{ PID int }
	if err == nil {
		err = json.Unmarshal([]byte(answer.GetInfo()["info"]), &info)
	}
	return info.PID, c.Pod.failed("get the status of a container", err)
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
