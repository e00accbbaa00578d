package cri_test

import (
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// pause is a container of the sandbox image with arguments of its own.
func pause(args ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
		Image:    &runtimeapi.ImageSpec{Image: cri.SandboxImage},
		Args:     args,
	}
}

const bootID = "/proc/sys/kernel/random/boot_id"

// A container in the namespaces of its node is started, run, stopped and removed, and has the boot id
// of its node, also after a reboot.
func TestContainer(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	r := newRuntime(l, cri.Options{Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}}})
	l.Do(r.Start(t.Context()))
	p, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "ns", Name: "host", UID: "uid", HostNetwork: true, HostPID: true})
	l.Do(err)
	var formerID string
	for attempt := range 2 {
		config := pause("read", bootID, "/proc/1/comm")
		config.Metadata.Attempt = uint32(attempt)
		c, err := r.CreateContainer(t.Context(), p, config)
		l.Do(err)
		if pid, err := r.PID(t.Context(), c); err != nil || pid != 0 {
			t.Errorf("a container that was not started has pid %d (%v)", pid, err)
		}
		_, err = r.Client().StartContainer(t.Context(), &runtimeapi.StartContainerRequest{ContainerId: c.ID})
		l.Do(err)
		pid, err := r.PID(t.Context(), c)
		l.Do(err)
		if pid == 0 {
			t.Error("a container that runs has no pid")
		}
		// Of the machine's first process, which is no /pause.
		for deadline := time.Now().Add(lab.Patience(10 * time.Second)); strings.Count(c.Log(), "\n") < 2; {
			if time.Now().After(deadline) {
				t.Fatalf("the log is %q", c.Log())
			}
			time.Sleep(10 * time.Millisecond)
		}
		id, comm, _ := strings.Cut(c.Log(), "\n")
		if id != r.Node.BootID() || id == formerID {
			t.Errorf("the container sees the boot id %s, want %s", id, r.Node.BootID())
		}
		if strings.TrimSpace(comm) == "pause" {
			t.Error("the container does not see the processes of its node")
		}
		formerID = id
		l.Do(r.Node.Reboot())
		result, err := r.Exec(t.Context(), c, "/pause", "show", bootID)
		l.Do(err)
		if want := (cri.Result{Stdout: id + "\n"}); result != want {
			t.Errorf("after a reboot a program in the container sees %+v, want %+v", result, want)
		}
		result, err = r.Exec(t.Context(), c, "/pause", "show", "/nothing")
		l.Do(err)
		if result.Code != 3 || !strings.Contains(result.Stderr, "/nothing") {
			t.Errorf("a program that fails: %+v", result)
		}
		_, err = r.Client().StopContainer(t.Context(), &runtimeapi.StopContainerRequest{ContainerId: c.ID, Timeout: 5})
		l.Do(err)
		answer, err := r.Client().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID})
		l.Do(err)
		if status := answer.GetStatus(); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || status.GetExitCode() != 0 {
			t.Errorf("a container that was stopped: %v", status)
		}
		_, err = r.Client().RemoveContainer(t.Context(), &runtimeapi.RemoveContainerRequest{ContainerId: c.ID})
		l.Do(err)
		if _, err := r.Client().ContainerStatus(t.Context(), &runtimeapi.ContainerStatusRequest{ContainerId: c.ID}); err == nil {
			t.Error("a container that was removed is still known")
		}
	}
}
