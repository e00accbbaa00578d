package pods

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
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
func parseSocket(text string) ([]string, error) {
	switch text {
	case "":
		return DefaultSockets, nil
	case "none", "off":
		return nil, nil
	}
	path := strings.TrimPrefix(text, "unix://")
	switch {
	case strings.Contains(path, "://"):
		return nil, fmt.Errorf("CRI socket %q: must be a Unix socket", text)
	case !filepath.IsAbs(path):
		return nil, fmt.Errorf("CRI socket %q: must be an absolute path, or none", text)
	case len(path) > maxSocket:
		return nil, fmt.Errorf("CRI socket %q: longer than %d bytes", text, maxSocket)
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

func (rt *runtime) list(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	if rt.cache != nil {
		return listCache(rt.cache)
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
