package pods

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/books"
)

// socketPause is how often a socket is looked for while there is no runtime.
const socketPause = 5 * time.Second

var errAppeared = errors.New("there is the socket of a container runtime")

// cacheOnly returns libcni's cache instead of a runtime: it has a pod for each netns that is still there.
func cacheOnly(cache *books.Cache, sockets []string) *runtime {
	return &runtime{name: "libcni's cache", cache: cache, sockets: sockets}
}

// await waits for a socket.
func (rt *runtime) await(ctx context.Context, found context.CancelCauseFunc) {
	ticker := time.NewTicker(socketPause)
	defer ticker.Stop()
	for {
		for _, socket := range rt.sockets {
			if books.CheckSocket(socket) == nil {
				found(errAppeared)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

// listCache lists the sandboxes of libcni's cache.
func listCache(cache *books.Cache) (list []*runtimeapi.PodSandbox, err error) {
	sandboxes, err := cache.List()
	for _, id := range sandboxes {
		list = append(list, &runtimeapi.PodSandbox{Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY})
	}
	return list, err
}

// readCache reads one of them.
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
