package pods

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	listTimeout   = 2 * time.Second
	statusTimeout = time.Second
	// Answers that are longer are refused: a list of some ten thousand sandboxes is
	// shorter, and so is the longest status.
	maxList   = 16 << 20
	maxStatus = 4 << 20
	// maxHeaders is 16 times what a runtime sends.
	maxHeaders = 16 << 10
	// smallBuffer is enough for a socket of the same machine.
	smallBuffer = 8 << 10
	// How much of what a runtime says of itself, and of its errors, is kept.
	maxTitle = 64
	maxText  = 256
)

// ErrNoSocket says that there is no socket of a container runtime.
var ErrNoSocket = errors.New("no CRI socket found")

var errLost = errors.New("the runtime closed the connection")

// quietLibrary keeps gRPC from writing lines of its own to standard error: what goes
// wrong with a connection is said by the Resolver, once.
var quietLibrary = sync.OnceFunc(func() {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(discard{}, discard{}, discard{}))
})

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// runtime is a connection to a container runtime. It stays open while nothing is asked,
// which costs a descriptor and no wakeups, and tells at once when the runtime is gone.
type runtime struct {
	socket, name, version string

	conn *grpc.ClientConn
	cri  runtimeapi.RuntimeServiceClient
}

// connect returns the first runtime that answers.
func connect(ctx context.Context, sockets []string) (*runtime, error) {
	var first error
	for _, socket := range sockets {
		info, err := os.Stat(socket)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err == nil && info.Mode().Type() != fs.ModeSocket:
			err = fmt.Errorf("connecting to %s: not a socket", socket)
		}
		if err == nil {
			var rt *runtime
			if rt, err = dial(ctx, socket); err == nil {
				return rt, nil
			}
		}
		if first == nil {
			first = err
		}
	}
	if first == nil {
		first = ErrNoSocket
	}
	return nil, first
}

func dial(ctx context.Context, socket string) (*runtime, error) {
	conn, err := grpc.NewClient("passthrough:///cri",
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", socket)
		}),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithAuthority("localhost"),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
		grpc.WithReadBufferSize(smallBuffer),
		grpc.WithWriteBufferSize(smallBuffer),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxList)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: listTimeout}),
	)
	if err != nil {
		return nil, fmt.Errorf("connecting to %s: %w", socket, err)
	}
	rt := &runtime{socket: socket, conn: conn, cri: runtimeapi.NewRuntimeServiceClient(conn)}
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	version, err := rt.cri.Version(ctx, &runtimeapi.VersionRequest{})
	if err != nil {
		rt.close()
		return nil, fmt.Errorf("connecting to %s: %w", socket, short(err))
	}
	rt.name, rt.version = printable(version.GetRuntimeName(), maxTitle), printable(version.GetRuntimeVersion(), maxTitle)
	return rt, nil
}

func (rt *runtime) close() { _ = rt.conn.Close() }

// alive returns a context that ends when the connection does.
func (rt *runtime) alive(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for rt.conn.GetState() == connectivity.Ready {
			if !rt.conn.WaitForStateChange(ctx, connectivity.Ready) {
				return
			}
		}
		cancel(errLost)
	}()
	return ctx, func() { cancel(nil) }
}

func (rt *runtime) list(ctx context.Context) ([]*runtimeapi.PodSandbox, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	answer, err := rt.cri.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return nil, fmt.Errorf("listing sandboxes: %w", short(err))
	}
	return answer.GetItems(), nil
}

func (rt *runtime) ask(ctx context.Context, id string) (*runtimeapi.PodSandboxStatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	answer, err := rt.cri.PodSandboxStatus(ctx, &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id, Verbose: true},
		grpc.MaxCallRecvMsgSize(maxStatus))
	if err != nil {
		return nil, fmt.Errorf("asking for a sandbox: %w", short(err))
	}
	return answer, nil
}

// short makes an error of a call fit to be shown, and keeps its code.
func short(err error) error {
	s := status.Convert(err)
	return status.Error(s.Code(), printable(s.Message(), maxText))
}
