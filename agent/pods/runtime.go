package pods

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/books"
	"github.com/dupip/dupip/document"
)

const (
	listTimeout   = 2 * time.Second
	statusTimeout = time.Second
	// maxList and maxStatus limit responses, in bytes: a list of 10,000 sandboxes is shorter.
	maxList   = 16 << 20
	maxStatus = 4 << 20
	// maxHeaders is 16 times what a runtime sends.
	maxHeaders  = 16 << 10
	smallBuffer = 8 << 10 // enough for a Unix socket
	maxTitle    = 64      // of the runtime's name and version
	maxText     = 256     // of errors
)

// ErrNoSocket says that there is no socket of a container runtime.
var ErrNoSocket = errors.New("no CRI socket found")

var errLost = errors.New("the runtime closed the connection")

// DefaultSockets are tried in this order. A distribution's own socket comes before containerd's, which
// Docker uses, too.
var DefaultSockets = []string{
	"/run/k3s/containerd/containerd.sock", // k3s and RKE2
	"/run/k0s/containerd.sock",
	"/var/snap/microk8s/common/run/containerd.sock",
	"/run/crio/crio.sock",
	"/run/containerd/containerd.sock",
	"/run/cri-dockerd.sock",
}

// maxSocket is the longest path of a socket (sun_path, unix(7)).
const maxSocket = 107

// parseSocket returns the paths to try, none if names are disabled.
func parseSocket(text string, usual []string) ([]string, error) {
	switch text {
	case "":
		return usual, nil
	case "none", "off":
		return nil, nil
	}
	path := strings.TrimPrefix(text, "unix://")
	switch {
	case strings.Contains(path, "://"):
		return nil, fmt.Errorf("socket %q: must be a Unix socket", text)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("socket %q: must be an absolute path, or none", text)
	case len(path) > maxSocket:
		return nil, fmt.Errorf("socket %q: longer than %d bytes", text, maxSocket)
	}
	return []string{path}, nil
}

// silenceGRPC keeps gRPC from writing to standard error. The Resolver logs failures.
var silenceGRPC = sync.OnceFunc(func() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
})

// runtime is a connection to a container runtime. It stays open between requests, and so ends as soon as
// the runtime does.
type runtime struct {
	socket, name, version string
	// confDir is the folder with CNI's networks, empty if the runtime does not say it.
	confDir string
	asked   bool // for the folder

	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
	// cache is libcni's instead of a runtime, nil with one; sockets are those that it makes room for.
	cache   *books.Cache
	sockets []string
}

// connect returns the first runtime that responds, or the first error.
func connect(ctx context.Context, sockets []string) (*runtime, error) {
	first := ErrNoSocket
	for _, socket := range sockets {
		rt, err := dial(ctx, socket)
		switch {
		case err == nil:
			return rt, nil
		case errors.Is(first, ErrNoSocket) && !errors.Is(err, fs.ErrNotExist):
			first = err
		}
	}
	return nil, first
}

func dial(ctx context.Context, socket string) (*runtime, error) {
	if err := books.CheckSocket(socket); err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///localhost",
		// On the node, wherever this program runs: nothing is mounted for it.
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return books.DialHost(ctx, socket) }),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(smallBuffer),
		grpc.WithWriteBufferSize(smallBuffer),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)),
		// Longer than a call waits: a runtime that hangs is always a deadline that was exceeded.
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 2 * listTimeout}),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", socket, err)
	}
	cri := runtimeapi.NewRuntimeServiceClient(conn)
	rt := &runtime{socket: socket, conn: conn, cri: cri}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	version, err := cri.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		rt.close()
		return nil, fmt.Errorf("connecting to %s: %w", socket, escapeError(err))
	}
	rt.name, rt.version = document.Text(version.GetRuntimeName(), maxTitle), document.Text(version.GetRuntimeVersion(), maxTitle)
	return rt, nil
}

// askConfDir asks for the folder with CNI's networks, until the runtime answers.
func (rt *runtime) askConfDir(ctx context.Context) {
	if rt.asked || rt.cache != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	status, err := rt.cri.Status(ctx, &runtimeapi.StatusRequest{Verbose: true}, grpc.MaxCallRecvMsgSize(maxStatus))
	if rt.asked = err == nil; rt.asked {
		rt.confDir = confDir(status.GetInfo())
	}
}

// confDir returns the folder with CNI's networks from the verbose status of containerd, whose configuration that is (CniConfig,
// github.com/containerd/containerd/internal/cri/config). Other runtimes do not say it.
func confDir(info map[string]string) string {
	var config struct{ CNI struct{ ConfDir string } }
	_ = json.Unmarshal([]byte(info["config"]), &config)
	return validPath(config.CNI.ConfDir)
}

func (rt *runtime) close() {
	if rt.conn != nil {
		_ = rt.conn.Close()
	}
}

// alive returns a context that ends when the connection does; without a runtime, when there is a socket.
func (rt *runtime) alive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if rt.cache != nil {
			cancel(rt.await(ctx))
			return
		}
		for rt.conn.GetState() == connectivity.Ready && rt.conn.WaitForStateChange(ctx, connectivity.Ready) {
		}
		cancel(errLost) // unless ctx has ended
	}()
	return ctx, func() { cancel(nil) }
}

func (rt *runtime) list(ctx context.Context) (list []*runtimeapi.PodSandbox, err error) {
	if rt.cache != nil {
		sandboxes, err := rt.cache.List()
		for _, id := range sandboxes {
			list = append(list, &runtimeapi.PodSandbox{Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY})
		}
		return list, err
	}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	response, err := rt.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", escapeError(err))
	}
	return response.GetItems(), nil
}

// read reads the status of a sandbox.
func (rt *runtime) read(ctx context.Context, id string) (sandboxStatus, error) {
	if rt.cache != nil {
		return readCache(rt.cache, id)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	response, err := rt.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true},
		grpc.MaxCallRecvMsgSize(maxStatus))
	if err != nil {
		return sandboxStatus{}, fmt.Errorf("reading the status of a sandbox: %w", escapeError(err))
	}
	return parse(response), nil
}

// escapeError shortens and escapes the text of an error, and keeps its code.
func escapeError(err error) error {
	s := status.Convert(err)
	return status.Error(s.Code(), document.Text(s.Message(), maxText))
}

// socketPause is how often a socket is looked for while there is no runtime.
const socketPause = 5 * time.Second

var errAppeared = errors.New("there is the socket of a container runtime")

// await waits for a socket, or until ctx ends.
func (rt *runtime) await(ctx context.Context) error {
	ticker := time.NewTicker(socketPause)
	defer ticker.Stop()
	for {
		if slices.ContainsFunc(rt.sockets, func(socket string) bool { return books.CheckSocket(socket) == nil }) {
			return errAppeared
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// readCache reads a sandbox of libcni's cache.
func readCache(cache *books.Cache, id string) (sandboxStatus, error) {
	entry, err := cache.Read(id)
	if err == nil {
		_, err = sandboxStatus{path: entry.Netns}.cookie(false)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // a failed clean-up left it behind
		return sandboxStatus{}, status.Error(codes.NotFound, err.Error())
	case err != nil: // it may be half written
		return sandboxStatus{}, status.Error(codes.Unavailable, err.Error())
	}
	s := sandboxStatus{pod: podOf(entry.Namespace, entry.Name, entry.UID), path: validPath(entry.Netns)}
	for _, a := range entry.Result.Addresses[:min(maxIPs, len(entry.Result.Addresses))] {
		s.ips = append(s.ips, a.Addr())
	}
	return s, nil
}

// CheckRuntime connects to the runtime that a [Resolver] for this socket would use, and disconnects again. It
// takes at most 2 s for each socket that exists. The error is [ErrNoSocket], has a gRPC code, or is that
// of [New]. Status.Disabled is set for the last one, and if names are disabled.
func CheckRuntime(ctx context.Context, socket string) (Status, error) {
	sockets, err := parseSocket(socket, DefaultSockets)
	if err != nil || len(sockets) == 0 {
		return Status{Disabled: true}, err
	}
	silenceGRPC()
	rt, err := connect(ctx, sockets)
	if errors.Is(err, ErrNoSocket) {
		err = fmt.Errorf("%w at %s", err, cmp.Or(socket, "the usual places"))
	}
	if err != nil {
		return Status{}, err
	}
	defer rt.close()
	return Status{RuntimeStatus: document.RuntimeStatus{Socket: rt.socket, Name: rt.name, Version: rt.version, Connected: true}}, nil
}
