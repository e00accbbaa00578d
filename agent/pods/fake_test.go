package pods_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/internal/ownnetns"
)

// fake is a runtime that fails in ways that a real one cannot be made to.
type fake struct {
	runtimeapi.UnimplementedRuntimeServiceServer

	socket       string
	lists, asked atomic.Int64

	mu        sync.Mutex
	sandboxes []*fakeSandbox
	// hangs says what is never answered: a method, or a sandbox's id.
	hangs map[string]bool
}

type fakeSandbox struct {
	id, namespace, name, uid string
	stopped                  bool
	created                  int64
	ips                      []string
	// info is the verbose part, or path and pid are made one.
	info, path string
	pid        int
}

func newFake(t testing.TB, sandboxes ...*fakeSandbox) *fake {
	t.Helper()
	f := &fake{socket: t.TempDir() + "/cri.sock", sandboxes: sandboxes, hangs: make(map[string]bool)}
	f.serve(t)
	return f
}

// serve runs it until the test ends or stop is called.
func (f *fake) serve(t testing.TB) (stop func()) {
	t.Helper()
	listener, err := net.Listen("unix", f.socket)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer()
	runtimeapi.RegisterRuntimeServiceServer(server, f)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	stop = func() {
		server.Stop()
		<-done
	}
	t.Cleanup(stop)
	return stop
}

func (f *fake) set(hangs ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.hangs)
	for _, h := range hangs {
		f.hangs[h] = true
	}
}

func (f *fake) maybeHang(ctx context.Context, what string) error {
	f.mu.Lock()
	hang := f.hangs[what]
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
	}
	return ctx.Err()
}

func (f *fake) Version(ctx context.Context, _ *runtimeapi.VersionRequest) (*runtimeapi.VersionResponse, error) {
	if err := f.maybeHang(ctx, "Version"); err != nil {
		return nil, err
	}
	return &runtimeapi.VersionResponse{RuntimeName: "fake\x1b[31m", RuntimeVersion: strings.Repeat("9", 1000)}, nil
}

func (f *fake) ListPodSandbox(ctx context.Context, _ *runtimeapi.ListPodSandboxRequest) (*runtimeapi.ListPodSandboxResponse, error) {
	f.lists.Add(1)
	if err := f.maybeHang(ctx, "List"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	answer := new(runtimeapi.ListPodSandboxResponse)
	for _, s := range f.sandboxes {
		answer.Items = append(answer.Items, &runtimeapi.PodSandbox{Id: s.id, State: s.state(), CreatedAt: s.created})
	}
	return answer, nil
}

func (f *fake) PodSandboxStatus(ctx context.Context, request *runtimeapi.PodSandboxStatusRequest) (*runtimeapi.PodSandboxStatusResponse, error) {
	f.asked.Add(1)
	if err := f.maybeHang(ctx, request.PodSandboxId); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sandboxes {
		if s.id == request.PodSandboxId {
			return s.status(), nil
		}
	}
	return nil, status.Error(codes.NotFound, "no such sandbox")
}

func (s *fakeSandbox) state() runtimeapi.PodSandboxState {
	if s.stopped {
		return runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	}
	return runtimeapi.PodSandboxState_SANDBOX_READY
}

func (s *fakeSandbox) status() *runtimeapi.PodSandboxStatusResponse {
	network := new(runtimeapi.PodSandboxNetworkStatus)
	for i, ip := range s.ips {
		if i == 0 {
			network.Ip = ip
		} else {
			network.AdditionalIps = append(network.AdditionalIps, &runtimeapi.PodIP{Ip: ip})
		}
	}
	info := s.info
	if info == "" {
		namespaces := []map[string]string{{"type": "pid"}}
		if s.path != "" {
			namespaces = append(namespaces, map[string]string{"type": "network", "path": s.path})
		}
		doc, _ := json.Marshal(map[string]any{
			"pid": s.pid, "runtimeSpec": map[string]any{"linux": map[string]any{"namespaces": namespaces}},
		})
		info = string(doc)
	}
	return &runtimeapi.PodSandboxStatusResponse{
		Status: &runtimeapi.PodSandboxStatus{
			Id: s.id, State: s.state(), CreatedAt: s.created, Network: network,
			Metadata: &runtimeapi.PodSandboxMetadata{Namespace: s.namespace, Name: s.name, Uid: s.uid},
		},
		Info: map[string]string{"info": info},
	}
}

// sandboxes makes real netns to point at, and returns their paths.
func sandboxes(t testing.TB, count int) (paths []string) {
	t.Helper()
	for range count {
		paths = append(paths, ownnetns.NewPod(t).Path())
	}
	return paths
}
