package pods

import (
	"context"
	"errors"
	"io/fs"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/books"
)

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
