package pods

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// lister is a runtime that answers lists only.
type lister struct {
	runtimeapi.RuntimeServiceClient
	list []*runtimeapi.PodSandbox
	err  error
}

func (l *lister) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	return &runtimeapi.ListPodSandboxResponse{Items: l.list}, l.err
}

func (l *lister) Status(context.Context, *runtimeapi.StatusRequest, ...grpc.CallOption) (*runtimeapi.StatusResponse, error) {
	return new(runtimeapi.StatusResponse), nil
}

func TestSandboxes(t *testing.T) {
	r := newResolver(t)
	l := new(lister)
	rt := &runtime{socket: "/run/cri.sock", cri: l}
	expect := func(when string, ready map[string]bool, complete bool) {
		t.Helper()
		before := time.Now()
		if err := r.list(t.Context(), rt); err != nil {
			t.Fatal(err)
		}
		got := r.Sandboxes()
		if got.Listed.Before(before) || time.Now().Before(got.Listed) || got.Complete != complete {
			t.Errorf("%s: complete is %t, requested at %v", when, got.Complete, got.Listed)
		}
		if diff := cmp.Diff(ready, got.Ready); ready != nil && diff != "" {
			t.Errorf("%s (-want +got):\n%s", when, diff)
		}
	}
	if got := r.Sandboxes(); got.Ready != nil || !got.Listed.IsZero() || got.Complete {
		t.Errorf("before a list: %+v", got)
	}
	expect("an empty list", map[string]bool{}, true)
	l.list = append(listed("a", true), listed("b", false)...)
	expect("two", map[string]bool{"a": true, "b": false}, true)
	first := r.Sandboxes()
	l.list = listed("b", true)
	expect("one is gone", map[string]bool{"b": true}, true)
	if !first.Ready["a"] {
		t.Error("a list that was returned has changed")
	}
	l.list = append(listed("b", true), listed(strings.Repeat("x", maxID+1), true)...)
	expect("one has too long an id", map[string]bool{"b": true}, false)
	l.list = nil
	for n := range maxSandboxes + 1 {
		l.list = append(l.list, listed(fmt.Sprint(n), true)...)
	}
	expect("too many", nil, false)
	if s := r.Status(); s.SandboxesOmitted != 1 || s.Sandboxes != maxSandboxes+1 {
		t.Errorf("status %+v, want one omitted", s)
	}
	l.list = l.list[1:]
	expect("as many as are kept", nil, true)
	if s := r.Status(); s.SandboxesOmitted != 0 {
		t.Errorf("status %+v, want none omitted", s)
	}

	// Of a list that fails, the last one stays until the connection is given up.
	l.err = status.Error(codes.Unavailable, "it restarts")
	last := r.Sandboxes().Listed
	err := r.list(t.Context(), rt)
	if got := r.Sandboxes(); err == nil || got.Listed != last {
		t.Errorf("%v, requested at %v", err, got.Listed)
	}
	r.lost(err)
	if got := r.Sandboxes(); got.Ready != nil || !got.Listed.IsZero() || got.Complete {
		t.Errorf("after it was lost: %+v", got)
	}
	l.list, l.err = listed("a", true), nil
	expect("it is back", map[string]bool{"a": true}, true)
	r.setError(status.Error(codes.Internal, "of one sandbox"), true)
	if got := r.Sandboxes(); !got.Complete || !got.Ready["a"] {
		t.Errorf("after the status of one could not be read: %+v", got)
	}
}

// libcni's cache has no sandboxes of other runtimes, and none whose ADD has not finished.
func TestSandboxesOfCache(t *testing.T) {
	dir := t.TempDir()
	entry := `{"kind":"cniCacheV1","containerId":"aa11","ifName":"eth0","netns":"/proc/self/ns/net","cniArgs":[["K8S_POD_NAME","cart"]],"result":{}}`
	if err := os.WriteFile(filepath.Join(dir, "pods-aa11-eth0"), []byte(entry), 0o600); err != nil {
		t.Fatal(err)
	}
	r, err := New(Options{Log: slog.New(slog.DiscardHandler), Socket: "/nowhere/cri.sock", Cache: dir})
	if err != nil {
		t.Fatal(err)
	}
	rt, err := r.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.list(t.Context(), rt); err != nil {
		t.Fatal(err)
	}
	if got := r.Sandboxes(); !got.Ready["aa11"] || len(got.Ready) != 1 || got.Listed.IsZero() || got.Complete {
		t.Errorf("%+v", got)
	}
}
