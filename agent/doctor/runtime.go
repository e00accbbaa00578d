package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/pods"
)

// criWait is how long a runtime may take to tell its version.
const criWait = 2 * time.Second

// nameless is what is lost without a runtime: names, never detection.
const nameless = "until then conflicts name network namespaces instead of pods"

// checkRuntime never fails: a pod's name is an ornament.
func checkRuntime(ctx context.Context, known *facts) finding {
	sockets := pods.DefaultSockets
	switch given := strings.TrimPrefix(known.opts.CRISocket, "unix://"); given {
	case "":
	case "off", "none":
		return skip("--cri-socket %s", given)
	default:
		sockets = []string{given}
	}
	present := slices.DeleteFunc(slices.Clone(sockets), func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
	if len(present) == 0 {
		text, advice := "no socket at the usual places", "name the runtime's with --cri-socket; "
		if len(sockets) == 1 {
			text, advice = "nothing at "+sockets[0], "give the right path with --cri-socket; "
		}
		if known.place.contained() {
			// Not the socket itself: a runtime that restarts makes another one.
			advice = "mount the folder with the runtime's socket (/run/containerd, /run/crio) into the container, at the same place or with --cri-socket; "
		}
		return warn(advice+nameless, "%s", text)
	}
	var first finding
	for _, path := range present {
		name, err := runtimeVersion(ctx, path)
		if err == nil {
			return ok("%s at %s", name, path)
		}
		if first.text == "" {
			first = runtimeTrouble(path, err)
		}
	}
	return first
}

func runtimeTrouble(path string, err error) finding {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return skip("%s needs root to be asked", path)
	case errors.Is(err, context.DeadlineExceeded), status.Code(err) == codes.DeadlineExceeded:
		return warn("the runtime is busy or hangs: crictl info, and its log; "+nameless,
			"%s accepts and does not answer within %v", path, criWait)
	case status.Code(err) == codes.Unimplemented:
		return warn("enable the CRI plugin (disabled_plugins in /etc/containerd/config.toml), or take containerd 1.6, CRI-O 1.20 or newer; "+nameless,
			"what listens at %s does not speak CRI v1", path)
	}
	return warn("see whether the runtime runs (systemctl status containerd crio); "+nameless, "%s: %s", path, err)
}

// runtimeVersion asks a runtime for its name and version.
func runtimeVersion(ctx context.Context, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, criWait)
	defer cancel()
	// First without gRPC, which would try again and again to connect, and loses the errno.
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return "", err
	}
	conn.Close()
	client, err := grpc.NewClient("passthrough:///cri",
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}),
		grpc.WithNoProxy(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<10)))
	if err != nil {
		return "", err
	}
	defer client.Close()
	answer, err := cri.NewRuntimeServiceClient(client).Version(ctx, &cri.VersionRequest{})
	if err != nil {
		return "", err
	}
	// Somebody else's words: a few of them.
	return fmt.Sprintf("%.40s %.40s", answer.GetRuntimeName(), answer.GetRuntimeVersion()), nil
}
