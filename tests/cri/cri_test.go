package cri_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/internal/testneeds"
	"github.com/dupip/dupip/tests/cri"
	"github.com/dupip/dupip/tests/lab"
)

// childVariable makes the test binary a process that has a runtime with pods: "stay" prints where
// everything is and waits, "leave" cleans up.
const childVariable = "DUPIP_TEST_CRI_CHILD"

func TestMain(m *testing.M) {
	if mode := os.Getenv(childVariable); mode != "" {
		if err := child(mode == "stay"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(lab.Main(m))
}

// TestPods: pods come and go as a kubelet would have it.
func TestPods(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	r := newRuntime(l, cri.Options{Plugins: []map[string]any{
		{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24", "fd00:99::/64")},
	}})
	l.Do(r.Start(t.Context()))
	run := func(name string) *cri.Pod {
		t.Helper()
		p, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "ns", Name: name, UID: "uid"})
		l.Do(err)
		return p
	}
	first := run("first")
	want := lab.IPs("10.99.0.2", "fd00:99::2")
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(first.IPs)); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
	host, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "ns", Name: "host", UID: "uid", HostNetwork: true})
	l.Do(err)
	if host.Netns != "" {
		t.Errorf("a pod in the node's netns has %s", host.Netns)
	}

	// It is killed and restarted, and its pods survive.
	l.Do(r.Kill9())
	if _, err := os.Stat(first.Netns); err != nil {
		t.Errorf("the netns of a pod went with its runtime: %v", err)
	}
	l.Do(r.Start(t.Context()))
	second := run("second")
	if second.IPs[0] == first.IPs[0] {
		t.Errorf("two pods have %v, and the store was not wiped", first.IPs)
	}
	l.Do(r.WipeStore())
	if third := run("third"); third.IPs[0] != first.IPs[0] {
		t.Errorf("the store was wiped and the next pod has %v, want %v", third.IPs, first.IPs)
	}
	l.Do(r.RemovePod(t.Context(), second))
	if _, err := os.Stat(second.Netns); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the netns of a pod that was removed: %v", err)
	}
	l.Do(r.Restart(t.Context()))
	run("fourth")
	p := placesOf(r, first)
	if err := p.present(); err != nil {
		t.Errorf("the test checks the wrong places: %v", err)
	}
	l.Do(l.Close())
	if err := p.absent(); err != nil {
		t.Errorf("it leaves behind: %v", err)
	}
}

// A chain whose second plugin always fails: no pod, and what the runtime leaves is removed.
func TestFailingChain(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	r := newRuntime(l, cri.Options{
		Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}, {"type": "broken"}},
		Scripts: map[string]string{"broken": `echo '{"cniVersion":"1.0.0","code":100,"msg":"broken for good"}'; exit 1`},
	})
	l.Do(r.Start(t.Context()))
	_, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "ns", Name: "never", UID: "uid"})
	if err == nil || !strings.Contains(err.Error(), "broken for good") {
		t.Errorf("error %v, want that of the plugin", err)
	}
}

// What a killed process leaves behind is removed by the next one, its pods and shims too.
func TestSweep(t *testing.T) {
	t.Parallel()
	testneeds.Root(t)
	stay, output := startChild(t, "stay")
	var p places
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		p = append(p, lines.Text())
	}
	if err := p.present(); err != nil {
		t.Fatalf("the child lacks what it printed, or printed nothing: %v", err)
	}
	if err := stay.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = stay.Wait()
	leave, _ := startChild(t, "leave")
	if err := leave.Wait(); err != nil {
		t.Fatalf("the next process: %v", err)
	}
	if err := p.absent(); err != nil {
		t.Errorf("left behind: %v", err)
	}
}

func newRuntime(l *lab.T, o cri.Options) *cri.Runtime {
	l.Helper()
	r, err := cri.New(l.Lab, l.Node(""), o)
	l.Do(err)
	return r
}

func startChild(t *testing.T, mode string) (*exec.Cmd, io.Reader) {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), childVariable+"="+mode)
	cmd.Stderr = os.Stderr
	output, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { output.Close() })
	cmd.Stdout = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	write.Close()
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, output
}

func child(stay bool) error {
	// It builds the program of its containers first.
	ctx, cancel := context.WithTimeout(context.Background(), lab.Patience(3*time.Minute))
	defer cancel()
	defer lab.RemoveTemp()
	l, err := lab.New(ctx)
	if err != nil {
		return err
	}
	defer l.Close()
	n, err := l.AddNode("")
	if err != nil {
		return err
	}
	r, err := cri.New(l, n, cri.Options{Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}}})
	if err != nil || !stay {
		return err
	}
	if err := r.Start(ctx); err != nil {
		return err
	}
	p, err := r.RunPod(ctx, cri.PodOptions{Namespace: "ns", Name: "left", UID: "uid"})
	if err != nil {
		return err
	}
	// A container whose program and cgroup are nothing special, where nothing but its cgroup
	// and its mounts is its own.
	host, err := r.RunPod(ctx, cri.PodOptions{Namespace: "ns", Name: "host", UID: "uid", HostNetwork: true, HostPID: true})
	if err != nil {
		return err
	}
	c, err := r.CreateContainer(ctx, host, pause("left-container", "of-"+filepath.Base(r.Dir())[1:]))
	if err != nil {
		return err
	}
	if _, err := r.Client().StartContainer(ctx, &runtimeapi.StartContainerRequest{ContainerId: c.ID}); err != nil {
		return err
	}
	for _, place := range append(placesOf(r, p), "process /pause\x00left-container\x00of-"+filepath.Base(r.Dir())[1:]) {
		fmt.Println(place)
	}
	os.Stdout.Close()
	<-ctx.Done()
	return ctx.Err()
}

// places are where a runtime leaves things: patterns of files, and parts of command lines
// and mount points.
type places []string

func placesOf(r *cri.Runtime, p *cri.Pod) places {
	dir := r.Dir()
	return places{
		"file " + dir,
		"file /run/netns/" + p.NetnsName(),
		"file /var/lib/cni/results/*" + p.ID + "*",
		"file /sys/fs/cgroup/" + cgroupDepth() + filepath.Base(dir),
		"process containerd\x00--config\x00" + dir,
		"process -address\x00" + r.Socket,
		"process /pause\x00" + filepath.Base(dir),
		"mount " + dir,
	}
}

// cgroupDepth is a folder for each hierarchy where there are several.
func cgroupDepth() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return ""
	}
	return "*/"
}

func (p places) present() error {
	if len(p) == 0 {
		return errors.New("there are no places")
	}
	return p.check(true)
}

func (p places) absent() error { return p.check(false) }

func (p places) check(want bool) error {
	var errs []error
	for _, place := range p {
		kind, what, _ := strings.Cut(place, " ")
		var found bool
		switch kind {
		case "file":
			matches, err := filepath.Glob(what)
			errs = append(errs, err)
			found = len(matches) > 0
		case "process":
			all, err := filepath.Glob("/proc/[0-9]*/cmdline")
			errs = append(errs, err)
			for _, path := range all {
				line, _ := os.ReadFile(path)
				found = found || bytes.Contains(line, []byte(what))
			}
		case "mount":
			mounts, err := os.ReadFile("/proc/self/mounts")
			errs = append(errs, err)
			found = bytes.Contains(mounts, []byte(what+"/"))
		}
		if found != want {
			errs = append(errs, fmt.Errorf("%q: found %v", place, found))
		}
	}
	return errors.Join(errs...)
}

// A shim's socket is outside of all folders of the runtime.
func TestShimSockets(t *testing.T) {
	t.Parallel()
	l := lab.NewT(t)
	r := newRuntime(l, cri.Options{Plugins: []map[string]any{{"type": "ptp", "ipam": cri.HostLocal("10.99.0.0/24")}}})
	l.Do(r.Start(t.Context()))
	p, err := r.RunPod(t.Context(), cri.PodOptions{Namespace: "ns", Name: "a", UID: "uid"})
	l.Do(err)
	folder := filepath.Join(r.RunDir(), "io.containerd.runtime.v2.task/k8s.io", p.ID)
	address, err := os.ReadFile(filepath.Join(folder, "address"))
	if errors.Is(err, fs.ErrNotExist) { // containerd 2
		address, err = os.ReadFile(filepath.Join(folder, "bootstrap.json"))
	}
	l.Do(err)
	_, socket, _ := strings.Cut(string(address), "unix://")
	socket, _, _ = strings.Cut(socket, `"`)
	if _, err := os.Stat(socket); err != nil {
		t.Fatalf("the shim's socket: %v", err)
	}
	l.Do(l.Close())
	if _, err := os.Stat(socket); !errors.Is(err, unix.ENOENT) {
		t.Errorf("the shim's socket %s stays: %v", socket, err)
	}
}
