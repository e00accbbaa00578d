package pods

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/dupip/dupip/detector"
)

// FuzzStatus: whatever a runtime answers, by the bytes of the answer and by what they have in JSON, names can be printed, paths are whole,
// addresses have no zone, and a list is bounded.
func FuzzStatus(f *testing.F) {
	codec := encoding.GetCodecV2(proto.Name)
	encode := func(v any) []byte {
		b, err := codec.Marshal(v)
		if err != nil {
			f.Fatal(err)
		}
		return b.Materialize()
	}
	decode := func(b []byte, v any) error { return codec.Unmarshal(mem.BufferSlice{mem.SliceBuffer(b)}, v) }
	add := func(info, name, ip string, at int64) {
		status := encode(&runtimeapi.PodSandboxStatusResponse{
			Status: &runtimeapi.PodSandboxStatus{
				Metadata: &runtimeapi.PodSandboxMetadata{Namespace: "shop", Name: name, Uid: name},
				Network:  &runtimeapi.PodSandboxNetworkStatus{Ip: ip, AdditionalIps: []*runtimeapi.PodIP{{Ip: "fd00::1"}, {Ip: ip}}},
			}, Info: map[string]string{"info": info},
		})
		list := encode(&runtimeapi.ListPodSandboxResponse{Items: []*runtimeapi.PodSandbox{{Id: name, CreatedAt: at}, {Id: "b", State: 1, CreatedAt: -at}}})
		f.Add(status, list, []byte(info))
	}
	add(`{"pid":7,"runtimeSpec":{"linux":{"namespaces":[{"type":"network","path":"/var/run/netns/a"}]}}}`, "web", "10.0.0.1", time.Now().UnixNano())
	add(`{"pid":-1,"sandboxMetadata":{"Metadata":{"NetNSPath":"/run/netns/b"}},"runtimeSpec":{"linux":{"namespaces":[{"type":"network"}]}}}`, "\x1b[31m", "fe80::1%eth0", 1<<62)
	f.Fuzz(func(t *testing.T, status, list, info []byte) {
		var response runtimeapi.PodSandboxStatusResponse
		if decode(status, &response) != nil {
			response.Reset()
		}
		response.Info = map[string]string{"info": string(info)}
		s := parse(&response)
		for _, text := range []string{s.pod.Namespace, s.pod.Name, s.pod.UID} {
			if len(text) > maxName || detector.Printable(text) != text || strings.Contains(text, " ") {
				t.Errorf("a pod is called %q", text)
			}
		}
		for _, path := range s.paths(true) {
			if !filepath.IsAbs(path) || len(path) > unix.PathMax || strings.Contains(path, "\x00") || strings.HasPrefix(path, "/proc/-") {
				t.Errorf("%q is opened", path)
			}
		}
		for _, ip := range s.ips {
			if !ip.IsValid() || ip.Zone() != "" || ip.Is4In6() || len(s.ips) > maxIPs {
				t.Errorf("%d addresses, one is %s", len(s.ips), ip)
			}
		}
		var answer runtimeapi.ListPodSandboxResponse
		if decode(list, &answer) != nil {
			return
		}
		all := table{}
		all.update(answer.Items)
		for id, s := range all {
			if id == "" || len(id) > maxID || len(all) > maxSandboxes || s.CreatedAt.After(time.Now()) {
				t.Errorf("%d sandboxes, %q of %s", len(all), id, s.CreatedAt)
			}
		}
	})
}
