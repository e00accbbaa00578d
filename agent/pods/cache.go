package pods

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/agent/books"
)

// socketPause is how often a socket is looked for while there is no runtime.
const socketPause = 5 * time.Second

var errAppeared = errors.New("there is the socket of a container runtime")

// cacheOnly returns libcni's cache in the form of a runtime: it has a pod for each netns that is still there.
func cacheOnly(cache *books.Cache, sockets []string) *runtime {
	return &runtime{name: "libcni's cache", cri: &cacheClient{cache}, sockets: sockets}
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

// cacheClient answers from libcni's cache what a runtime would.
type cacheClient struct{ cache *books.Cache }

func (c *cacheClient) ListPodSandbox(context.Context, *runtimeapi.ListPodSandboxRequest, ...grpc.CallOption) (*runtimeapi.ListPodSandboxResponse, error) {
	sandboxes, err := c.cache.List()
	if err != nil {
		return nil, err
	}
	list := new(runtimeapi.ListPodSandboxResponse)
	for _, id := range sandboxes {
		list.Items = append(list.Items, &runtimeapi.PodSandbox{Id: id, State: runtimeapi.PodSandboxState_SANDBOX_READY})
	}
	return list, nil
}

func (c *cacheClient) PodSandboxStatus(_ context.Context, request *runtimeapi.PodSandboxStatusRequest, _ ...grpc.CallOption) (*runtimeapi.PodSandboxStatusResponse, error) {
	entry, err := c.cache.Read(request.GetPodSandboxId())
	if err == nil {
		_, err = sandboxStatus{path: entry.Netns}.cookie(false)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist): // a failed clean-up left it behind
		return nil, status.Error(codes.NotFound, err.Error())
	case err != nil: // it may be half written
		return nil, status.Error(codes.Unavailable, err.Error())
	}
	reply := &runtimeapi.PodSandboxStatusResponse{Status: &runtimeapi.PodSandboxStatus{
		Metadata: &runtimeapi.PodSandboxMetadata{Namespace: entry.Namespace, Name: entry.Name, Uid: entry.UID},
		Network:  new(runtimeapi.PodSandboxNetworkStatus),
	}}
	for _, a := range entry.Result.Addresses {
		reply.Status.Network.AdditionalIps = append(reply.Status.Network.AdditionalIps, &runtimeapi.PodIP{Ip: a.Addr().String()})
	}
	info, err := json.Marshal(map[string]any{"runtimeSpec": map[string]any{"linux": map[string]any{
		"namespaces": []map[string]string{{"type": "network", "path": entry.Netns}},
	}}})
	reply.Info = map[string]string{"info": string(info)}
	return reply, err
}
